"""A server's log as it was served: entries, the owner's checkpoint over exactly these, and who cosigned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic import ValidationError

from privacy.errors import MalformedMessage, ProofRejected
from privacy.ids import PartyId
from privacy.transparency.checkpoint import LogHead, parse_checkpoint
from privacy.transparency.leaf import parse_record, records_in_order
from privacy.transparency.merkle import Frontier
from privacy.transparency.witnessing import ServedCheckpoint

CHECKPOINT_BYTES_MAX: Final = 1 << 18


class ServerClient(Protocol):
    """Whatever can GET from a server."""

    def get_bytes(self, path: str, *, limit: int, params: Mapping[str, str] | None = None) -> bytes:
        """At most ``limit`` bytes."""
        ...


@dataclass(frozen=True)
class ServedLog:
    """Nothing of it is verified here; ``sealsum-verify`` does that."""

    lines: bytes
    """One entry a line."""
    checkpoint: str
    """The owner's signed note on them."""
    witnessed: str | None
    """The newest earlier note that enough silos have cosigned, if there is one."""

    def files(self, party: PartyId) -> dict[str, bytes]:
        """As they lie in a pack; with the leaves a verifier can name the entry that is not what was signed.

        Raises:
            LedgerDamaged, MalformedMessage: not records, or not a checkpoint.
        """
        origin = parse_checkpoint(self.checkpoint).origin
        leaves = [parse_record(line).leaf_hash(origin).hex() for line in self.lines.splitlines()]
        files = {
            f"log/{party}.jsonl": self.lines,
            f"log/{party}.leaves": "".join(leaf + "\n" for leaf in leaves).encode(),
            f"log/{party}.checkpoint": self.checkpoint.encode(),
        }
        if self.witnessed is not None:
            files[f"log/{party}.witnessed"] = self.witnessed.encode()
        return files


def fetch_log(client: ServerClient, limit: int) -> ServedLog:
    """A server's newest checkpoint, and the entries that it is over.

    Raises:
        PeerFault: the server's refusal; MalformedMessage if it answers something else.
    """
    raw = client.get_bytes("/v1/log/checkpoint", limit=CHECKPOINT_BYTES_MAX)
    try:
        served = ServedCheckpoint.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedMessage("log: expected a checkpoint, got something else") from error
    size = parse_checkpoint(served.checkpoint).head.size
    lines = client.get_bytes("/v1/log", limit=limit, params={"size": str(size)})
    return ServedLog(lines, served.checkpoint, served.witnessed)


def assert_whole(served: ServedLog) -> LogHead:
    """The head that a log's checkpoint names, if its entries have that root; who signed it is not looked at.

    Raises:
        ProofRejected: they have another. LedgerDamaged, MalformedMessage: not records in order.
    """
    checkpoint, frontier = parse_checkpoint(served.checkpoint), Frontier()
    for record in records_in_order(served.lines.splitlines(), checkpoint.origin):
        frontier, _ = frontier.append(record.leaf_hash(checkpoint.origin))
    named = checkpoint.head
    if (frontier.size, frontier.root.hex()) != (named.size, named.root):
        raise ProofRejected(
            f"log: expected the {named.size} entries that its checkpoint signs, got {frontier.size} or others"
        )
    return named
