"""The power goes at any write of a ledger: nothing is spent unseen, and no round draws its noise twice.

A faulty ``os`` under the journal fails, tears or ends the process's n-th call, and afterwards leaves on disk
what a disk may leave: all that was synced, any part of what was written behind it, the old head or the new.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import BudgetExhausted, LedgerDamaged, OutOfOrder, SealsumError
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, JobId
from privacy.transparency.checkpoint import EMPTY_LOG
from silo_agent.ledger import journal as journal_module
from silo_agent.ledger.admission import RoundCharge, block_size
from silo_agent.ledger.entries import EpsilonCaps, FallbackCaps, Opening
from silo_agent.ledger.journal_head import record_of
from silo_agent.ledger.ledger import Ledger, read_account

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORIGIN = "fed/ledger/silo-1/cardio"
KEY = SigningKey.generate()
EVENT = DpEvent(sample_rate=1.0, noise_multiplier=50.0, steps=1)
OWN = EVENT.model_copy(update={"noise_multiplier": 25.0})
DELTA = 1e-6
JOBS = {"a": 1, "b": 7, "c": 64, "d": 200}
LOOSE = FallbackCaps(round=10.0, job=10.0, lifetime=10.0)
OPENING = Opening(
    dataset="cardio",
    unit="patient",
    patient_id="patient",
    epsilon=EpsilonCaps(round=3.0, job=3.0, lifetime=3.0, fallback=LOOSE),
    delta_max=1e-3,
)


class PowerCut(BaseException):
    """The process is gone: nothing may catch it."""


class FaultyOs:
    """The ``os`` of the journal, in front of a disk that keeps what was synced and may lose the rest."""

    def __init__(self, dice: random.Random, fail_at: int, *, dies: bool) -> None:
        self._dice, self._left, self._dies = dice, fail_at, dies
        self._synced: dict[str, bytes] = {}
        self._descriptors: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        descriptor = os.open(path, flags, mode)
        self._descriptors.add(descriptor)
        self._synced.setdefault(str(path), Path(path).read_bytes())
        return descriptor

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        self._descriptors.discard(descriptor)

    def write(self, descriptor: int, raw: bytes) -> int:
        self._point(lambda: os.write(descriptor, raw[: self._dice.randrange(len(raw) + 1)]))
        # Disks may take less than they are given.
        return os.write(descriptor, raw[: self._dice.randint(1, len(raw))])

    def pwrite(self, descriptor: int, raw: bytes, offset: int) -> int:
        self._point(lambda: os.pwrite(descriptor, raw, offset) if self._dice.random() < 0.5 else None)
        return os.pwrite(descriptor, raw, offset)

    def ftruncate(self, descriptor: int, length: int) -> None:
        self._point(lambda: None)
        os.ftruncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        self._point(lambda: None)
        path = self._path(descriptor)
        self._synced[path] = Path(path).read_bytes()

    def _point(self, half_done: Callable[[], Any]) -> None:
        self._left -= 1
        if self._left == 0:
            half_done()
            if self._dies:
                raise PowerCut
            raise OSError(28, "No space left on device")

    @staticmethod
    def _path(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def crash(self, *, power: bool) -> None:
        """End the process, and with ``power`` also lose what a disk may lose."""
        for descriptor in tuple(self._descriptors):
            self.close(descriptor)
        for path, synced in self._synced.items() if power else ():
            now = Path(path).read_bytes()
            if path.endswith(".head"):
                kept = self._dice.choice((synced, now))
            elif now.startswith(synced):
                kept = now[: self._dice.randint(len(synced), len(now))]
            else:
                kept = self._dice.choice((synced, now))
            Path(path).write_bytes(kept)


@dataclass
class Oracle:
    """What the ledger has confirmed, counted without it."""

    reserved: dict[str, list[range]] = field(default_factory=dict)
    drawn: list[tuple[str, int]] = field(default_factory=list)
    """Rounds whose noise was drawn: right after ``begin`` returned."""
    offered: dict[str, int] = field(default_factory=dict)
    """Each job's last round that was offered; offers go forward."""

    def rounds(self, job: str) -> int:
        return sum(len(block) for block in self.reserved.get(job, ()))

    def last(self, job: str) -> int:
        return max((number for name, number in self.drawn if name == job), default=0)


def _charge(job: str, number: int, session: int = 0) -> RoundCharge:
    return RoundCharge(
        job=JobId(f"job-{job}"),
        job_digest=Digest(job * 64),
        dataset="cardio",
        context=Context(Digest(f"{ord(job):02x}{session:02x}{number:060x}")),
        round=number,
        rounds=JOBS[job],
        event=EVENT,
        fallback=OWN,
        delta=DELTA,
        log_head=EMPTY_LOG,
    )


def _act(ledger: Ledger, oracle: Oracle, dice: random.Random) -> None:
    """One round as an agent would run it, or something that no honest agent does."""
    job = dice.choice(sorted(JOBS))
    last = oracle.last(job)
    if last and dice.random() < 0.2:
        with pytest.raises(OutOfOrder):
            ledger.reserve(_charge(job, dice.randint(1, last), session=dice.randrange(250)), NOW)
        return
    number = max(last + 1, oracle.offered.get(job, 0)) + dice.choice((0, 0, 0, 0, 1, 4))
    if number > JOBS[job]:
        return
    oracle.offered[job] = number
    try:
        reserved = ledger.reserve(_charge(job, number), NOW)
    except BudgetExhausted:
        return
    if reserved.new:
        first, end = reserved.block
        oracle.reserved.setdefault(job, []).append(range(first, end + 1))
        assert end - first < block_size(1, JOBS[job])
    if dice.random() < 0.1:
        return  # the records could not be read
    ledger.begin(reserved, NOW)
    oracle.drawn.append((job, number))
    if dice.random() < 0.2:
        with pytest.raises(OutOfOrder):
            ledger.begin(reserved, NOW)
    if ledger.is_open(reserved.context):
        ledger.settle(reserved.context, NOW)


def _check(path: Path, oracle: Oracle) -> None:
    """The reopened account is the oracle's, plus at most the one entry that was being written."""
    account, entries = read_account(path, ORIGIN, KEY.verify_key)
    found = {job: account.jobs.get(Digest(job * 64)) for job in JOBS}
    ahead = 0
    for job, charge in found.items():
        rounds = 0 if charge is None else charge.rounds
        begun = sorted(number for digest, number in account.begun.values() if digest == Digest(job * 64))
        drawn = [number for name, number in oracle.drawn if name == job]
        assert rounds >= oracle.rounds(job), "a confirmed reservation is gone"
        assert set(drawn) <= set(begun), "noise was drawn for a round that the ledger does not know"
        assert len(set(drawn)) == len(drawn), "the noise of a round was drawn twice"
        ahead += (rounds > oracle.rounds(job)) + (len(begun) - len(drawn))
        blocks = [
            range(entry.body["first_round"], entry.body["last_round"] + 1)
            for entry in entries
            if entry.kind == "reserve" and entry.body["job"] == f"job-{job}"
        ]
        assert all(any(number in block for block in blocks) for number in begun), "begun and not reserved"
        assert sum(map(len, blocks)) == len({number for block in blocks for number in block}) == rounds
        if charge is not None:
            assert charge.epsilon == epsilon([EVENT] * rounds, DELTA)
            assert charge.epsilon_fallback == epsilon([OWN] * rounds, DELTA)
            assert len(begun) <= rounds
        oracle.reserved[job] = blocks
        oracle.drawn += [(job, number) for number in begun if number not in drawn]
    assert ahead <= 1


def _one_life(path: Path, oracle: Oracle, dice: random.Random) -> type[BaseException] | None:
    """What ended it before its time."""
    ledger = None
    try:
        ledger = Ledger(path, ORIGIN, KEY, OPENING, NOW)
        for _ in range(dice.randint(1, 30)):
            _act(ledger, oracle, dice)
    except (PowerCut, OSError) as error:
        return PowerCut if isinstance(error, PowerCut) else OSError
    except SealsumError as error:
        if type(error) is not SealsumError:  # a refusal, which no fault explains
            raise
        if ledger is not None:
            with pytest.raises(SealsumError, match="earlier write failed"):
                ledger.reserve(_charge("d", JOBS["d"]), NOW)
        return SealsumError
    return None


def _live(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Lives of one silo, each ended by a failing call; returns how many ended so."""
    dice, oracle, crashes = random.Random(seed), Oracle(), 0
    for _ in range(6):
        dies = dice.random() < 0.7
        faulty = FaultyOs(dice, fail_at=dice.randint(1, 60), dies=dies)
        with monkeypatch.context() as patched:
            patched.setattr(journal_module, "os", faulty)
            patched.setattr(journal_module, "sync_directory", lambda _path: None)  # it takes the time
            failed = _one_life(path, oracle, dice)
            assert failed in ({None, PowerCut} if dies else {None, SealsumError, OSError})
            crashes += failed is not None
            faulty.crash(power=dies)
            patched.setattr(journal_module, "os", FaultyOs(dice, fail_at=-1, dies=False))
            with Ledger(path, ORIGIN, KEY, OPENING, NOW):
                pass
        _check(path, oracle)
    return crashes


def test_a_ledger_survives_a_crash_at_any_of_its_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = sum(_live(tmp_path / f"{seed}" / "cardio.jsonl", seed, monkeypatch) for seed in range(8))
    assert crashes > 8


@pytest.mark.slow
def test_a_ledger_survives_hundreds_of_schedules_of_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = range(100, 400)
    crashes = sum(_live(tmp_path / f"{seed}" / "cardio.jsonl", seed, monkeypatch) for seed in seeds)
    assert crashes > 2 * len(seeds)


# --- kill -9 ---


def _spend_until_killed(path: Path, drawn: Path, first: int) -> None:
    with drawn.open("a") as noise, Ledger(path, ORIGIN, KEY, OPENING, NOW) as ledger:
        for number in range(first, JOBS["d"] + 1):
            reserved = ledger.reserve(_charge("d", number), NOW)
            ledger.begin(reserved, NOW)
            noise.write(f"{number}\n")
            noise.flush()
            if ledger.is_open(reserved.context):
                ledger.settle(reserved.context, NOW)


@pytest.fixture
def children() -> Iterator[list[int]]:
    alive: list[int] = []
    yield alive
    for child in alive:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_a_ledger_that_knows_what_it_drew(
    tmp_path: Path, children: list[int]
) -> None:
    path, drawn = tmp_path / "ledger" / "cardio.jsonl", tmp_path / "drawn"
    dice, first = random.SystemRandom(), 1
    drawn.touch()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            try:
                _spend_until_killed(path, drawn, first)
            finally:
                os._exit(0)
        children.append(child)
        before = drawn.stat().st_size
        while drawn.stat().st_size < before + dice.randint(1, 12) and os.waitpid(child, os.WNOHANG) == (0, 0):
            continue
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        children.remove(child)
        with Ledger(path, ORIGIN, KEY, OPENING, NOW) as ledger:
            first = ledger.last_round(Digest("d" * 64)) + 1
        numbers = [int(line) for line in drawn.read_text().splitlines()]
        account, _ = read_account(path, ORIGIN, KEY.verify_key)
        begun = {number for _, number in account.begun.values()}
        assert len(set(numbers)) == len(numbers), "no round's noise is drawn twice"
        assert set(numbers) <= begun
        assert len(begun) <= account.rounds
        if first > JOBS["d"] - 20:
            break


# --- what is seen elsewhere ---


def test_a_ledger_and_its_head_restored_together_open_here_and_are_caught_by_the_auditor(
    tmp_path: Path,
) -> None:
    """No file of the silo's own can tell that all of them are old: manifests that others hold name the head.

    ``tests/attacks/test_auditor_colluders.py`` plays the auditor's side.
    """
    path = tmp_path / "ledger" / "cardio.jsonl"
    with Ledger(path, ORIGIN, KEY, OPENING, NOW) as ledger:
        ledger.begin(ledger.reserve(_charge("b", 1), NOW), NOW)
    backup = {file: file.read_bytes() for file in (path, path.with_suffix(".head"))}
    with Ledger(path, ORIGIN, KEY, OPENING, NOW) as ledger:
        ledger.begin(ledger.reserve(_charge("b", 2), NOW), NOW)
        witnessed = ledger.head
    for file, raw in backup.items():
        file.write_bytes(raw)
    with Ledger(path, ORIGIN, KEY, OPENING, NOW) as ledger:
        assert ledger.head.seq < witnessed.seq
    path.write_bytes(backup[path])
    path.with_suffix(".head").write_bytes(record_of(witnessed))
    with pytest.raises(LedgerDamaged, match="truncated ledger"):
        Ledger(path, ORIGIN, KEY, OPENING, NOW)
