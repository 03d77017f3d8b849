"""The last round of each job without DP, kept across restarts: an old round never comes back.

Rounds with DP need no second memory: the ledger's reservations name them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage, SealsumError
from privacy.ids import Digest, HexDigest
from silo_agent.durable import write_durably

_MAX_BYTES = 16 << 20


class _Rounds(Frozen):
    last: dict[HexDigest, Annotated[int, Field(ge=1)]]
    """Job digest → number of the last round."""


class RoundMemory:
    """``rounds.json``."""

    def __init__(self, path: Path) -> None:
        """Read what is there.

        Raises:
            SealsumError: it does not read back; guessing would let old rounds in.
        """
        self._path = path
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            self._last: dict[Digest, int] = {}
            return
        try:
            self._last = dict(_Rounds.model_validate(parse_canonical(raw, _MAX_BYTES)).last)
        except (MalformedMessage, ValidationError) as error:
            raise SealsumError(
                f"{path}: it does not read back; restore it, or wait for jobs to end"
            ) from error

    def last_round(self, job: Digest) -> int:
        """Number of the job's last round that was answered; 0 for a new job."""
        return self._last.get(job, 0)

    def remember(self, job: Digest, number: int) -> None:
        """Store, durably, that this round is answered, whatever becomes of it."""
        self._last[job] = number
        write_durably(self._path, canonical_bytes(_Rounds(last=self._last)))
