"""What this silo has cosigned of others' logs, so that it never cosigns two histories of one.

The heads of a job's rounds under DP are in the ledger: each BEGIN names the head it saw and is on disk before
a cosignature leaves, so such a round costs no second write. ``witness.json`` holds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage, SealsumError
from privacy.ids import Name
from privacy.transparency.checkpoint import LogHead
from silo_agent.durable import write_durably

KEPT: Final = 2
"""The last heads that are kept of each log: an offer's witnessed checkpoint is no older than the first."""
_MAX_BYTES: Final = 1 << 20


class _Seen(Frozen):
    heads: Annotated[tuple[LogHead, ...], Field(max_length=KEPT)]
    """The last ones, oldest first."""
    ledgers: dict[Name, Annotated[int, Field(ge=0)]]
    """By dataset, how many rounds had begun when this log was first seen: later ones saw this log."""


class _Memory(Frozen):
    logs: dict[str, _Seen]
    """By the log's origin."""


class WitnessMemory:
    """``witness.json``, and what ledgers add to it."""

    def __init__(self, path: Path, begun: Mapping[str, Sequence[LogHead]]) -> None:
        """``begun``: by dataset, the heads that its rounds saw, in the order in which they began.

        Raises:
            SealsumError: the file does not read back; guessing would let a rewritten log in.
        """
        self._path = path
        self._begun = {dataset: len(heads) for dataset, heads in begun.items()}
        try:
            logs = _Memory.model_validate(parse_canonical(path.read_bytes(), _MAX_BYTES)).logs
        except FileNotFoundError:
            logs = {}
        except (MalformedMessage, ValidationError) as error:
            raise SealsumError(f"{path}: it does not read back; restore it from the newest copy") from error
        self._begun_of: dict[str, dict[str, int]] = {
            origin: dict(one.ledgers) for origin, one in logs.items()
        }
        self._heads = {origin: list(one.heads) for origin, one in logs.items()}
        for origin, one in logs.items():
            if one.ledgers:
                later = [
                    head for dataset, heads in begun.items() for head in heads[one.ledgers.get(dataset, 0) :]
                ]
                together = {(head.size, head.root): head for head in (*one.heads, *later)}
                self._heads[origin] = [together[place] for place in sorted(together)][-KEPT:]

    def heads(self, origin: str) -> tuple[LogHead, ...]:
        """The last two heads cosigned, oldest first; fewer, if there were no more."""
        return tuple(self._heads.get(origin, ()))

    def meet(self, origin: str) -> None:
        """Note, durably and once, from which rounds on the ledgers speak of this log: the aggregator's."""
        if origin not in self._begun_of:
            self._begun_of[origin] = dict(self._begun)
            self._heads.setdefault(origin, [])
            self._write()

    def remember(self, origin: str, head: LogHead, *, durably: bool) -> None:
        """Keep a head; without ``durably`` the caller's ledger entry on disk names it already."""
        self._heads[origin] = [*self._heads.get(origin, ()), head][-KEPT:]
        self._begun_of.setdefault(origin, {})
        if durably:
            self._write()

    def _write(self) -> None:
        logs = {
            origin: _Seen(heads=tuple(heads), ledgers=self._begun_of[origin])
            for origin, heads in self._heads.items()
        }
        write_durably(self._path, canonical_bytes(_Memory(logs=logs)))
