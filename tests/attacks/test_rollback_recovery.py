"""The way back from a ledger that lacks entries, as commands: restored from a copy, or written off."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sealsum_verify.messages import read_chain

from privacy.canonical import canonical_bytes
from privacy.chain import EMPTY, Entry, Head, next_entry, parse_entry, verify_entries, written_off
from privacy.errors import LedgerDamaged
from privacy.identity import SigningKey
from privacy.ids import PartyId
from sealsum.cli import cli
from silo_agent.agent import EXIT_BUDGET, EXIT_DONE
from silo_agent.ledger import journal as journal_module
from silo_agent.ledger.journal import Journal
from silo_agent.ledger.ledger import account_of
from silo_agent.ledger.recovery import restore, unseen, write_off
from silo_agent.ledger.witnessed import Witness
from tests.attacks.test_rollback_states import run
from tests.attacks.test_silo_ledger_crash import KEY, NOW, ORIGIN, FaultyOs, PowerCut
from tests.unit.silo_agent.loopback import SILO, Loopback, patients

LEDGER = f"testfed/ledger/{SILO}/cardio"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


@pytest.fixture
def rolled_back(servers: Loopback, tmp_path: Path) -> Path:
    """Two rounds ran; the state directory is from before the second. ``whole.jsonl`` has all of it."""
    config = servers.silo_files(tmp_path, patients(80))
    job = servers.job(rounds=2)
    inner = servers.result_of
    servers.result_of = lambda plan: inner(plan, "finished")
    servers.ended = True
    servers.open_round(job, 1)
    assert run(config) == EXIT_DONE
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    servers.open_round(job, 2)
    assert run(config) == EXIT_DONE
    shutil.copy(tmp_path / "state" / "ledger" / "cardio.jsonl", tmp_path / "whole.jsonl")
    assert (
        _command(config, "ledger", "--dataset", "cardio", "--export", tmp_path / "export.json").exit_code == 0
    )
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as pack:
        pack.write(tmp_path / "whole.jsonl", f"dp/ledger/{SILO}.jsonl")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    return config


def _command(config: Path, *words: object) -> Result:
    name, *rest = words
    under = [str(name)]
    if rest and str(rest[0]) in ("restore", "write-off"):
        under.append(str(rest.pop(0)))
    return CliRunner().invoke(cli, ["silo", *under, "--config", str(config), *map(str, rest)])


def _entries(path: Path) -> list[Entry]:
    return [parse_entry(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("copy", ["whole.jsonl", "export.json", "pack.zip"])
@pytest.mark.parametrize("left", ["older", "nothing", "journal only", "damaged"])
def test_a_ledger_is_restored_from_any_copy_whatever_is_left_of_it(
    rolled_back: Path, tmp_path: Path, copy: str, left: str
) -> None:
    ledger = tmp_path / "state" / "ledger"
    if left == "nothing":
        shutil.rmtree(ledger)
    elif left == "journal only":
        last = _entries(tmp_path / "whole.jsonl")[-1].head
        (ledger / "cardio.head").write_bytes(canonical_bytes(last).ljust(511) + b"\n")
    elif left == "damaged":
        raw = (ledger / "cardio.jsonl").read_bytes()
        (ledger / "cardio.jsonl").write_bytes(raw[:-300] + b"#" + raw[-299:])
    with pytest.raises(LedgerDamaged):
        run(rolled_back)
    done = _command(
        rolled_back, "ledger", "restore", "--dataset", "cardio", "--from", tmp_path / copy, "--json"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["missing"] == []
    assert (ledger / "cardio.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert run(rolled_back) == EXIT_DONE
    assert list(ledger.glob("*.damaged-*")) != [] if left == "damaged" else True


def test_an_agent_that_refused_to_start_has_written_nothing(rolled_back: Path, tmp_path: Path) -> None:
    """Else its new ``open`` entry would be a fork, and the copy could no longer be taken."""
    settings = json.loads(rolled_back.read_text())
    budget = {"epsilon": {"round": 9, "job": 9, "lifetime": 9}, "delta_max": 1e-3}
    settings["datasets"]["cardio"]["budget"] = budget
    rolled_back.write_text(json.dumps(settings))
    for state in ("older", "gone"):
        if state == "gone":
            shutil.rmtree(tmp_path / "state" / "ledger")
        before = (tmp_path / "state" / "ledger" / "cardio.jsonl").read_bytes() if state == "older" else b""
        with pytest.raises(LedgerDamaged):
            run(rolled_back)
        assert (tmp_path / "state" / "ledger" / "cardio.jsonl").read_bytes() == before


def test_a_copy_that_is_too_short_helps_as_far_as_it_goes_and_says_what_is_missing(
    rolled_back: Path, tmp_path: Path
) -> None:
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    have = len(_entries(tmp_path / "state" / "ledger" / "cardio.jsonl"))
    (tmp_path / "short.jsonl").write_bytes(b"".join(lines[: have + 1]))
    done = _command(
        rolled_back, "ledger", "restore", "--dataset", "cardio", "--from", tmp_path / "short.jsonl"
    )
    assert done.exit_code == 5
    assert "1 entries restored" in done.output
    assert "still lacks entry" in done.output
    assert "seen by" in done.output
    again = _command(
        rolled_back, "ledger", "restore", "--dataset", "cardio", "--from", tmp_path / "whole.jsonl"
    )
    assert again.exit_code == 0, again.output


def test_a_copy_of_another_silo_dataset_or_key_is_not_taken(rolled_back: Path, tmp_path: Path) -> None:
    before = (tmp_path / "state" / "ledger" / "cardio.jsonl").read_bytes()
    stranger = SigningKey.generate()
    head, lines = EMPTY, []
    for entry in _entries(tmp_path / "whole.jsonl"):
        forged = next_entry(head, LEDGER, entry.at, entry.kind, entry.body, stranger)
        head = forged.head
        lines.append(canonical_bytes(forged) + b"\n")
    (tmp_path / "forged.jsonl").write_bytes(b"".join(lines))
    other = (tmp_path / "whole.jsonl").read_bytes().replace(b"/cardio", b"/lungs")
    (tmp_path / "other.jsonl").write_bytes(other)
    for copy, code in (("forged.jsonl", 5), ("other.jsonl", 78)):
        done = _command(rolled_back, "ledger", "restore", "--dataset", "cardio", "--from", tmp_path / copy)
        assert done.exit_code == code, done.output
    assert (tmp_path / "state" / "ledger" / "cardio.jsonl").read_bytes() == before


def test_a_ledger_written_off_counts_as_spent_to_its_end_and_never_spends_again(
    servers: Loopback, rolled_back: Path, tmp_path: Path
) -> None:
    unsure = _command(rolled_back, "ledger", "write-off", "--dataset", "cardio")
    assert unsure.exit_code == 78
    assert "cannot be undone" in unsure.output
    done = _command(rolled_back, "ledger", "write-off", "--dataset", "cardio", "--yes")
    assert done.exit_code == 0, done.output

    whole = _entries(tmp_path / "whole.jsonl")
    entries = _entries(tmp_path / "state" / "ledger" / "cardio.jsonl")
    lost = written_off(entries[-1])
    assert entries[-1].seq > lost.lost[-1].seq >= whole[-2].seq, "it goes on behind what was witnessed"

    statement = json.loads(_command(rolled_back, "budget", "--json").stdout)["datasets"]["cardio"]
    assert statement["written_off"] is True
    assert statement["remaining"] == {"epsilon": 0.0, "epsilon_fallback": 0.0, "delta": 0.0}

    assert run(rolled_back) == EXIT_BUDGET, "the servers' heads are covered, and nothing is left"
    settings = json.loads(rolled_back.read_text())
    budget = {"epsilon": {"round": 90, "job": 90, "lifetime": 90}, "delta_max": 1e-3}
    settings["datasets"]["cardio"]["budget"] = budget
    rolled_back.write_text(json.dumps(settings))
    assert run(rolled_back) == EXIT_BUDGET, "raised caps bring nothing back"

    again = _command(rolled_back, "ledger", "write-off", "--dataset", "cardio", "--yes")
    assert again.exit_code == 2
    assert "nothing to write off" in again.output
    late = _command(
        rolled_back, "ledger", "restore", "--dataset", "cardio", "--from", tmp_path / "whole.jsonl"
    )
    assert late.exit_code == 5, "what was given up does not come back"


def test_the_auditor_reads_a_ledger_that_was_written_off(rolled_back: Path, tmp_path: Path) -> None:
    assert _command(rolled_back, "ledger", "write-off", "--dataset", "cardio", "--yes").exit_code == 0
    raw = (tmp_path / "state" / "ledger" / "cardio.jsonl").read_bytes()
    key = _entries_key(tmp_path)
    chain = read_chain(raw, LEDGER, key, "dp/ledger/silo-1.jsonl", may_lose=True)
    assert chain.written_off == 1
    for entry in _entries(tmp_path / "state" / "ledger" / "cardio.jsonl"):
        assert chain.holds(entry.head.model_dump(mode="json"))
    lost = _entries(tmp_path / "whole.jsonl")[-1].head.model_dump(mode="json")
    assert not chain.holds(lost), "a round in the lost stretch is not proven by it"
    with pytest.raises(Exception, match="expected entry"):
        read_chain(raw, LEDGER, key, "log/aggregator.jsonl")


def _entries_key(tmp_path: Path) -> str:
    return str(json.loads((tmp_path / "export.json").read_text())["verify_key"])


# --- by themselves ---


def _chain(count: int) -> list[Entry]:
    head, entries = EMPTY, []
    opening: dict[str, Any] = {
        "format": 2,
        "dataset": "cardio",
        "unit": "patient",
        "adjacency": "add_remove",
        "patient_id": "patient",
        "epsilon": {"round": "1", "job": "1", "lifetime": "1", "period": None, "fallback": None},
        "delta_max": "0.001",
        "period_days": None,
        "filter": None,
    }
    for _ in range(count):
        entries.append(next_entry(head, ORIGIN, "2026-01-02T03:04:05.000Z", "open", opening, KEY))
        head = entries[-1].head
    return entries


def _write(path: Path, entries: list[Entry], head: Head | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(canonical_bytes(entry) + b"\n" for entry in entries))
    kept = (entries[-1].head if entries else EMPTY) if head is None else head
    path.with_suffix(".head").write_bytes(canonical_bytes(kept).ljust(511) + b"\n")


def _seen(head: Head) -> Witness:
    return Witness(PartyId("server-0"), "cardio", head)


def test_two_histories_are_not_merged(tmp_path: Path) -> None:
    path, ours = tmp_path / "cardio.jsonl", _chain(4)
    theirs = [*ours[:2], next_entry(ours[1].head, ORIGIN, "2026-01-03T00:00:00Z", "open", ours[0].body, KEY)]
    _write(path, ours)
    with (
        Journal(path, ORIGIN, KEY, mending=True) as journal,
        pytest.raises(LedgerDamaged, match="neither may"),
    ):
        restore(journal, theirs)
    assert len(_entries(path)) == 4


@pytest.mark.parametrize("theirs", [2, 9])
def test_a_fork_is_written_off_and_every_head_of_it_counts_as_given_up(tmp_path: Path, theirs: int) -> None:
    path, ours = tmp_path / "cardio.jsonl", _chain(4)
    _write(path, ours)
    forked = Head(seq=theirs, hash="ab" * 32)
    with Journal(path, ORIGIN, KEY, mending=True) as journal:
        entry = write_off(journal, unseen(journal, [_seen(forked)], PartyId("silo-1")), ORIGIN, KEY, NOW)
        assert entry.seq == max(3, theirs) + 1
    with Journal(path, ORIGIN, KEY) as journal:
        assert journal.holds(forked)
        assert account_of(journal.entries).written_off


def test_nothing_follows_a_write_off_but_caps(tmp_path: Path) -> None:
    path, ours = tmp_path / "cardio.jsonl", _chain(2)
    _write(path, ours)
    with Journal(path, ORIGIN, KEY, mending=True) as journal:
        write_off(journal, [_seen(Head(seq=7, hash="ab" * 32))], ORIGIN, KEY, NOW)
        journal.append("open", dict(ours[0].body), NOW)
        assert account_of(journal.entries).written_off
        journal.append("settle", {"job_digest": "aa" * 32}, NOW)
        with pytest.raises(LedgerDamaged, match="written off"):
            account_of(journal.entries)


def test_a_log_may_not_write_off(tmp_path: Path) -> None:
    path, ours = tmp_path / "cardio.jsonl", _chain(2)
    _write(path, ours)
    with Journal(path, ORIGIN, KEY, mending=True) as journal:
        write_off(journal, [_seen(Head(seq=7, hash="ab" * 32))], ORIGIN, KEY, NOW)
        entries = journal.entries
    with pytest.raises(LedgerDamaged, match="expected entry 2"):
        list(verify_entries(entries, ORIGIN, KEY.verify_key))
    assert len(list(verify_entries(entries, ORIGIN, KEY.verify_key, may_lose=True))) == 3


# --- the power goes at any write of it ---


def _restored(journal: Journal) -> None:
    restore(journal, _CHAIN)


def _written_off(journal: Journal) -> None:
    lost = unseen(journal, [_seen(Head(seq=20, hash="cd" * 32))], PartyId("silo-1"))
    if lost:
        write_off(journal, lost, ORIGIN, KEY, NOW)


_CHAIN = _chain(9)


@pytest.mark.parametrize("act", [_restored, _written_off])
def test_mending_survives_a_crash_at_any_of_its_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Journal], None]
) -> None:
    crashes = sum(_crash(tmp_path / str(seed) / "cardio.jsonl", seed, monkeypatch, act) for seed in range(60))
    assert crashes > 20


def _crash(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[Journal], None]) -> bool:
    dice = random.Random(seed)
    left = dice.randint(0, 6)
    _write(path, _CHAIN[:left], head=_CHAIN[dice.randint(max(left - 1, 0), 8)].head)
    if dice.random() < 0.4:
        path.write_bytes(path.read_bytes() + b'{"not":"an entry"}\n')
    faulty = FaultyOs(dice, fail_at=dice.randint(1, 14), dies=True)
    died = False
    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "os", faulty)
        patched.setattr(journal_module, "sync_directory", lambda _path: None)
        try:
            with Journal(path, ORIGIN, KEY, mending=True) as journal:
                act(journal)
        except PowerCut:
            died = True
        faulty.crash(power=True)
    with Journal(path, ORIGIN, KEY, mending=True) as journal:  # the same command once more
        act(journal)
        before = journal.entries
    with Journal(path, ORIGIN, KEY) as journal:
        assert journal.entries == before
        if act is _restored:
            assert list(journal.entries) == _CHAIN
        else:
            assert journal.holds(Head(seq=20, hash="cd" * 32))
            assert sum(entry.kind == "written_off" for entry in journal.entries) == 1
    return died
