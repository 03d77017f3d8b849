"""Blocks of rounds: one reservation pays for many, what never began stays charged, and both ε are capped."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from privacy.canonical import canonical_bytes
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import ConfigurationError, LedgerDamaged, OutOfOrder
from silo_agent.ledger.admission import BLOCKS, CapReached, block_size
from silo_agent.ledger.entries import FallbackCaps, Reserve
from silo_agent.ledger.journal import Journal, read_journal
from silo_agent.ledger.ledger import Ledger, read_account
from silo_agent.ledger.lifetime import lifetime_of
from tests.unit.silo_agent.test_silo_ledger import (
    DELTA,
    EVENT,
    KEY,
    NOW,
    ORIGIN,
    _charge,
    _open,
    _opening,
)

LONG = 64
OWN = EVENT.model_copy(update={"noise_multiplier": EVENT.noise_multiplier / 2})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "cardio.jsonl"


def _kinds(path: Path) -> list[str]:
    return [entry.kind for entry in read_journal(path, ORIGIN, KEY.verify_key)]


def _run(ledger: Ledger, number: int, rounds: int = LONG) -> None:
    reserved = ledger.reserve(_charge(number, rounds=rounds), NOW)
    ledger.begin(reserved, NOW)
    if ledger.is_open(reserved.context):
        ledger.settle(reserved.context, NOW)


def _cost(rounds: int, event: DpEvent = EVENT) -> float:
    return epsilon([event] * rounds, DELTA)


@pytest.mark.parametrize(("rounds", "size"), [(1, 1), (16, 1), (31, 1), (32, 2), (100, 6), (1000, 62)])
def test_at_most_a_sixteenth_of_a_job_is_reserved_at_once(rounds: int, size: int) -> None:
    assert block_size(1, rounds) == size
    assert size == 1 or size <= rounds / BLOCKS
    assert block_size(rounds, rounds) == 1, "no round behind the job's last"


def test_a_job_is_reserved_in_blocks_and_begins_each_round(path: Path) -> None:
    with _open(path) as ledger:
        for number in range(1, LONG + 1):
            _run(ledger, number)
    assert _kinds(path) == ["open", *["reserve", *["begin"] * 4, "settle"] * 16]
    account, _ = read_account(path, ORIGIN, KEY.verify_key)
    [job] = account.jobs.values()
    assert (job.rounds, job.begun, job.steps) == (LONG, LONG, LONG * EVENT.steps)
    assert job.epsilon == _cost(LONG)


def test_rounds_of_a_block_that_never_began_stay_charged(path: Path) -> None:
    with _open(path) as ledger:
        _run(ledger, 1)
        _run(ledger, 7)  # rounds 2 to 6 were missed: the rest of the first block, and two of no block
    account, entries = read_account(path, ORIGIN, KEY.verify_key)
    [job] = account.jobs.values()
    assert (job.rounds, job.begun) == (8, 2)
    assert [e.body["begun"] for e in entries if e.kind == "settle"] == [1]
    assert job.epsilon == _cost(8)


def test_no_round_outside_the_newest_block_begins(path: Path) -> None:
    with _open(path) as ledger:
        early = ledger.reserve(_charge(1, rounds=LONG), NOW)
        late = ledger.reserve(_charge(5, rounds=LONG), NOW)
        with pytest.raises(OutOfOrder, match="not waiting to begin"):
            ledger.begin(early, NOW)
        ledger.begin(late, NOW)
        with pytest.raises(OutOfOrder, match="not waiting to begin"):
            ledger.begin(late, NOW)
        with pytest.raises(OutOfOrder, match="after 5"):
            ledger.reserve(_charge(3, rounds=LONG), NOW)


def test_a_round_in_another_plan_does_not_begin_a_second_time(path: Path) -> None:
    """An aborted round that is offered again would draw noise twice under one charge."""
    with _open(path) as ledger:
        _run(ledger, 2)
        other = _charge(2, "b", rounds=LONG)
        again = _charge(2, rounds=LONG)
        assert other.context != again.context
        with pytest.raises(OutOfOrder, match="trained once"):
            ledger.reserve(type(again)(**{**vars(again), "context": other.context}), NOW)


def test_where_a_block_would_pass_a_cap_a_smaller_one_is_reserved(path: Path) -> None:
    with _open(path, _opening(job=_cost(6))) as ledger:
        sizes = []
        for number in range(1, 7):
            reserved = ledger.reserve(_charge(number, rounds=LONG), NOW)
            if reserved.new:
                first, last = reserved.block
                sizes.append(last - first + 1)
            ledger.begin(reserved, NOW)
        assert sizes == [4, 2]
        with pytest.raises(CapReached, match=r"epsilon\.job"):
            ledger.reserve(_charge(7, rounds=LONG), NOW)


def test_a_cap_lowered_by_the_owner_ends_a_block_that_is_paid_for(path: Path) -> None:
    with _open(path) as ledger:
        _run(ledger, 1)
    with _open(path, _opening(lifetime=_cost(3))) as ledger, pytest.raises(CapReached, match="lifetime"):
        ledger.reserve(_charge(2, rounds=LONG), NOW)


# --- the fallback ---


def test_both_epsilons_are_counted(path: Path) -> None:
    loose = FallbackCaps(round=50, job=50, lifetime=50)
    with _open(path, _opening(fallback=loose)) as ledger:
        for number in (1, 2):
            quote = ledger.reserve(_charge(number, fallback=OWN), NOW).quote
        assert (quote.epsilon.job, quote.fallback.job) == (_cost(2), _cost(2, OWN))
        local = ledger.reserve(_charge(1, "b"), NOW).quote
        assert local.fallback.lifetime == pytest.approx(_cost(2, OWN) + _cost(1)), "its noise is all its own"
    account, _ = read_account(path, ORIGIN, KEY.verify_key)
    life = lifetime_of(_opening(fallback=loose), account.jobs.values())
    assert life.fallback == pytest.approx(_cost(2, OWN) + _cost(1))


@pytest.mark.parametrize(
    ("caps", "cap"),
    [
        (FallbackCaps(round=_cost(1, OWN) * 0.99, job=50, lifetime=50), "epsilon_fallback.round"),
        (FallbackCaps(round=50, job=_cost(2, OWN) * 0.99, lifetime=50), "epsilon_fallback.job"),
        (FallbackCaps(round=50, job=50, lifetime=_cost(2, OWN) * 0.99), "epsilon_fallback.lifetime"),
    ],
)
def test_a_reservation_beyond_a_cap_on_the_fallback_is_refused(
    path: Path, caps: FallbackCaps, cap: str
) -> None:
    fits = 0 if cap.endswith("round") else 1
    with _open(path, _opening(fallback=caps)) as ledger:
        for number in range(1, fits + 1):
            ledger.reserve(_charge(number, fallback=OWN), NOW)
        with pytest.raises(CapReached) as caught:
            ledger.reserve(_charge(fits + 1, fallback=OWN), NOW)
        assert caught.value.cap == cap


def test_without_caps_of_its_own_the_fallback_has_those_of_epsilon(path: Path) -> None:
    tight = _opening(round_=_cost(1, OWN) * 0.99)
    with _open(path, tight) as ledger:
        with pytest.raises(CapReached, match=r"epsilon_fallback\.round"):
            ledger.reserve(_charge(1, fallback=OWN), NOW)
        ledger.reserve(_charge(1), NOW)


@pytest.mark.parametrize(
    "change", [{"noise_multiplier": EVENT.noise_multiplier * 2}, {"steps": 1}, {"sample_rate": 0.05}]
)
def test_a_fallback_better_than_the_event_is_not_reserved(change: dict[str, float]) -> None:
    body = next(_charge(1).blocks()).model_dump()
    with pytest.raises(ValueError, match="fallback: expected the same steps"):
        Reserve.model_validate({**body, "fallback": EVENT.model_copy(update=change)})


# --- what a damaged or foreign file says ---


def _signed(path: Path, *entries: tuple[str, dict[str, object]]) -> None:
    with Journal(path, ORIGIN, KEY) as journal:
        journal.append("open", _opening().model_dump(mode="json"), NOW)
        for kind, body in entries:
            journal.append(kind, body, NOW)


BLOCK = next(_charge(1, rounds=LONG).blocks()).model_dump(mode="json")
BEGIN = {"job_digest": "a" * 64, "context": "c" * 64, "round": 2, "log_head": BLOCK["log_head"]}
SETTLE = {"job_digest": "a" * 64, "first_round": 1, "last_round": 4, "begun": 1, "steps": 2}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("reserve", BLOCK), ("reserve", BLOCK)], "reserved twice"),
        ([("reserve", BLOCK), ("reserve", {**BLOCK, "first_round": 3, "last_round": 6})], "reserved twice"),
        ([("reserve", {**BLOCK, "last_round": 0})], "not a reserve"),
        ([("reserve", BLOCK), ("reserve", {**BLOCK, "first_round": 5, "last_round": 8, "delta": "1e-06"})],
         "mechanism changed"),
        ([("begin", BEGIN)], "out of order"),
        ([("reserve", BLOCK), ("begin", {**BEGIN, "round": 5})], "out of order"),
        ([("reserve", BLOCK), ("begin", BEGIN), ("begin", {**BEGIN, "context": "d" * 64})], "out of order"),
        ([("reserve", BLOCK), ("begin", BEGIN), ("begin", {**BEGIN, "round": 3})], "out of order"),
        ([("reserve", BLOCK), ("settle", SETTLE)], "miscounts"),
        ([("reserve", BLOCK), ("begin", BEGIN), ("settle", SETTLE), ("settle", SETTLE)], "out of order"),
        ([("reserve", BLOCK), ("begin", BEGIN), ("settle", SETTLE),
          ("begin", {**BEGIN, "context": "d" * 64, "round": 3})], "out of order"),
    ],
)  # fmt: skip
def test_signed_entries_that_break_the_rules_are_damage(
    path: Path, entries: list[tuple[str, dict[str, object]]], message: str
) -> None:
    _signed(path, *entries)
    with pytest.raises(LedgerDamaged, match=message):
        _open(path)


def test_a_ledger_of_an_earlier_release_is_refused_with_what_to_do(path: Path) -> None:
    opening = _opening().model_dump(mode="json")
    del opening["format"]
    with Journal(path, ORIGIN, KEY) as journal:
        journal.append("open", opening, NOW)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"expected format 2, got 1.*lower the dataset's budget"):
        _open(path)
    assert path.read_bytes() == before, "nothing is written to what is not understood"


def test_foresight_changes_nothing_and_computes_only_where_a_block_is_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(path) as ledger:
        _run(ledger, 1)
        before = path.read_bytes()
        asked: list[int] = []
        monkeypatch.setattr("silo_agent.ledger.ledger.quote", lambda *arguments: asked.append(arguments[4]))
        for number in (2, 3, 4, 5):
            ledger.foresee(_charge(1).job_digest, number, LONG, NOW)
        assert asked == [4]
        assert path.read_bytes() == before


@pytest.mark.slow
def test_a_thousand_rounds_take_a_begin_each_and_sixteen_blocks_and_a_rest(path: Path) -> None:
    event = DpEvent(sample_rate=1.0, noise_multiplier=100.0, steps=1)
    with _open(path) as ledger:
        for number in range(1, 1001):
            reserved = ledger.reserve(_charge(number, rounds=1000, event=event), NOW)
            ledger.begin(reserved, NOW)
    kinds = _kinds(path)
    assert kinds.count("begin") == 1000
    assert kinds.count("reserve") == math.ceil(1000 / 62)
    assert max(len(canonical_bytes(entry)) for entry in read_journal(path, ORIGIN, KEY.verify_key)) < 1200
