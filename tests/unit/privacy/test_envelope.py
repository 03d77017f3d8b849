"""Nothing that arrives is believed before its kind, recipient, context, signer and bytes are checked."""

from __future__ import annotations

import pytest
from pydantic import RootModel

from privacy.canonical import canonical_bytes
from privacy.errors import MalformedMessage, NotAllowed, SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId
from privacy.plan import TrainingTerms
from privacy.wire.envelope import Envelope, Verified, open_envelope, parse_envelope, sign_message
from privacy.wire.messages import MAX_BYTES, Refusal, ShareManifest

KEY = SigningKey.generate()
CTX = Digest("aa" * 32)
SILO = PartyId("cleveland")
REFUSAL = Refusal(silo="cleveland", rule="budget", sentence="no", expected="a", got="b", remedy="c")


def key_of(party: PartyId) -> str:
    if party != SILO:
        raise NotAllowed(f"party {party!r}: it is not in the roster")
    return KEY.verify_key


def opened(envelope: Envelope, **changes: object) -> Verified[Refusal]:
    terms: dict[str, object] = {
        "kind": "refusal",
        "context": CTX,
        "verify_key_of": key_of,
        "max_bytes": MAX_BYTES["refusal"],
    }
    return open_envelope(envelope, Refusal, **(terms | changes))  # type: ignore[arg-type]


def signed() -> Envelope:
    return sign_message(REFUSAL, "refusal", CTX, SILO, KEY)


def test_an_honest_message_opens_after_a_trip_over_the_wire() -> None:
    verified = opened(parse_envelope(canonical_bytes(signed())))
    assert (verified.message, verified.sender) == (REFUSAL, SILO)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "manifest", "envelope.kind: expected refusal, got manifest"),
        ("context", "bb" * 32, "envelope.context"),
        ("recipient", "hungary", "envelope.recipient"),
        ("body", signed().body.replace("no", "ok"), "not over these bytes"),
        ("signature", "00" * 64, "not over these bytes"),
    ],
)
def test_a_message_with_one_altered_field_is_refused(field: str, value: str, message: str) -> None:
    with pytest.raises(SignatureRejected, match=message):
        opened(signed().model_copy(update={field: value}))


@pytest.mark.parametrize("field", ["kind", "context", "recipient"])
def test_each_bound_field_is_under_the_signature_not_only_compared(field: str) -> None:
    # The attacker also gets the receiver to expect the altered value.
    altered = {"kind": "manifest", "context": Digest("bb" * 32), "recipient": PartyId("hungary")}
    envelope = signed().model_copy(update={field: altered[field]})
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        opened(envelope, **{field: altered[field]})


def test_another_enrolled_partys_signature_does_not_pass_as_the_senders() -> None:
    forged = sign_message(REFUSAL, "refusal", CTX, SILO, SigningKey.generate())
    with pytest.raises(SignatureRejected, match="not over these bytes by this key"):
        opened(forged)


def test_a_sender_outside_the_roster_is_refused() -> None:
    stranger = sign_message(REFUSAL, "refusal", CTX, PartyId("stranger"), KEY)
    with pytest.raises(NotAllowed, match="not in the roster"):
        opened(stranger)


def test_a_body_over_its_cap_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="expected at most 10 bytes"):
        opened(signed(), max_bytes=10)


def test_an_unknown_field_in_a_body_is_refused_without_echoing_what_came() -> None:
    class Extended(Refusal, extra="allow"):
        """A sender of a later version, or one that smuggles."""

    extended = Extended.model_validate({**REFUSAL.model_dump(), "secret": "s3cr3t"})
    with pytest.raises(MalformedMessage, match="secret: Extra inputs are not permitted") as caught:
        opened(sign_message(extended, "refusal", CTX, SILO, KEY))
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "spelling"),
    [("vector_length", "17"), ("ledger_head", {"seq": "0", "hash": "00" * 32})],
)
def test_a_second_spelling_of_the_same_value_is_refused(field: str, spelling: object) -> None:
    """Else a silo's manifest passes the servers and fails the auditor's stricter reader: no pack verifies."""
    manifest: dict[str, object] = {
        "silo": "cleveland",
        "model": "ab" * 32,
        "vector_length": 17,
        "parts": ["cd" * 32],
        "seeds": {"server-1": "ef" * 32},
        "ledger_head": {"seq": 0, "hash": "00" * 32},
    }
    with pytest.raises(MalformedMessage, match="one spelling"):
        open_envelope(
            _sign_raw({**manifest, field: spelling}),
            ShareManifest,
            kind="manifest",
            context=CTX,
            verify_key_of=key_of,
            max_bytes=MAX_BYTES["manifest"],
        )


def test_a_field_left_to_its_default_is_refused() -> None:
    """A body without it has another digest for whoever reads it as it stands."""
    terms = {"algorithm": "fedavg", "local_steps": 1, "learning_rate": "0.5", "server_learning_rate": "1.0"}
    with pytest.raises(MalformedMessage, match="one spelling"):
        open_envelope(
            _sign_raw(terms),
            TrainingTerms,
            kind="manifest",
            context=CTX,
            verify_key_of=key_of,
            max_bytes=MAX_BYTES["manifest"],
        )


def _sign_raw(document: dict[str, object]) -> Envelope:
    """What a peer can sign with code of its own."""

    class Raw(RootModel[dict[str, object]]):
        """Any JSON object."""

    return sign_message(Raw(document), "manifest", CTX, SILO, KEY)
