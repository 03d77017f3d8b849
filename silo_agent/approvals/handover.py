"""What a silo hands over of one job for the evidence: its ledger, who decided, and what they signed.

One canonical document, signed by the silo's own key. It names people: whoever packs it may withhold that.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints, ValidationError

from privacy.approval import SignedApproval
from privacy.canonical import Frozen, canonical_bytes, parse_canonical, sha256_hex
from privacy.errors import MalformedMessage, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import HexDigest, HexKey, JobName, Name, SiloName
from privacy.people import Person

HANDOVER_LABEL: Final = b"sealsum/handover/v1\x00"
MAX_HANDOVER_BYTES: Final = 512 << 20


class HandedOver(Frozen):
    """The document, before it is signed."""

    handover: Annotated[str, StringConstraints(pattern=r"^sealsum-handover/1$")] = "sealsum-handover/1"
    federation: Name
    silo: SiloName
    job: JobName
    job_digest: HexDigest
    dataset: Name
    ledger: tuple[Annotated[str, Field(max_length=1 << 20)], ...]
    """The whole ledger of the job's dataset, one canonical entry a line."""
    people: dict[Name, Person]
    """Of ``silo.yaml``: those who decided about this job."""
    approvals: tuple[SignedApproval, ...]
    """Every decision about this job, in order."""


class SignedHandover(Frozen):
    """As it lies in a file: the document as canonical text, and the silo's signature over it."""

    body: Annotated[str, Field(max_length=256 << 20)]
    verify_key: HexKey
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


def sign_handover(document: HandedOver, key: SigningKey) -> SignedHandover:
    """Sign with the silo's identity key."""
    body = canonical_bytes(document)
    signature = key.sign(HANDOVER_LABEL + bytes.fromhex(sha256_hex(body))).hex()
    return SignedHandover(body=body.decode(), verify_key=key.verify_key, signature=signature)


def open_handover(raw: bytes, verify_key: str) -> HandedOver:
    """Read what a silo handed over, if it was this silo that did; its contents, others judge.

    Raises:
        SignatureRejected: another key, or other bytes than it signed. MalformedMessage: no such document.
    """
    try:
        signed = SignedHandover.model_validate(parse_canonical(raw, MAX_HANDOVER_BYTES))
    except ValidationError as error:
        raise MalformedMessage(f"handover: {_first(error)}") from error
    if signed.verify_key != verify_key:
        raise SignatureRejected(
            "handover: expected it from the silo whose key the charter names, got another"
        )
    body = signed.body.encode()
    verify_signature(
        verify_key, HANDOVER_LABEL + bytes.fromhex(sha256_hex(body)), bytes.fromhex(signed.signature)
    )
    try:
        return HandedOver.model_validate(parse_canonical(body, MAX_HANDOVER_BYTES))
    except ValidationError as error:
        raise MalformedMessage(f"handover: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(step) for step in fault['loc'])}: {fault['msg']}"
