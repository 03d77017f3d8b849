"""What a silo hands over of one job for the evidence: its ledger, who decided, and what they signed.

One canonical document, signed by the silo's own key. It names people: whoever packs it may withhold that.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from privacy.approval import SignedApproval
from privacy.canonical import Frozen, canonical_bytes, sha256_hex
from privacy.identity import SigningKey
from privacy.ids import HexDigest, HexKey, JobName, Name, SiloName
from privacy.people import Person

HANDOVER_LABEL: Final = b"sealsum/handover/v1\x00"


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
