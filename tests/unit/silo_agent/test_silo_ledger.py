"""The ledger's claims: no crash, copy or second process spends unseen, and no cap is passed."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from privacy.canonical import canonical_bytes
from privacy.chain import Entry, parse_entry
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import (
    BudgetExhausted,
    ConfigurationError,
    Conflict,
    LedgerDamaged,
    OutOfOrder,
    SealsumError,
)
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, JobId
from privacy.transparency.checkpoint import EMPTY_LOG
from silo_agent.ledger import journal as journal_module
from silo_agent.ledger.admission import CapReached, RoundCharge
from silo_agent.ledger.entries import EpsilonCaps, FallbackCaps, Opening
from silo_agent.ledger.journal import Journal, read_journal
from silo_agent.ledger.ledger import Ledger, Reserved, read_account
from silo_agent.ledger.lifetime import lifetime_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORIGIN = "fed/ledger/silo-1/cardio"
KEY = SigningKey.generate()
EVENT = DpEvent(sample_rate=0.1, noise_multiplier=4.0, steps=2)
DELTA = 1e-5
ROUND = epsilon([EVENT], DELTA)


def _opening(
    round_: float = 10.0,
    job: float = 10.0,
    lifetime: float = 10.0,
    delta_max: float = 1e-4,
    fallback: FallbackCaps | None = None,
) -> Opening:
    return Opening(
        dataset="cardio",
        unit="patient",
        patient_id="patient",
        epsilon=EpsilonCaps(round=round_, job=job, lifetime=lifetime, fallback=fallback),
        delta_max=delta_max,
    )


def _charge(
    number: int,
    job: str = "a",
    event: DpEvent = EVENT,
    delta: float = DELTA,
    rounds: int = 10,
    fallback: DpEvent | None = None,
) -> RoundCharge:
    return RoundCharge(
        job=JobId(f"job-{job}"),
        job_digest=Digest(job * 64),
        dataset="cardio",
        context=Context(Digest(f"{ord(job):02x}" + f"{number:062x}")),
        round=number,
        rounds=rounds,
        event=event,
        fallback=fallback,
        delta=delta,
        log_head=EMPTY_LOG,
    )


def _open(path: Path, opening: Opening | None = None) -> Ledger:
    return Ledger(path, ORIGIN, KEY, opening or _opening(), NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "cardio.jsonl"


def _train(ledger: Ledger, number: int) -> Reserved:
    reserved = ledger.reserve(_charge(number), NOW)
    ledger.begin(reserved, NOW)
    ledger.settle(reserved.context, NOW)
    return reserved


def _holds(ledger: Ledger, number: int, job: str = "a") -> bool:
    return ledger.covers(_charge(number, job).job_digest, number)


# --- crashes ---


def _last_entry_cuts(raw: bytes) -> Iterator[int]:
    """Every length at which the last line is torn, and the one at which it is gone."""
    yield from range(raw[:-1].rfind(b"\n") + 1, len(raw))


@pytest.mark.slow
def test_a_torn_last_entry_is_dropped_while_its_head_was_not_written(path: Path) -> None:
    with _open(path) as ledger:
        _train(ledger, 1)
        head_before = path.with_suffix(".head").read_bytes()
        ledger.reserve(_charge(2), NOW)
    whole = path.read_bytes()
    for length in _last_entry_cuts(whole):
        path.write_bytes(whole[:length])
        path.with_suffix(".head").write_bytes(head_before)
        with _open(path) as ledger:
            assert not _holds(ledger, 2)
            assert ledger.last_round(_charge(1).job_digest) == 1
        assert path.read_bytes().endswith(b"\n")


@pytest.mark.slow
def test_a_cut_below_the_witnessed_head_is_a_truncated_ledger(path: Path) -> None:
    with _open(path) as ledger:
        _train(ledger, 1)
    whole = path.read_bytes()
    for length in _last_entry_cuts(whole):
        path.write_bytes(whole[:length])
        with pytest.raises(LedgerDamaged, match="truncated"):
            _open(path)


def test_an_entry_whose_head_was_not_written_stays_charged(path: Path) -> None:
    with _open(path) as ledger:
        head_before = path.with_suffix(".head").read_bytes()
        ledger.reserve(_charge(1), NOW)
    path.with_suffix(".head").write_bytes(head_before)
    with _open(path) as ledger:
        assert _holds(ledger, 1)


def test_no_flipped_byte_of_a_journal_opens(path: Path) -> None:
    with _open(path) as ledger:
        _train(ledger, 1)
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n")
    for position in [*range(0, last, 97), *range(last, len(whole) - 1, 41)]:
        flipped = bytearray(whole)
        flipped[position] ^= 0x01
        path.write_bytes(bytes(flipped))
        with pytest.raises(LedgerDamaged):
            _open(path)


def test_an_older_copy_of_the_journal_is_refused(path: Path, tmp_path: Path) -> None:
    with _open(path) as ledger:
        ledger.reserve(_charge(1), NOW)
    shutil.copy(path, tmp_path / "backup")
    with _open(path) as ledger:
        ledger.reserve(_charge(2), NOW)
    shutil.copy(tmp_path / "backup", path)
    with pytest.raises(LedgerDamaged, match="truncated ledger"):
        _open(path)
    with pytest.raises(LedgerDamaged, match="truncated ledger"):
        read_journal(path, ORIGIN, KEY.verify_key)


def test_a_removed_head_file_is_missed(path: Path) -> None:
    with _open(path) as ledger:
        ledger.reserve(_charge(1), NOW)
    path.with_suffix(".head").unlink()
    with pytest.raises(LedgerDamaged, match="expected it beside"):
        _open(path)


def test_another_keys_ledger_is_refused(path: Path) -> None:
    with _open(path):
        pass
    with pytest.raises(LedgerDamaged, match="not signed by its owner"):
        Ledger(path, ORIGIN, SigningKey.generate(), _opening(), NOW)


def test_a_failed_fsync_closes_the_journal_to_further_entries(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(path, ORIGIN, KEY) as journal:
        monkeypatch.setattr(journal_module.os, "fsync", _no_space)
        with pytest.raises(SealsumError, match="No space left"):
            journal.append("open", {}, NOW)
        monkeypatch.undo()
        with pytest.raises(SealsumError, match="earlier write failed"):
            journal.append("open", {}, NOW)


def _no_space(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_torn_first_entry_is_dropped(path: Path) -> None:
    with _open(path):
        pass
    path.write_bytes(path.read_bytes()[:100])
    path.with_suffix(".head").unlink()
    with _open(path) as ledger:
        assert ledger.head.seq == 0


# --- two processes ---


@pytest.mark.slow
def test_a_second_process_cannot_open_the_same_ledger(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, release = spawn.Event(), spawn.Event()
    process = spawn.Process(target=_hold, args=(path, KEY.to_pem(), held, release))
    process.start()
    try:
        assert held.wait(60)
        with pytest.raises(ConfigurationError, match="another process has this ledger open"):
            _open(path)
        assert read_journal(path, ORIGIN, KEY.verify_key), "reading beside a running agent is fine"
    finally:
        release.set()
        process.join()
    with _open(path):
        pass


def _hold(path: Path, pem: bytes, held: Event, release: Event) -> None:
    with Ledger(path, ORIGIN, SigningKey.from_pem(pem), _opening(), NOW):
        held.set()
        release.wait(30)


# --- caps ---


@pytest.mark.parametrize(
    ("opening", "cap"),
    [
        (_opening(round_=ROUND * 0.99), "epsilon.round"),
        (_opening(round_=ROUND, job=ROUND * 0.99), "epsilon.job"),
        (_opening(round_=ROUND, job=ROUND, lifetime=ROUND * 0.99), "epsilon.lifetime"),
        (_opening(delta_max=DELTA * 0.99), "delta_max"),
    ],
)
def test_a_reservation_beyond_a_cap_is_refused_by_the_caps_name_and_charges_nothing(
    path: Path, opening: Opening, cap: str
) -> None:
    with _open(path, opening) as ledger:
        with pytest.raises(CapReached, match=cap) as caught:
            ledger.reserve(_charge(1), NOW)
        assert caught.value.cap == cap
        assert isinstance(caught.value, BudgetExhausted)
        assert not _holds(ledger, 1)
    assert len(read_journal(path, ORIGIN, KEY.verify_key)) == 1


def test_a_reservation_exactly_at_its_caps_passes(path: Path) -> None:
    exact = _opening(round_=ROUND, job=ROUND, lifetime=ROUND, delta_max=DELTA)
    with _open(path, exact) as ledger:
        assert ledger.reserve(_charge(1), NOW).quote.epsilon.lifetime == ROUND
        assert ledger.is_spent()


def test_rounds_of_a_job_compose_tighter_than_they_add(path: Path) -> None:
    with _open(path) as ledger:
        for number in range(1, 5):
            reserved = ledger.reserve(_charge(number), NOW)
        assert reserved.quote.epsilon.job == epsilon([EVENT] * 4, DELTA)
        assert reserved.quote.epsilon.job < 4 * ROUND


def test_jobs_add_up_in_epsilon_and_delta(path: Path) -> None:
    with _open(path) as ledger:
        ledger.reserve(_charge(1, "a"), NOW)
        assert ledger.reserve(_charge(1, "b"), NOW).quote.epsilon.lifetime == pytest.approx(2 * ROUND)
    account, _ = read_account(path, ORIGIN, KEY.verify_key)
    assert lifetime_of(_opening(), account.jobs.values()).delta == pytest.approx(2 * DELTA)


def test_unsettled_rounds_stay_charged_across_a_restart(path: Path) -> None:
    tight = _opening(round_=ROUND, job=ROUND * 1.5, lifetime=ROUND * 1.5)
    with _open(path, tight) as ledger:
        ledger.reserve(_charge(1, "a"), NOW)
    with _open(path, tight) as ledger, pytest.raises(CapReached, match=r"epsilon\.lifetime"):
        ledger.reserve(_charge(1, "b"), NOW)


def test_two_jobs_at_the_cap_exactly_one_passes(path: Path) -> None:
    with _open(path, _opening(lifetime=ROUND * 1.9)) as ledger:
        ledger.reserve(_charge(1, "a"), NOW)
        with pytest.raises(CapReached, match=r"epsilon\.lifetime"):
            ledger.reserve(_charge(1, "b"), NOW)


# --- order ---


def test_a_round_begins_once_and_no_round_before_it(path: Path) -> None:
    with _open(path) as ledger:
        _train(ledger, 2)
        for number in (1, 2):
            with pytest.raises(OutOfOrder, match=r"after 2 .* trained once"):
                ledger.reserve(_charge(number), NOW)
    with _open(path) as ledger, pytest.raises(OutOfOrder, match=r"after 2 .* trained once"):
        ledger.reserve(_charge(2), NOW)


def test_a_round_that_a_crash_left_reserved_begins_without_another_charge(path: Path) -> None:
    with _open(path) as ledger:
        assert ledger.reserve(_charge(1), NOW).new
    with _open(path) as ledger:
        again = ledger.reserve(_charge(1), NOW)
        assert not again.new
        assert again.quote.epsilon.job == ROUND
        ledger.begin(again, NOW)


@pytest.mark.parametrize("change", [{"sample_rate": 0.2}, {"noise_multiplier": 5.0}, {"steps": 1}])
def test_a_jobs_mechanism_is_fixed_by_its_first_round(path: Path, change: dict[str, float]) -> None:
    with _open(path) as ledger:
        ledger.reserve(_charge(1), NOW)
        with pytest.raises(Conflict, match="fixed by its first round"):
            ledger.reserve(_charge(2, event=EVENT.model_copy(update=change)), NOW)
        with pytest.raises(Conflict, match="delta"):
            ledger.reserve(_charge(2, delta=1e-6), NOW)


def test_begin_and_settle_follow_each_other_once(path: Path) -> None:
    with _open(path) as ledger:
        reserved = ledger.reserve(_charge(1), NOW)
        with pytest.raises(OutOfOrder, match="does not end a block"):
            ledger.settle(reserved.context, NOW)
        ledger.begin(reserved, NOW)
        with pytest.raises(OutOfOrder, match="waiting to begin"):
            ledger.begin(reserved, NOW)
        ledger.settle(reserved.context, NOW)
        with pytest.raises(OutOfOrder, match="does not end a block"):
            ledger.settle(reserved.context, NOW)


def test_changed_caps_are_recorded_and_another_unit_is_refused(path: Path) -> None:
    with _open(path):
        pass
    with _open(path, _opening(lifetime=11.0)):
        pass
    kinds = [entry.kind for entry in read_journal(path, ORIGIN, KEY.verify_key)]
    assert kinds == ["open", "open"]
    with pytest.raises(Conflict, match="privacy unit"):
        _open(path, _opening().model_copy(update={"unit": "record"}))


def test_a_signed_ledger_that_breaks_the_rules_is_damaged(path: Path) -> None:
    with Journal(path, ORIGIN, KEY) as journal:
        journal.append("reserve", next(_charge(1).blocks()).model_dump(mode="json"), NOW)
    with pytest.raises(LedgerDamaged, match="start with an open entry"):
        _open(path)


def test_entries_are_what_the_architecture_says(path: Path) -> None:
    with _open(path) as ledger:
        _train(ledger, 1)
    lines = [parse_entry(line) for line in path.read_bytes().splitlines()]
    bodies: dict[str, Entry] = {entry.kind: entry for entry in lines}
    assert set(bodies["open"].body) == {
        "format", "dataset", "unit", "adjacency", "patient_id",
        "epsilon", "delta_max", "period_days", "filter",
    }  # fmt: skip
    assert set(bodies["open"].body["epsilon"]) == {"round", "job", "lifetime", "period", "fallback"}
    assert set(bodies["reserve"].body) == {
        "job", "job_digest", "dataset", "first_round", "last_round", "event", "fallback", "delta", "log_head",
    }  # fmt: skip
    assert set(bodies["begin"].body) == {"job_digest", "context", "round", "log_head"}
    settled = {"job_digest": "a" * 64, "first_round": 1, "last_round": 1, "begun": 1, "steps": 2}
    assert bodies["settle"].body == settled
    head = path.with_suffix(".head").read_bytes()
    assert canonical_bytes(lines[-1].head) == head.rstrip()
    assert len(head) == 512, "one sector, so that no disk keeps half of it"
