"""One frozen model per message that crosses the wire, and the table of their kinds and size caps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen, Real, digest_of
from privacy.chain import Head
from privacy.ids import Digest, HexDigest, ServerName, SiloId, SiloName
from privacy.plan import RoundPlan
from privacy.transparency.witnessing import OfferedLog
from privacy.vector_terms import FurtherName
from privacy.wire.envelope import Envelope, MessageKind

Sentence = Annotated[str, Field(max_length=500)]

PART_BYTES = 8 * 1024 * 1024
"""Updates travel in parts of this many bytes; only the last one is shorter."""


class RoundOffer(Frozen):
    """Aggregator → silos and share servers: take part on these terms."""

    plan: RoundPlan
    job: Envelope
    """The researcher's signed job, so that each side checks the plan against it."""
    log: OfferedLog
    """The aggregator's log as it stands; silos witness it, which makes a rewritten one visible."""


class ShareManifest(Frozen):
    """Silo → every share server and the aggregator: this is my one update of this round.

    Names the exact bytes of each share, so that servers cross-check that all hold pieces of the same
    update. It is also the silo's signed claim to be a survivor.
    """

    silo: SiloName
    model: HexDigest
    """Digest of the model bytes the silo itself received and trained from."""
    vector_length: Annotated[int, Field(ge=2)]
    parts: Annotated[tuple[HexDigest, ...], Field(min_length=1, max_length=100_000)]
    """SHA-256 of each part of the vector share, in order."""
    seeds: dict[ServerName, HexDigest]
    """SHA-256 of the sealed seed for each server but the first."""
    ledger_head: Head
    """Head of the silo's privacy ledger after reserving for this round: others witness it."""


class AcceptedSet(Frozen):
    """Share server → the others: whose complete shares I hold, frozen for this round."""

    server: ServerName
    manifests: dict[SiloName, HexDigest]
    """Digest of each accepted manifest envelope's body."""


class SurvivorSet(Frozen):
    """Share server → all: the one set I will sum over, ever, under this context."""

    server: ServerName
    survivors: Annotated[tuple[SiloName, ...], Field(min_length=1)]
    manifests: Annotated[tuple[HexDigest, ...], Field(min_length=1)]


class OpeningShare(Frozen):
    """Share server → aggregator: my share of the sum over the survivors, by the digests of its parts."""

    server: ServerName
    survivors: HexDigest
    """Digest of the survivor set it sums over."""
    parts: Annotated[tuple[HexDigest, ...], Field(min_length=1, max_length=100_000)]


class RoundResult(Frozen):
    """Aggregator → all: how the round ended. A model appears only where a sum was opened."""

    outcome: Literal["opened", "aborted"]
    reason: Sentence
    survivors: tuple[SiloName, ...]
    model_in: HexDigest
    model_out: HexDigest | None
    openings: Annotated[int, Field(ge=0, le=1)]
    job_state: Literal["running", "finished", "failed"]
    """State of the job after this round."""
    further: dict[FurtherName, tuple[Real, ...]] = Field(default={}, exclude_if=lambda opened: not opened)
    """What the plan's further vectors opened to, by name; not spelled where there are none."""


class Refusal(Frozen):
    """Silo → aggregator: I take no part in this round, and why. Public terms only."""

    silo: SiloName
    rule: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.]{0,63}$")]
    sentence: Sentence
    expected: Sentence
    got: Sentence
    remedy: Sentence


MAX_BYTES: dict[MessageKind, int] = {
    "job": 4 << 20,
    "offer": 16 << 20,
    "manifest": 8 << 20,
    "accepted": 1 << 20,
    "survivors": 1 << 20,
    "opening": 8 << 20,
    "result": 1 << 20,
    "refusal": 1 << 14,
    "attack_result": 1 << 20,
    "readiness": 1 << 14,
    "he_key": 1 << 19,
    "he_manifest": 8 << 20,
    "he_sum": 16 << 20,
    "he_opened": 8 << 20,
    "validity_manifest": 8 << 20,
    "coin1_commitment": 1 << 12,
    "coin1_reveal": 1 << 12,
    "coin2_commitment": 1 << 12,
    "coin2_reveal": 1 << 12,
    "validity_proof": 1 << 12,
    "validity_check": 1 << 12,
    "validity_verdict": 1 << 20,
}
"""Largest body of each kind, checked before it is parsed."""


def accepted_by_all(accepted: Sequence[AcceptedSet]) -> dict[SiloId, Digest]:
    """Silos that every server accepted with the same manifest: silo → digest, sorted.

    A silo that showed servers different manifests is in no intersection, so it harms only itself.
    """
    first, *others = accepted
    return {
        silo: digest
        for silo, digest in sorted(first.manifests.items())
        if all(other.manifests.get(silo) == digest for other in others)
    }


def survivors_digest(survivors: SurvivorSet) -> Digest:
    """Digest of who and what is summed, the same at every server."""
    return digest_of(
        "sealsum/survivors/v1",
        {"survivors": list(survivors.survivors), "manifests": list(survivors.manifests)},
    )
