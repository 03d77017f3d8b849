"""A job's envelope is opened once; only the very same one under the same key and charter is looked up."""

from __future__ import annotations

import pytest

from privacy.errors import MalformedMessage, NotAllowed, SignatureRejected
from privacy.identity import SigningKey
from privacy.wire.job_envelope import open_job
from tests.federation import Federation

FEDERATION = Federation()
SIGNED = FEDERATION.sign_job(FEDERATION.job_spec())


def test_a_job_that_was_opened_before_is_the_very_same_one() -> None:
    again = SIGNED.model_copy()
    assert open_job(again, FEDERATION.charter) is open_job(SIGNED, FEDERATION.charter)


@pytest.mark.parametrize("field", ["body", "signature", "context", "recipient"])
def test_an_altered_envelope_is_refused_after_the_true_one_was_opened(field: str) -> None:
    open_job(SIGNED, FEDERATION.charter)
    value = getattr(SIGNED, field)
    altered = SIGNED.model_copy(update={field: ("0" if value[0] != "0" else "1") + value[1:]})
    with pytest.raises((SignatureRejected, MalformedMessage)):
        open_job(altered, FEDERATION.charter)


def test_another_senders_name_on_the_same_bytes_is_refused() -> None:
    open_job(SIGNED, FEDERATION.charter)
    with pytest.raises(SignatureRejected):
        open_job(SIGNED.model_copy(update={"sender": "aggregator"}), FEDERATION.charter)
    with pytest.raises(NotAllowed):
        open_job(SIGNED.model_copy(update={"sender": "stranger"}), FEDERATION.charter)


def test_a_later_charter_with_another_key_for_its_researcher_refuses_it() -> None:
    open_job(SIGNED, FEDERATION.charter)
    key = SigningKey.generate().verify_key
    members = tuple(
        member.model_copy(update={"verify_key": key}) if member.id == SIGNED.sender else member
        for member in FEDERATION.charter.members
    )
    with pytest.raises(SignatureRejected):
        open_job(SIGNED, FEDERATION.charter.model_copy(update={"members": members}))


def test_what_does_not_open_is_asked_again() -> None:
    forged = SIGNED.model_copy(update={"signature": "00" * 64})
    for _ in range(2):
        with pytest.raises(SignatureRejected):
            open_job(forged, FEDERATION.charter)
