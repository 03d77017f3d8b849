"""A person's decision about one job at one silo: what it is bound to, and her signature over it.

The job's digest binds every term; the fields beside it say in plain words what was decided, so that nobody
needs the job to read the decision. Whether a decision counts, others judge. Knows no files and no clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from privacy.canonical import Frozen, Real, canonical_bytes, parse_canonical, sha256_hex
from privacy.errors import MalformedMessage
from privacy.identity import SigningKey, verify_signature
from privacy.ids import HexDigest, HexKey, JobName, Name, SiloName
from privacy.people import PersonName, PersonRole
from privacy.plan import AlgorithmName

_LABEL = b"sealsum/approval/v1\x00"
_MAX_BYTES = 1 << 16
RULE: Literal["rule"] = "rule"
"""In place of a person's role: a rule of the silo's decided, and the silo's own key signed."""
Instant = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
"""RFC 3339, UTC, whole seconds."""


class ApprovalTerms(Frozen):
    """What a decision is about."""

    federation: Name
    silo: SiloName
    job: JobName
    job_digest: HexDigest
    algorithm: AlgorithmName
    architecture: HexDigest
    dataset: Name
    registration: HexDigest
    """Digest of the dataset's registration at the silo: another file under the same name is another one."""
    data_schema: HexDigest
    recipient: Literal["silos", "researchers"]
    """Whom the federation's threat model releases the model to."""
    noise_multiplier: Real | None
    """The noise of a round; ``None`` without DP, as the next two."""
    epsilon_job: Real | None
    """ε of all rounds together, at the job's δ."""
    delta: Real | None
    rounds_max: Annotated[int, Field(ge=1)]


class JobApproval(ApprovalTerms):
    """A decision, before it is signed."""

    decision: Literal["approve", "reject"]
    by: PersonName
    """The person; with role ``rule``, the name of the silo's rule."""
    role: PersonRole | Literal["rule"]
    at: Instant
    expires_at: Instant
    reason: Annotated[str, Field(max_length=500)] = ""


class SignedApproval(Frozen):
    """A decision as canonical JSON text, and whose key signed it."""

    body: Annotated[str, Field(max_length=_MAX_BYTES)]
    verify_key: HexKey
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


def sign_approval(approval: JobApproval, key: SigningKey) -> SignedApproval:
    """Sign a decision with the key of whoever decided."""
    body = canonical_bytes(approval)
    return SignedApproval(
        body=body.decode(), verify_key=key.verify_key, signature=key.sign(_signed_bytes(body)).hex()
    )


def open_approval(signed: SignedApproval) -> JobApproval:
    """Check that the key it names signed it, and read it; whose key that is, others judge.

    Raises:
        SignatureRejected: the key did not sign these bytes. MalformedMessage: they are no decision.
    """
    body = signed.body.encode()
    verify_signature(signed.verify_key, _signed_bytes(body), bytes.fromhex(signed.signature))
    try:
        approval = JobApproval.model_validate(parse_canonical(body, _MAX_BYTES))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"approval: {where}: {fault['msg']}") from error
    if canonical_bytes(approval) != body:
        raise MalformedMessage("approval: expected each value in its one spelling, with no field left out")
    return approval


def instant(moment: datetime) -> str:
    """A moment as decisions write it, cut to whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _signed_bytes(body: bytes) -> bytes:
    return _LABEL + bytes.fromhex(sha256_hex(body))
