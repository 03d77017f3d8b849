"""What travels between a log's owner and its witnesses: an offered view of the log, and the answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen
from privacy.errors import ProofRejected
from privacy.ids import HexDigest
from privacy.transparency.checkpoint import Checkpoint, LogHead, Note
from privacy.transparency.merkle import verify_consistency

Hashes = Annotated[tuple[HexDigest, ...], Field(max_length=128)]


class OfferedLog(Frozen):
    """The owner's newest checkpoint, and what it takes to believe that it continues what others have seen."""

    checkpoint: Note
    since: LogHead
    """An earlier head, that of the offer before: most witnesses cosigned it, and need no other proof."""
    consistency: Hashes
    """That ``checkpoint`` extends ``since``."""
    witnessed: Note | None
    """The newest checkpoint that enough witnesses have cosigned, with their signatures."""
    witnessed_consistency: Hashes
    """That ``checkpoint`` extends ``witnessed``; empty if there is none."""


class ProvenConsistency(Frozen):
    """What ``GET /v1/log/consistency`` answers: that ``second`` entries begin with the ``first``."""

    first: Annotated[int, Field(ge=0)]
    second: Annotated[int, Field(ge=0)]
    proof: Hashes


class ProvenInclusion(Frozen):
    """What ``GET /v1/log/inclusion`` answers: that entry ``seq`` is among the first ``size``."""

    seq: Annotated[int, Field(ge=0)]
    size: Annotated[int, Field(ge=1)]
    leaf_hash: HexDigest
    proof: Hashes


class Cosigned(Frozen):
    """A witness's answer to a checkpoint, and its own log's newest checkpoint, to be witnessed in turn."""

    size: Annotated[int, Field(ge=0)]
    """Of the checkpoint it is on."""
    cosignature: Annotated[str, StringConstraints(max_length=1000)]
    """One signature line."""
    own: Note | None
    """None as long as that log has not grown since the last answer."""
    own_since: LogHead | None = Field(default=None, exclude_if=lambda head: head is None)
    """The head of that log that the same server was shown before, if the witness knows of one."""
    own_consistency: Annotated[Hashes, Field(exclude_if=lambda hashes: not hashes)] = ()
    """That ``own`` extends ``own_since``; roots of subtrees only, which say nothing of an entry."""


class WitnessedInTurn(Frozen):
    """A server's answer to ``Cosigned``: it cosigns the witness's own log, or says what it lacks."""

    cosignature: Annotated[str, StringConstraints(max_length=1000)] | None = None
    """One signature line on ``own``, which continues all that this server saw of that log."""
    since: LogHead | None = None
    """The head that it saw last, where nothing showed that ``own`` continues it."""


class ServedCheckpoint(Frozen):
    """What ``GET /v1/log/checkpoint`` answers: the newest checkpoint, and the newest that was cosigned."""

    checkpoint: Note
    witnessed: Note | None


def assert_extends(later: LogHead, earlier: LogHead, proof: Sequence[str]) -> None:
    """Check that a log with head ``later`` began with the one whose head was ``earlier``.

    Raises:
        ProofRejected: it is not shown.
    """
    try:
        hashes = [bytes.fromhex(one) for one in proof]
    except ValueError as error:
        raise ProofRejected("consistency proof: expected hashes as hex") from error
    verify_consistency(
        earlier.size, bytes.fromhex(earlier.root), later.size, bytes.fromhex(later.root), hashes
    )


def offered_alone(checkpoint: Checkpoint) -> OfferedLog:
    """The very first view of a log: nobody has seen an earlier one."""
    return OfferedLog(
        checkpoint=checkpoint.note(),
        since=checkpoint.head,
        consistency=(),
        witnessed=None,
        witnessed_consistency=(),
    )
