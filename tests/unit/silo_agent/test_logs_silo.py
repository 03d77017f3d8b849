"""A silo's own log: on disk before it counts, whole after a crash, and never quietly another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from privacy.errors import ConfigurationError, LedgerDamaged
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.transparency.checkpoint import open_checkpoint
from privacy.transparency.leaf import parse_record
from privacy.transparency.merkle import Frontier
from silo_agent.log import SiloLog, read_log

KEY = SigningKey.generate()
SILO = PartyId("silo-1")


def opened(tmp_path: Path) -> SiloLog:
    return SiloLog(tmp_path, "fed", SILO, KEY)


def filled(tmp_path: Path) -> SiloLog:
    log = opened(tmp_path)
    log.record("started", {"silo": SILO})
    log.record("job_approved", {"job": "heart", "decision": "approved"})
    return log


def test_the_checkpoint_is_over_the_leaves_of_its_lines(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        frontier = Frontier()
        for line in log.lines():
            frontier, _ = frontier.append(parse_record(line).leaf_hash(log.origin))
        checkpoint = open_checkpoint(log.checkpoint().note(), "sealsum/fed/log/silo-1", KEY.verify_key)
        assert (checkpoint.head.size, checkpoint.head.root) == (2, frontier.root.hex())
        assert log.checkpoint() is log.checkpoint(), "nothing was added: nothing is signed"
        assert [one.kind for one in read_log(tmp_path, "fed", SILO)] == ["started", "job_approved"]


def test_it_continues_after_a_restart_and_forgets_a_torn_line(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        head = log.head
    with (tmp_path / "log" / "log.jsonl").open("ab") as file:
        file.write(b'{"at":"2026')
    with opened(tmp_path) as log:
        assert log.head == head
        assert log.record("reserved", {"job": "heart"}).seq == 2
    with opened(tmp_path) as log:
        assert log.head.size == 3


def test_a_shorter_or_rewritten_log_than_was_signed_does_not_open(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        log.checkpoint()
    path = tmp_path / "log" / "log.jsonl"
    whole = path.read_bytes()
    first, second = whole.splitlines(keepends=True)
    for other in (b"", first, first + second.replace(b"heart", b"liver")):
        path.write_bytes(other)
        with pytest.raises(LedgerDamaged, match="expected the 2 entries that this silo has signed"):
            opened(tmp_path)
    path.write_bytes(second + first)
    with pytest.raises(LedgerDamaged, match="expected entry 0, got entry 1"):
        opened(tmp_path)
    path.write_bytes(whole)
    opened(tmp_path).close()


def test_a_checkpoint_of_somebody_else_does_not_pass_for_the_silos(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        log.checkpoint()
    with pytest.raises(LedgerDamaged, match="expected a checkpoint that this silo signed"):
        SiloLog(tmp_path, "fed", SILO, SigningKey.generate())


def test_the_agent_and_a_persons_command_write_one_log_by_turns(tmp_path: Path) -> None:
    with filled(tmp_path) as agent, opened(tmp_path) as command:
        assert command.record("round_refused", {"context": "c", "rule": "budget.job"}).seq == 2
        assert agent.record("reserved", {"job": "heart"}).seq == 3
        assert command.record("job_approved", {"job": "liver", "decision": "rejected"}).seq == 4
        assert agent.checkpoint().head == command.checkpoint().head
        kinds = [one.kind for one in read_log(tmp_path, "fed", SILO)]
        assert kinds == ["started", "job_approved", "round_refused", "reserved", "job_approved"]


def test_a_log_that_is_cut_under_a_running_agent_stops_it(tmp_path: Path) -> None:
    with filled(tmp_path) as agent:
        os.truncate(tmp_path / "log" / "log.jsonl", 10)
        with pytest.raises(LedgerDamaged, match="it was cut"):
            agent.record("reserved", {"job": "heart"})


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="agent has not run yet"):
        read_log(tmp_path, "fed", SILO)
