"""Delivery: in order, each entry at least once, whatever fails in between; files that are rotated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.audit_sinks.delivery import Delivery
from policies.audit_sinks.entry import Entry
from policies.audit_sinks.feed import BATCH, RECENT
from policies.audit_sinks.jsonl import JsonlSink
from policies.audit_sinks.position import Position
from policies.audit_sinks.settings import (
    JsonlSinkSettings,
    SinkSettings,
    SyslogSinkSettings,
    sinks_or_default,
)
from policies.audit_sinks.sinks import AuditSinks
from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from tests.unit.audit_sinks.sinks_receivers import ORIGIN, Book, Receiver, entry, receiving, wait_for


def _policy(sinks_min: int = 1, fail_closed: bool = True) -> Any:
    evidence = SimpleNamespace(sinks_min=sinks_min, fail_closed=fail_closed)
    model = SimpleNamespace(metadata=SimpleNamespace(name="strict"), spec=SimpleNamespace(evidence=evidence))
    return SimpleNamespace(model=model)


class Flaky:
    """A sink that fails when its script says so, having taken part of a batch or not."""

    def __init__(self, faults: list[int | None]) -> None:
        self.seen: list[int] = []
        self._faults: Iterator[int | None] = iter(faults)

    def send(self, entries: list[Entry]) -> None:
        fault = next(self._faults, None)
        taken = entries if fault is None else entries[:fault]
        self.seen += [one.record.seq for one in taken]
        if fault is not None:
            raise ConnectionError("down")

    def settle(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


@settings(max_examples=15, deadline=None)
@given(
    before=st.integers(0, 40),
    grown=st.lists(st.integers(1, 30), max_size=5),
    faults=st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=3),
)
def test_every_entry_arrives_in_order_and_at_least_once(
    before: int, grown: list[int], faults: list[int | None]
) -> None:
    book, sink = Book(before), Flaky(faults)
    with TemporaryDirectory() as directory:
        position = Position(Path(directory) / "s.json", ORIGIN, "there", before)
        delivery = Delivery("s", sink, book.feed, position, lambda *_said: None)
        delivery.start()
        for count in grown:
            book.grow(count)
        wait_for(lambda: delivery.taken == len(book.records))
        delivery.close()
        kept = Position(Path(directory) / "s.json", ORIGIN, "there", len(book.records))
    assert sorted(set(sink.seen)) == list(range(len(book.records)))
    # Repeats go back, and are then gone through again: nothing is ever skipped.
    assert all(after <= first + 1 for first, after in zip(sink.seen, sink.seen[1:], strict=False))
    assert kept.next == len(book.records)


def test_a_sink_far_behind_is_served_from_the_log_itself(tmp_path: Path) -> None:
    book, sink = Book(RECENT + 3 * BATCH), Flaky([])
    book.grow(1)
    delivery = Delivery("s", sink, book.feed, Position(tmp_path / "s.json", ORIGIN, "p", 0), lambda *_: None)
    delivery.start()
    wait_for(lambda: delivery.taken == len(book.records))
    delivery.close()
    assert sink.seen == list(range(len(book.records)))


def test_a_restart_goes_on_where_the_sink_was(tmp_path: Path) -> None:
    book, path = Book(), tmp_path / "audit.jsonl"
    for _ in range(2):
        book.grow(3)
        sinks = AuditSinks([JsonlSinkSettings(name="file", type="jsonl", path=path)], tmp_path, book.feed, 20)
        sinks.gate([_policy()])
        sinks.close()
    assert [json.loads(line)["seq"] for line in path.read_text().splitlines()] == list(range(6))


def test_a_receiver_that_comes_back_gets_what_it_missed_and_both_are_told(tmp_path: Path) -> None:
    book, first = Book(), Receiver()
    sink = SyslogSinkSettings(name="siem", type="syslog", url=f"tcp://127.0.0.1:{first.port}")
    sinks = AuditSinks([sink], tmp_path, book.feed, 0.05)
    book.grow(2)
    sinks.start()
    wait_for(lambda: len(first.messages) == 2)
    first.close()
    book.grow(2)
    with pytest.raises(PolicyRefusal, match=r"evidence\.not_taken"):
        sinks.gate([_policy()])
    wait_for(lambda: bool(sinks._news))
    assert [(one.kind, one.sink) for one in sinks.news()] == [("sink_failed", "siem")]
    second = Receiver(port=first.port)
    wait_for(lambda: len({_seq(message) for message in [*first.messages, *second.messages]}) == 4)
    wait_for(lambda: bool(sinks._news))
    assert [one.kind for one in sinks.news()] == ["sink_recovered"]
    sinks.gate([_policy()])
    sinks.close()
    second.close()


def _seq(message: bytes) -> int:
    return int(json.loads(message.partition(b"] ")[2])["seq"])


def test_one_sink_that_takes_everything_is_enough_and_none_is_not(tmp_path: Path) -> None:
    book = Book()
    book.grow(1)
    dead: SinkSettings = SyslogSinkSettings(name="siem", type="syslog", url=f"unix://{tmp_path}/nobody")
    live: SinkSettings = JsonlSinkSettings(name="file", type="jsonl", path=tmp_path / "audit.jsonl")
    both = AuditSinks([dead, live], tmp_path / "a", book.feed, 20)
    assert both.gate([_policy(2)]).size == 1
    both.close()
    alone = AuditSinks([dead], tmp_path / "b", book.feed, 0.05)
    with pytest.raises(PolicyRefusal, match=r"the best of 1 lacks 1"):
        alone.gate([_policy()])
    # Every threat model has to allow it.
    with pytest.raises(PolicyRefusal, match=r"evidence\.not_taken"):
        alone.gate([_policy(fail_closed=False), _policy()])
    assert alone.gate([_policy(fail_closed=False)]).size == 1
    alone.close()


def test_fewer_sinks_than_the_threat_model_asks_for_are_refused_by_name(tmp_path: Path) -> None:
    sinks = AuditSinks(
        [JsonlSinkSettings(name="file", type="jsonl", path=tmp_path / "a")], tmp_path, Book().feed, 1
    )
    with pytest.raises(ConfigurationError, match=r"audit_sinks: expected at least 2 \(evidence\.sinks_min"):
        sinks.assert_enough([_policy(), _policy(2)])
    with pytest.raises(PolicyRefusal, match=r"evidence\.too_few_sinks"):
        sinks.gate([_policy(2, fail_closed=False)])


def test_a_file_that_was_moved_away_is_begun_anew_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = JsonlSink(path, "record", fsync=True)
    sink.send([entry(0)])
    path.rename(tmp_path / "audit.jsonl.1")
    sink.send([entry(1)])
    path.unlink()
    sink.send([entry(2)])
    sink.close()
    assert (tmp_path / "audit.jsonl.1").read_bytes() == entry(0).record.line() + b"\n"
    assert path.read_bytes() == entry(2).record.line() + b"\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_cut_short_by_a_crash_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"seq":0,')
    sink = JsonlSink(path, "record", fsync=False)
    sink.send([entry(0)])
    sink.close()
    assert path.read_bytes().split(b"\n")[1] == entry(0).record.line()


def test_a_position_that_does_not_read_back_or_is_ahead_of_the_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    Position(path, ORIGIN, "there", 9).keep(9)
    with pytest.raises(ConfigurationError, match="restore the newest copy"):
        Position(path, ORIGIN, "there", 8)
    assert Position(path, ORIGIN, "elsewhere", 9).next == 0
    path.write_bytes(b"{")
    with pytest.raises(ConfigurationError, match="delete it to send the whole log again"):
        Position(path, ORIGIN, "there", 9)


def test_two_sinks_in_one_place_or_of_one_name_are_refused(tmp_path: Path) -> None:
    def file(name: str, path: str) -> SinkSettings:
        return JsonlSinkSettings(name=name, type="jsonl", path=Path(path))

    with pytest.raises(ConfigurationError, match="each place once"):
        sinks_or_default([file("a", "x"), file("b", "x")], tmp_path, tmp_path)
    with pytest.raises(ConfigurationError, match="each name once"):
        sinks_or_default([file("a", "x"), file("a", "y")], tmp_path, tmp_path)
    (default,) = sinks_or_default([], tmp_path, tmp_path)
    assert default.place == f"file {tmp_path}/audit.jsonl"


def test_what_is_delivered_at_the_end_is_kept(tmp_path: Path) -> None:
    with receiving() as receiver:
        book = Book()
        sink = SyslogSinkSettings(name="siem", type="syslog", url=f"tcp://127.0.0.1:{receiver.port}")
        sinks = AuditSinks([sink], tmp_path, book.feed, 20)
        sinks.start()
        book.grow(5)
        sinks.close()
        wait_for(lambda: len(receiver.messages) == 5)
    assert Position(tmp_path / "sinks" / "siem.json", ORIGIN, sink.url, 5).next == 5
