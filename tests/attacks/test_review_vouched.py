"""What one member signs of attacks neither breaks the answers to others nor the packs of the job."""

from __future__ import annotations

import pytest

from aggregator.attack_results import believed
from privacy.canonical import canonical_bytes
from privacy.errors import MalformedMessage
from privacy.ids import Digest, PartyId
from privacy.wire.attack_results import AttackOutcome, AttackResult
from privacy.wire.envelope import Envelope, open_envelope
from tests.federation import Federation

JOB = Digest("1" * 64)


def _signed(federation: Federation, sender: str, **changes: str) -> Envelope:
    said = AttackResult(
        job="job-1",
        job_digest=JOB,
        model="2" * 64,
        suite="quick",
        version="1",
        results="ab" * 32,
        outcomes=(AttackOutcome(attack="canaries", protection="noise", verdict="consistent"),),
        at="2026-06-30T00:00:00Z",
    ).model_copy(update=changes)
    return federation.sign(said, "attack_result", JOB, sender)


@pytest.mark.parametrize(
    "at", ["2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z"]
)
def test_a_result_of_no_instant_is_refused_when_it_comes(at: str) -> None:
    federation = Federation()
    envelope = _signed(federation, "silo-1", at=at)
    with pytest.raises(MalformedMessage, match="at"):
        open_envelope(
            envelope,
            AttackResult,
            kind="attack_result",
            context=JOB,
            verify_key_of=lambda party: federation.charter.member(party).verify_key,
            max_bytes=len(canonical_bytes(envelope)),
        )
    assert believed(federation.charter, JOB, (envelope,)) == []


def test_evidence_has_what_the_jobs_own_roster_signed_and_nobody_who_came_later() -> None:
    federation, later = Federation(silos=3), Federation(silos=4)
    kept, renewed, new = (
        _signed(federation, "silo-1"),
        _signed(later, "silo-2"),
        _signed(later, "silo-4"),
    )
    found = believed(federation.charter, JOB, (kept, renewed, new))
    assert [one.sender for one in found] == [PartyId("silo-1")]
