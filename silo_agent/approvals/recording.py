"""Decisions on record: each is stored, and then named in the silo's own log, where a deleted one is missed.

The log's checkpoints are witnessed by others (ADR 20): whoever deletes one has to cut the log too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from privacy.approval import RULE, JobApproval, SignedApproval
from privacy.canonical import sha256_hex
from privacy.ids import Digest, PartyId
from privacy.keystore import Identity
from privacy.plan import JobSpec
from silo_agent.approvals.decisions import Decisions
from silo_agent.log import FILE, Kind, SiloLog, read_log

_DECISIONS: tuple[Kind, ...] = ("job_approved", "job_rejected", "job_auto_approved")


def record_decision(
    decisions: Decisions, state_dir: Path, identity: Identity, approval: JobApproval, signed: SignedApproval
) -> str:
    """Store a decision and log it; returns the file's name. A crash in between leaves it stored and unlogged.

    Raises:
        LedgerDamaged, SealsumError: the silo's log does not verify, or cannot be written.
    """
    file = decisions.add(approval.job_digest, signed)
    kind: Kind = "job_rejected" if approval.decision == "reject" else "job_approved"
    said = {
        "job": approval.job,
        "job_digest": approval.job_digest,
        "decision": sha256_hex(signed.body.encode()),
        "by": approval.by,
        "role": approval.role,
        "expires_at": approval.expires_at,
    }
    _record(state_dir, identity, "job_auto_approved" if approval.role == RULE else kind, said)
    return file


def record_seen(state_dir: Path, identity: Identity, job: JobSpec, researcher: PartyId) -> None:
    """Log that the silo was shown a job."""
    said = {"job": job.job, "job_digest": job.digest, "researcher": researcher, "dataset": job.dataset}
    _record(state_dir, identity, "job_seen", said)


def logged_decisions(state_dir: Path, identity: Identity) -> Mapping[Digest, frozenset[Digest]]:
    """Job digest → digests of the decisions about it that the silo's log names.

    Raises:
        LedgerDamaged: an entry of the log is not in its place.
    """
    found: dict[Digest, set[Digest]] = {}
    if (state_dir / "log" / FILE).exists():
        for entry in read_log(state_dir, identity.pin.federation, identity.pin.party):
            if entry.kind in _DECISIONS:
                found.setdefault(entry.body["job_digest"], set()).add(entry.body["decision"])
    return {job: frozenset(digests) for job, digests in found.items()}


def _record(state_dir: Path, identity: Identity, kind: Kind, said: Mapping[str, str]) -> None:
    with SiloLog(state_dir, identity.pin.federation, identity.pin.party, identity.signing) as log:
        log.record(kind, said)
