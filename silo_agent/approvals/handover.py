"""What a silo hands over of one job for the evidence: ledger, log, own policy, decisions and who signed them.

One canonical document, signed by the silo's own key, and beside it the silo's log, signed by its checkpoint:
fields of the log can be redacted later. Both name people: whoever packs them may withhold that.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from privacy.approval import SignedApproval
from privacy.canonical import Frozen, canonical_bytes, sha256_hex
from privacy.identity import SigningKey
from privacy.ids import HexDigest, HexKey, JobName, Name, SiloName
from privacy.people import Person
from privacy.transparency.checkpoint import LogHead, Note
from silo_agent.settings import DatasetSettings

HANDOVER_LABEL: Final = b"sealsum/handover/v1\x00"


class Registered(Frozen):
    """What the silo has registered the job's dataset for; never where it lies."""

    purposes: tuple[str, ...]
    legal_basis: str
    min_records: int


class OwnPolicy(Frozen):
    """The silo's own threat model, which holds there beside the federation's."""

    text: str
    parents: tuple[str, ...]


class HandedLog(Frozen):
    """The silo's whole log, a record a line, and its signed checkpoint over exactly these."""

    lines: tuple[str, ...]
    checkpoint: Note
    witnessed: Note | None = Field(default=None, exclude_if=lambda note: note is None)
    """The newest earlier checkpoint that servers cosigned, if they did."""


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
    registered: Registered | None
    """None for a dataset that ``silo.yaml`` no longer has."""
    threat_model: OwnPolicy
    log_head: LogHead
    """Of the log that goes along."""


class SignedHandover(Frozen):
    """As it lies in a file: the document as canonical text, and the silo's signature over it."""

    body: Annotated[str, Field(max_length=256 << 20)]
    verify_key: HexKey
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
    log: HandedLog


def registered(dataset: DatasetSettings | None) -> Registered | None:
    """What of a dataset's settings anybody may read."""
    if dataset is None:
        return None
    return Registered(
        purposes=dataset.purpose, legal_basis=dataset.legal_basis, min_records=dataset.min_records
    )


def sign_handover(document: HandedOver, log: HandedLog, key: SigningKey) -> SignedHandover:
    """Sign with the silo's identity key; ``log`` is the one whose head the document names."""
    body = canonical_bytes(document)
    signature = key.sign(HANDOVER_LABEL + bytes.fromhex(sha256_hex(body))).hex()
    return SignedHandover(body=body.decode(), verify_key=key.verify_key, signature=signature, log=log)
