"""What a round will send, stored whole before its first byte leaves, so that a retry sends identical bytes.

    outbox/<ctx>/NNNNN                masked vector share, part by part
    outbox/<ctx>/contribution.json    offer, manifest, sealed seeds; written last: with it, all is there

A silo that recomputed its update after a crash would draw new noise under one charge, and would hand out
two maskings of it. Knows no network.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage, SealsumError
from privacy.ids import Context, Digest, ServerId, ServerName
from privacy.wire.envelope import Envelope
from silo_agent.durable import private_directory, sync_directory, write_durably

_MAX_CONTRIBUTION_BYTES = 64 << 20
_CONTRIBUTION = "contribution.json"


class Contribution(Frozen):
    """The small half of what is sent, and the offer it answers."""

    offer: Envelope
    manifest: Envelope
    seeds: dict[ServerName, Annotated[str, Field(max_length=8192)]]
    """Base64 of the sealed seed for each server but the first."""

    def sealed_seed(self, server: ServerId) -> bytes:
        """The sealed seed for a server."""
        return base64.b64decode(self.seeds[server], validate=True)


@dataclass(frozen=True)
class Stored:
    """A complete contribution on disk."""

    context: Context
    contribution: Contribution
    directory: Path

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Index and bytes of each part, in order, one in memory at a time."""
        for path in sorted(path for path in self.directory.iterdir() if path.name.isdigit()):
            yield int(path.name), path.read_bytes()

    def parts_within(self, limit: int) -> tuple[bytes, ...] | None:
        """All parts at once; ``None`` where they have more than ``limit`` bytes together."""
        paths = sorted(path for path in self.directory.iterdir() if path.name.isdigit())
        if sum(path.stat().st_size for path in paths) > limit:
            return None
        return tuple(path.read_bytes() for path in paths)

    def part(self, index: int) -> bytes:
        """One part alone."""
        return (self.directory / f"{index:05d}").read_bytes()


class Outbox:
    """The contributions of rounds whose result is not in yet."""

    def __init__(self, directory: Path) -> None:
        self._directory = private_directory(directory)

    def put_parts(self, context: Context, parts: Iterable[bytes]) -> None:
        """Store the vector share's parts, durably, consuming them one by one.

        Raises:
            SealsumError: the round has a complete contribution already, which must not change.
        """
        directory = self._directory / context
        if (directory / _CONTRIBUTION).exists():
            raise SealsumError(f"outbox: round {context[:16]}… is stored already; its bytes must not change")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        for index, part in enumerate(parts):
            with (directory / f"{index:05d}").open("wb") as file:
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
        sync_directory(directory)

    def complete(self, context: Context, contribution: Contribution) -> Stored:
        """Store the rest; from here on the round is resent after a crash."""
        directory = self._directory / context
        write_durably(directory / _CONTRIBUTION, canonical_bytes(contribution))
        sync_directory(self._directory)
        return Stored(context, contribution, directory)

    def pending(self) -> tuple[Stored, ...]:
        """Complete contributions whose round has not ended.

        Raises:
            SealsumError: a stored contribution does not read back.
        """
        return tuple(
            Stored(Context(Digest(path.name)), _read(path / _CONTRIBUTION), path)
            for path in sorted(self._directory.iterdir())
            if (path / _CONTRIBUTION).exists()
        )

    def drop_incomplete(self) -> tuple[Context, ...]:
        """Remove what a crash interrupted: those rounds stay charged and are not sent."""
        dropped = []
        for path in sorted(self._directory.iterdir()):
            if not (path / _CONTRIBUTION).exists():
                shutil.rmtree(path)
                dropped.append(Context(Digest(path.name)))
        return tuple(dropped)

    def remove(self, context: Context) -> None:
        """Forget a round that has ended; the marker goes first, so that half of it is never resent."""
        directory = self._directory / context
        (directory / _CONTRIBUTION).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def encode_seed(sealed: bytes) -> str:
    """A sealed seed as it stands in JSON."""
    return base64.b64encode(sealed).decode()


def _read(path: Path) -> Contribution:
    try:
        return Contribution.model_validate(parse_canonical(path.read_bytes(), _MAX_CONTRIBUTION_BYTES))
    except (MalformedMessage, ValidationError) as error:
        raise SealsumError(
            f"{path}: it does not read back; the round stays charged, remove the folder"
        ) from error
