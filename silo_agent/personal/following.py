"""What each round's model still knows of every class at this silo, and what it has forgotten since its best.

Forgetting of a class is the best recall that a model of an earlier round had, minus that of the last
(Chaudhry et al. 2018, arXiv 1801.10112, equation 3). Numbers are of the silo's own patients and stay here:

    personal/<job digest>/rounds.jsonl      a line a round, mode 0600
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.ids import Digest, HexDigest, JobName
from privacy.keystore import read_secret
from silo_agent.durable import private_directory

_FILE = "rounds.jsonl"


class Followed(Frozen):
    """One round's model at this silo."""

    job: JobName
    job_digest: HexDigest
    round: int
    model: HexDigest
    """That the round started from."""
    held_out: bool
    """Whether the patients asked are held out of the job; if not, it trains on them."""
    recall: tuple[float | None, ...] = Field(repr=False)
    """By class: the part of its records that the model finds; none where the silo has no record of it."""


@dataclass(frozen=True)
class Forgotten:
    """One class over the rounds so far."""

    best: float
    best_round: int
    last: float

    @property
    def forgetting(self) -> float:
        """How much less is found than at the best; below 0 it is found better than ever."""
        return self.best - self.last


class Following:
    """The rounds that one silo has followed."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / "personal"

    def note(self, followed: Followed) -> None:
        """Append a round. Not durably: a lost line is a point less in a curve."""
        private_directory(self._directory)
        path = private_directory(self._directory / followed.job_digest) / _FILE
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(followed.model_dump_json().encode() + b"\n")

    def jobs(self) -> dict[Digest, tuple[Followed, ...]]:
        """All rounds of each job, in order, the last of those noted twice.

        Raises:
            ConfigurationError: a line does not read back.
        """
        return {Digest(path.parent.name): _read(path) for path in sorted(self._directory.glob(f"*/{_FILE}"))}


def forgotten(rounds: Sequence[Followed]) -> dict[int, Forgotten]:
    """By class: the best of all models but the last, and the last. Classes without a record are left out."""
    told: dict[int, Forgotten] = {}
    for one in range(len(rounds[-1].recall)):
        curve = [(step.round, value) for step in rounds if (value := step.recall[one]) is not None]
        if len(curve) >= 2:
            at, best = max(curve[:-1], key=lambda point: point[1])
            told[one] = Forgotten(best, at, curve[-1][1])
    return told


def _read(path: Path) -> tuple[Followed, ...]:
    try:
        lines = [Followed.model_validate_json(line) for line in read_secret(path).splitlines()]
    except ValidationError as error:
        raise ConfigurationError(f"{path}: a line does not read back; remove the file") from error
    return tuple({line.round: line for line in lines}[number] for number in sorted({x.round for x in lines}))
