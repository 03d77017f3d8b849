"""Two jobs race for one budget: threads of one agent, and agents of one state directory, never overspend."""

from __future__ import annotations

import multiprocessing
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import BudgetExhausted, ConfigurationError, OutOfOrder
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, JobId
from privacy.transparency.checkpoint import EMPTY_LOG
from silo_agent.ledger.admission import RoundCharge
from silo_agent.ledger.entries import EpsilonCaps, Opening
from silo_agent.ledger.ledger import Ledger, read_account
from silo_agent.ledger.lifetime import lifetime_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORIGIN = "fed/ledger/silo-1/cardio"
KEY = SigningKey.generate()
EVENT = DpEvent(sample_rate=1.0, noise_multiplier=8.0, steps=1)
DELTA = 1e-6
CAP = 2.5 * epsilon([EVENT], DELTA)
"""A round of two jobs fits, one of a third does not."""
OPENING = Opening(
    dataset="cardio",
    unit="patient",
    patient_id="patient",
    epsilon=EpsilonCaps(round=CAP, job=CAP, lifetime=CAP),
    delta_max=1e-3,
)


def _charge(job: int, number: int) -> RoundCharge:
    return RoundCharge(
        job=JobId(f"job-{job}"),
        job_digest=Digest(f"{job:064x}"),
        dataset="cardio",
        context=Context(Digest(f"{job:032x}{number:032x}")),
        round=number,
        rounds=64,
        event=EVENT,
        fallback=None,
        delta=DELTA,
        log_head=EMPTY_LOG,
    )


def _spend(ledger: Ledger, job: int, rounds: int, drawn: list[tuple[int, int]]) -> None:
    for number in range(1, rounds + 1):
        try:
            reserved = ledger.reserve(_charge(job, number), NOW)
            ledger.begin(reserved, NOW)
        except (BudgetExhausted, OutOfOrder):
            continue
        drawn.append((job, number))
        with suppress(OutOfOrder):  # another thread's reservation has settled the block
            ledger.settle(reserved.context, NOW)


def _check(path: Path, drawn: list[tuple[int, int]]) -> None:
    account, _ = read_account(path, ORIGIN, KEY.verify_key)
    assert lifetime_of(OPENING, account.jobs.values()).epsilon <= CAP
    assert len(set(drawn)) == len(drawn), "a round's noise is drawn once"
    begun = {(int(digest, 16), number) for digest, number in account.begun.values()}
    assert set(drawn) == begun
    for job in {job for job, _ in drawn}:
        spent = account.jobs[Digest(f"{job:064x}")]
        assert epsilon([EVENT] * len([one for one in drawn if one[0] == job]), DELTA) <= spent.epsilon


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=2, max_size=4))
def test_threads_that_race_for_one_budget_never_pass_its_cap(runs: list[tuple[int, int]]) -> None:
    """Threads may run the same job too: then each of its rounds begins in one of them at most."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cardio.jsonl"
        drawn: list[tuple[int, int]] = []
        start = threading.Barrier(len(runs))
        with Ledger(path, ORIGIN, KEY, OPENING, NOW) as ledger:

            def run(job: int, rounds: int) -> None:
                start.wait()
                _spend(ledger, job, rounds, drawn)

            threads = [threading.Thread(target=run, args=one) for one in runs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        _check(path, drawn)


def _process(path: Path, job: int, key: bytes, turns: int, told: multiprocessing.Queue[object]) -> None:
    refused = 0
    drawn: list[tuple[int, int]] = []
    for number in range(1, turns + 1):
        try:
            with Ledger(path, ORIGIN, SigningKey.from_pem(key), OPENING, NOW) as ledger:
                reserved = ledger.reserve(_charge(job, number), NOW)
                ledger.begin(reserved, NOW)
                drawn.append((job, number))
        except ConfigurationError:  # the other process has it
            refused += 1
        except (BudgetExhausted, OutOfOrder):
            continue
    told.put((drawn, refused))


@pytest.mark.slow
def test_processes_that_race_for_one_ledger_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "cardio.jsonl"
    spawn = multiprocessing.get_context("fork")
    told = spawn.Queue()
    key = KEY.to_pem()
    racers = [spawn.Process(target=_process, args=(path, job, key, 12, told)) for job in (1, 2, 2)]
    for racer in racers:
        racer.start()
    answers = [told.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(60)
    _check(path, [one for drawn, _ in answers for one in drawn])
