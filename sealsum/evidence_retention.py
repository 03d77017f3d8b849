"""How long packs in an archive are kept: as their own threat model says, and longer under a legal hold.

Judges values; what lies in the archive, and what time it is, comes in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from policies.findings import Finding
from policies.loader import load_threat_model
from privacy.errors import MalformedMessage


@dataclass(frozen=True)
class Kept:
    """One pack of an archive."""

    file: str
    job: str
    created_at: datetime
    evidence_days: int
    """``retention.evidence_days`` of the threat model that the job ran under."""


@dataclass(frozen=True)
class Hold:
    """A job whose evidence must not go, whatever its age."""

    job: str
    reason: str
    by: str
    at: str


def kept_pack(file: str, files: Mapping[str, bytes]) -> Kept:
    """Read what decides how long a pack is kept.

    Raises:
        MalformedMessage: its manifest is not one. PolicyInvalid: its threat model cannot be read.
    """
    try:
        manifest = json.loads(files["manifest.json"])
        created = datetime.strptime(manifest["created_at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        text, job = files["policy/policy.yaml"].decode(), str(manifest["job"])
        parents = json.loads(json.loads(files["who/charter.json"])["body"])["policy_parents"]
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedMessage(f"{file}: expected the manifest of an evidence pack, got none") from error
    return Kept(file, job, created, load_threat_model(text, parents).model.spec.retention.evidence_days)


def to_expire(packs: Iterable[Kept], older_than: timedelta, now: datetime) -> list[Kept]:
    """Those that somebody asks to delete, oldest first."""
    return sorted((one for one in packs if now - one.created_at > older_than), key=lambda one: one.created_at)


def refusals(packs: Iterable[Kept], holds: Mapping[str, Hold], now: datetime) -> dict[str, Finding]:
    """File → why it must stay."""
    found: dict[str, Finding] = {}
    for one in packs:
        hold = holds.get(one.job)
        until = one.created_at + timedelta(days=one.evidence_days)
        if hold is not None:
            found[one.file] = Finding(
                "evidence.legal_hold",
                f"the evidence of job {one.job} is under a legal hold",
                f"no hold on {one.job}",
                f"held by {hold.by} since {hold.at}: {hold.reason}",
                f"leave it; once the matter is over: sealsum audit hold release {one.job}",
            )
        elif now < until:
            found[one.file] = Finding(
                "evidence.retention",
                f"the threat model of job {one.job} keeps its evidence longer",
                f"retention.evidence_days ({one.evidence_days}) after {one.created_at:%Y-%m-%d}",
                f"{(now - one.created_at).days} days",
                f"ask again after {until:%Y-%m-%d}",
            )
    return found
