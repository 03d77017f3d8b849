"""The small pieces: phase tables, waiting, presence, settings, files, certificates, the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.audit_log import AuditLog
from aggregator.blobs import Directory, sha256_of
from aggregator.presence import Bell, Presence
from aggregator.round import TABLE, Round, follow
from aggregator.settings import AggregatorSettings, load_settings
from aggregator.share_server.phases import TABLE as SHARE_TABLE
from aggregator.store import Store
from aggregator.web_server import bind, url_of
from privacy.canonical import sha256_hex
from privacy.errors import (
    ConfigurationError,
    Conflict,
    NotAllowed,
    NotFound,
    OutOfOrder,
    TooLarge,
)
from privacy.identity import SigningKey
from privacy.ids import PartyId, SiloId
from privacy.transparency.leaf import parse_record
from tests.aggregator_world import on_loop
from tests.federation import Federation

EVENTS = ("answer", "close", "agree", "clear", "record", "publish", "give_up")
SILO = SiloId(PartyId("silo-1"))


@given(st.lists(st.sampled_from(EVENTS), max_size=30))
def test_no_sequence_of_events_publishes_without_agreeing_clearing_and_recording(events: list[str]) -> None:
    phase, taken = "collecting", []
    for event in events:
        if (phase, event) in TABLE:
            phase = follow(phase, event)  # type: ignore[arg-type] # any word an adversary may try
            taken.append(event)
    if phase == "published":
        steps = [event for event in taken if event != "answer"]
        assert steps == ["close", "agree", "clear", "record", "publish"]


def test_nothing_leaves_an_ended_round_and_no_share_leaves_before_agreement() -> None:
    assert not [step for step in TABLE if step[0] in ("published", "aborted")]
    assert not [step for step in SHARE_TABLE if step[0] == "finished"]
    assert [step[0] for step in SHARE_TABLE if step[1] == "release"] == ["agreed"]
    assert [step[0] for step in SHARE_TABLE if step[1] == "fetch"] == ["released"]


def test_a_round_counts_answers_once_and_of_invited_silos_only() -> None:
    federation = Federation(policy_text="x")
    round_ = Round(federation.plan(federation.job_spec(), silos=["silo-1", "silo-2", "silo-3"]))
    with pytest.raises(NotAllowed, match="not in this round's cohort"):
        round_.answered(SiloId(PartyId("silo-4")), "manifest")
    round_.answered(SILO, "manifest")
    with pytest.raises(OutOfOrder, match="it has sent a manifest"):
        round_.answered(SILO, "refusal")
    assert (round_.complete, round_.hopeless) == (False, False)
    round_.answered(SiloId(PartyId("silo-2")), "refusal")
    assert round_.hopeless
    round_.step("give_up")
    with pytest.raises(OutOfOrder, match="answer cannot follow in phase aborted"):
        round_.answered(SILO, "manifest")


@on_loop
async def test_a_ring_between_looking_and_waiting_is_not_missed() -> None:
    bell, seen = Bell(), []

    def condition() -> str | None:
        if not seen:
            asyncio.get_running_loop().call_soon(lambda: (seen.append("news"), bell.ring()))
        return seen[0] if seen else None

    assert await bell.wait_for(condition, 30) == "news"


@on_loop
async def test_waiting_ends_when_the_time_is_up_or_the_process_drains() -> None:
    bell = Bell()
    assert await bell.wait_for(lambda: None, 0.01) is None
    waiting = asyncio.create_task(bell.wait_for(lambda: None, 3600))
    await asyncio.sleep(0)
    bell.silence()
    assert await waiting is None
    assert await bell.wait_for(lambda: None, 3600) is None


def test_a_silo_is_here_while_its_call_is_open_and_a_while_longer() -> None:
    clock = [100.0]
    presence = Presence(15, Bell(), lambda: clock[0])
    assert presence.here([SILO]) == frozenset()
    with presence.call(SILO):
        clock[0] += 1000
        assert presence.here([SILO]) == {SILO}
    clock[0] += 15
    assert presence.here([SILO]) == {SILO}
    clock[0] += 0.1
    assert presence.here([SILO]) == frozenset()


def test_settings_name_every_fault_and_resolve_paths_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("state_dir: state\nlisten: 127.0.0.1:0\n")
    settings = load_settings(path, AggregatorSettings)
    assert settings.state_dir == tmp_path / "state"
    assert settings.address == ("127.0.0.1", 0)
    path.write_text("listen: nowhere\nverify: false\n")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, AggregatorSettings)
    for field in ("state_dir", "listen", "verify"):
        assert field in str(caught.value)
    path.write_text("- a\n")
    with pytest.raises(ConfigurationError, match="expected a mapping"):
        load_settings(path, AggregatorSettings)


def test_a_taken_address_is_a_configuration_error() -> None:
    with bind(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"https://127.0.0.1:{port}"
        with pytest.raises(ConfigurationError, match=str(port)):
            bind(("127.0.0.1", port))


@on_loop
async def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "parts")

    async def body(*chunks: bytes) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    digest = sha256_hex(b"abcd")
    with pytest.raises(TooLarge):
        await directory.receive(body(b"ab", b"cde"), digest, sha256_of, "ctx", "x", limit=4)
    assert await directory.receive(body(b"ab", b"cd"), digest, sha256_of, "ctx", "x", limit=4)
    assert not await directory.receive(body(b"abcd"), digest, sha256_of, "ctx", "x", limit=4)
    with pytest.raises(Conflict, match="other bytes came first"):
        await directory.receive(body(b"efgh"), sha256_hex(b"efgh"), sha256_of, "ctx", "x", limit=4)
    assert directory.read("ctx", "x") == b"abcd"
    assert [path.name for path in (tmp_path / "parts").rglob("*") if path.is_file()] == ["x"]
    with pytest.raises(NotFound, match="plain names"):
        directory.read("..", "x")
    directory.scrub("ctx")
    assert directory.names() == []


def test_a_decision_and_its_log_entry_stand_or_fall_together(tmp_path: Path) -> None:
    key = SigningKey.generate()
    log = AuditLog("fed", PartyId("server-0"), key)
    store = Store(f"sqlite:///{tmp_path / 'server.db'}", log, tmp_path, ())
    with store.write() as transaction:
        transaction.record("started", party="server-0")

    def release_and_fail() -> None:
        with store.write() as transaction:
            transaction.record("share_released", context="0" * 64)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        release_and_fail()
    with store.write() as transaction:
        transaction.record("started", party="server-0")
    with store.read() as view:
        entries = [parse_record(line) for line in log.lines(view.connection)]
        assert [entry.kind for entry in entries] == ["started", "started"]
        assert log.verify(view.connection) == log.head
        assert log.head.size == 2
    store.close()
