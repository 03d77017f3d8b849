"""A server's log as it was served: entries, the owner's checkpoint over exactly these, and who cosigned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from privacy.errors import MalformedMessage
from privacy.ids import PartyId
from privacy.transparency.checkpoint import parse_checkpoint
from privacy.transparency.leaf import parse_record
from privacy.transparency.witnessing import ServedCheckpoint
from silo_agent.transport import FederationClient

CHECKPOINT_BYTES_MAX: Final = 1 << 18


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


def fetch_log(client: FederationClient, limit: int) -> ServedLog:
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
