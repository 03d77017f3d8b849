"""The signed envelope: nothing that arrives is believed before it is a ``Verified`` message.

mTLS alone is not enough: a relay or a TLS-inspecting proxy terminates it. So each message is signed
with the sender's roster key over its kind, context, sender, recipient and body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical, sha256_hex
from privacy.errors import MalformedMessage, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import Digest, HexDigest, PartyId, PartyName

MessageKind = Literal[
    "job",
    "offer",
    "manifest",
    "accepted",
    "survivors",
    "opening",
    "result",
    "refusal",
    "readiness",
    "pairwise_keys",
    "pairwise_shares",
    "pairwise_masked",
    "pairwise_consistency",
    "pairwise_unmask",
    "he_key",
    "he_manifest",
    "he_sum",
    "he_opened",
    "validity_manifest",
    "coin1_commitment",
    "coin1_reveal",
    "coin2_commitment",
    "coin2_reveal",
    "validity_proof",
    "validity_check",
    "validity_verdict",
    "threshold_commit",
    "threshold_reveal",
    "threshold_manifest",
    "threshold_sum",
    "threshold_partial",
    "attack_result",
]
BROADCAST = PartyId("all")
MAX_ENVELOPE_BYTES = 24 << 20

M = TypeVar("M", bound=BaseModel)
M_co = TypeVar("M_co", bound=BaseModel, covariant=True)


class Envelope(Frozen):
    """A body as canonical JSON text, and who signed it for whom, under which context."""

    kind: MessageKind
    context: HexDigest
    sender: PartyName
    recipient: PartyName
    body: Annotated[str, Field(max_length=16 << 20)] = Field(repr=False)
    """Not printed: some bodies carry shares."""
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]

    @property
    def body_digest(self) -> Digest:
        """SHA-256 of the body's bytes."""
        return sha256_hex(self.body.encode())


@dataclass(frozen=True)
class Verified(Generic[M_co]):
    """A message whose signature, sender, recipient, kind and context have been checked."""

    message: M_co
    sender: PartyId
    context: Digest
    envelope: Envelope


def signed_bytes(kind: str, context: str, sender: str, recipient: str, body: bytes) -> bytes:
    """Unambiguous pre-authentication encoding: a label, then each field behind its length (as in DSSE)."""
    fields = [
        kind.encode(),
        bytes.fromhex(context),
        sender.encode(),
        recipient.encode(),
        bytes.fromhex(sha256_hex(body)),
    ]
    return b"sealsum/envelope/v1\x00" + b"".join(len(field).to_bytes(8, "little") + field for field in fields)


def sign_message(
    message: BaseModel,
    kind: MessageKind,
    context: Digest,
    sender: PartyId,
    key: SigningKey,
    recipient: PartyId = BROADCAST,
) -> Envelope:
    """Wrap and sign ``message``."""
    body = canonical_bytes(message)
    signature = key.sign(signed_bytes(kind, context, sender, recipient, body)).hex()
    return Envelope(
        kind=kind,
        context=context,
        sender=sender,
        recipient=recipient,
        body=body.decode(),
        signature=signature,
    )


def parse_envelope(raw: bytes) -> Envelope:
    """Decode an envelope; nothing in it is believed yet.

    Raises:
        MalformedMessage: over 24 MiB, not canonical JSON, or not an envelope.
    """
    try:
        return Envelope.model_validate(parse_canonical(raw, MAX_ENVELOPE_BYTES))
    except ValidationError as error:
        raise MalformedMessage(f"envelope: {first_fault(error)}") from error


def parse_envelopes(raw: bytes) -> tuple[Envelope, ...]:
    """Decode a list of envelopes; nothing in them is believed yet.

    Raises:
        MalformedMessage: over 24 MiB, not canonical JSON, or not a list of envelopes.
    """
    values = parse_canonical(raw, MAX_ENVELOPE_BYTES)
    if not isinstance(values, list):
        raise MalformedMessage(f"envelopes: expected a list, got {type(values).__name__}")
    try:
        return tuple(Envelope.model_validate(value) for value in values)
    except ValidationError as error:
        raise MalformedMessage(f"envelopes: {first_fault(error)}") from error


def open_envelope(
    envelope: Envelope,
    model: type[M],
    *,
    kind: MessageKind,
    context: Digest | None,
    verify_key_of: Callable[[PartyId], str],
    recipient: PartyId = BROADCAST,
    max_bytes: int,
) -> Verified[M]:
    """Check an envelope and read its body, in this order:

    (1) it is of the kind expected here; (2) it is addressed to this recipient; (3) it is bound to the
    context expected here; (4) the roster's key of its sender signed exactly these bytes; (5) only then
    is the body parsed, canonical and within its size cap. ``context`` is ``None`` only where the
    body itself defines it (an offer); the caller must then compare.

    Raises:
        SignatureRejected: (1) to (4). MalformedMessage: (5). NotAllowed: the sender is not enrolled.
    """
    # (1)
    if envelope.kind != kind:
        raise SignatureRejected(f"envelope.kind: expected {kind}, got {envelope.kind}")
    # (2)
    if envelope.recipient != recipient:
        raise SignatureRejected(f"envelope.recipient: expected {recipient}, got {envelope.recipient}")
    # (3)
    if context is not None and envelope.context != context:
        raise SignatureRejected(f"envelope.context: expected {context[:16]}…, got {envelope.context[:16]}…")
    # (4)
    body = envelope.body.encode()
    verify_signature(
        verify_key_of(envelope.sender),
        signed_bytes(envelope.kind, envelope.context, envelope.sender, envelope.recipient, body),
        bytes.fromhex(envelope.signature),
    )
    # (5)
    try:
        message = model.model_validate(parse_canonical(body, max_bytes))
    except ValidationError as error:
        raise MalformedMessage(f"{kind}: {first_fault(error)}") from error
    # (6)
    if canonical_bytes(message) != body:
        raise MalformedMessage(f"{kind}: expected each value in its one spelling, with no field left out")
    return Verified(message, envelope.sender, envelope.context, envelope)


def first_fault(error: ValidationError) -> str:
    """Where and why, without echoing what came: it may hold a secret."""
    fault = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(step) for step in fault['loc'])}: {fault['msg']}"
