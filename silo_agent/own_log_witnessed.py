"""What servers, as witnesses in turn, have cosigned of this silo's own log; knows no wire.

``<state>/log/witnessed`` is the newest checkpoint with their signatures. A server cosigns only what continues
all that it saw of the log, and sees roots of it and no entry.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from privacy.errors import LedgerDamaged, MalformedMessage
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    open_cosignature,
    parse_checkpoint,
    parse_signature_line,
)
from privacy.transparency.leaf import parse_record
from privacy.transparency.merkle import consistency_proof, node_hash
from silo_agent.durable import write_durably
from silo_agent.log import SiloLog

FILE: Final = "witnessed"


def keep_cosignature(directory: Path, own: Checkpoint, line: str, name: str, verify_key: str) -> None:
    """Believe a server's cosignature on our own checkpoint, and keep it beside those on the same one.

    Raises:
        MalformedMessage, SignatureRejected: it is not that server's, or not on this checkpoint.
    """
    signature = parse_signature_line(line)
    open_cosignature(own, signature, name, verify_key)
    before = kept_note(directory)
    kept = [] if before is None or before.head != own.head else list(before.signatures[1:])
    if name in (one.name for one in kept):
        return
    noted = own.with_cosignatures([*kept, signature])
    write_durably(directory / FILE, noted.note().encode())


def kept_note(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that a server cosigned, if one did.

    Raises:
        LedgerDamaged: what lies there is no checkpoint.
    """
    path = directory / FILE
    try:
        return parse_checkpoint(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (MalformedMessage, UnicodeDecodeError) as error:
        raise LedgerDamaged(f"{path}: expected a checkpoint with servers' signatures; remove it") from error


def proof_since(log: SiloLog, since: LogHead, head: LogHead) -> tuple[str, ...]:
    """That our log with head ``head`` began with the one whose head was ``since``; hashes as hex."""
    leaves = [parse_record(line).leaf_hash(log.origin) for line in log.lines()[: head.size]]

    @cache
    def node(level: int, index: int) -> bytes:
        if level == 0:
            return leaves[index]
        return node_hash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1))

    return tuple(one.hex() for one in consistency_proof(since.size, head.size, node))
