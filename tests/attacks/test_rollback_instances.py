"""Two agents under one identity, as after a machine was cloned: one is let in, the other told so."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

from aggregator.instances import GONE_S, Instances
from privacy.errors import MalformedMessage, SecondInstance
from privacy.ids import PartyId
from privacy.instance import HEADER, Instance, parse_instance
from silo_agent.instance import begin_instance
from silo_agent.problems import fault_from
from tests.aggregator_world import World, client_of, on_loop

SILO = PartyId("silo-1")
FIRST, SECOND = Instance("11" * 16), Instance("22" * 16)


class Clock:
    """A monotonic clock that moves when told."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def instances(clock: Clock) -> Instances:
    return Instances(clock)


def _called(instances: Instances, instance: Instance) -> None:
    with instances.call(SILO, instance):
        pass


def test_a_second_agent_is_refused_while_the_first_is_here_and_told_since_when(
    instances: Instances, clock: Clock
) -> None:
    _called(instances, FIRST)
    clock.at += 12
    with pytest.raises(SecondInstance, match=r"in use since 20\d\d-.* was here 12 s ago\. Stop one"):
        _called(instances, SECOND)
    _called(instances, FIRST)
    with instances.call(PartyId("silo-2"), SECOND):
        pass


def test_a_second_agent_may_come_once_the_first_is_gone_for_long_enough(
    instances: Instances, clock: Clock
) -> None:
    _called(instances, FIRST)
    clock.at += GONE_S
    _called(instances, SECOND)
    with pytest.raises(SecondInstance):
        _called(instances, FIRST)


def test_an_open_call_keeps_its_agent_here_however_long_it_takes(instances: Instances, clock: Clock) -> None:
    with instances.call(SILO, FIRST):
        clock.at += 10 * GONE_S
        for instance in (SECOND, Instance(SECOND.id, previous=FIRST.id)):
            with pytest.raises(SecondInstance):
                _called(instances, instance)


def test_a_restart_follows_itself_at_once_even_when_it_was_killed_in_a_call(instances: Instances) -> None:
    with instances.call(SILO, FIRST) as gone:
        gone()  # the connection broke
        _called(instances, Instance(SECOND.id, previous=FIRST.id))
    with pytest.raises(SecondInstance):
        _called(instances, FIRST)


def test_of_a_clone_and_its_original_exactly_one_goes_on(instances: Instances) -> None:
    """The clone remembers the original's last start as its own, and both go on calling."""
    _called(instances, FIRST)
    clone = Instance(SECOND.id, previous=FIRST.id)
    _called(instances, clone)
    for _ in range(3):
        with pytest.raises(SecondInstance):
            _called(instances, FIRST)
        _called(instances, clone)


def test_each_start_has_a_new_name_and_remembers_the_one_before(tmp_path: Path) -> None:
    first = begin_instance(tmp_path)
    second = begin_instance(tmp_path)
    assert first.previous is None
    assert second.previous == first.id != second.id
    shutil.copytree(tmp_path, tmp_path / "clone")
    assert begin_instance(tmp_path / "clone").previous == begin_instance(tmp_path).previous == second.id
    (tmp_path / "instance").write_bytes(b"\xff\x00")
    assert begin_instance(tmp_path).previous is None


@pytest.mark.parametrize("text", ["", "11", "zz" * 16, f"{'11' * 16};previous=", f"{'11' * 16}; previous=22"])
def test_a_name_of_another_form_is_refused(text: str) -> None:
    assert parse_instance(str(Instance("11" * 16, "22" * 16))) == Instance("11" * 16, "22" * 16)
    with pytest.raises(MalformedMessage, match="32 hex digits"):
        parse_instance(text)


def _as(world: World, app: object, instance: Instance) -> httpx.AsyncClient:
    client = client_of(app, world.federation.certificate_der("silo-1"))
    client.headers[HEADER] = str(instance)
    return client


@on_loop
async def test_the_aggregator_refuses_the_second_agent_at_every_call_and_logs_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        first, second = _as(world, aggregator.app, FIRST), _as(world, aggregator.app, SECOND)
        assert (await first.get("/v1/offers")).status_code == 204
        for path in ("/v1/offers", "/v1/charter", "/v1/ledger-heads"):
            refused = await second.get(path)
            assert refused.status_code == 409, path
            assert refused.json()["type"] == "urn:sealsum:second-instance"
            assert isinstance(fault_from(path, 409, refused.content), SecondInstance)
        assert (await first.get("/v1/ledger-heads")).status_code == 200
        with aggregator.state.store.read() as view:
            log = b"\n".join(aggregator.state.store.log.lines(view.connection))
        assert log.count(b"second-instance") == 3


@on_loop
async def test_a_long_poll_counts_as_being_here_until_it_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.build_aggregator()) as aggregator:
        first, second = _as(world, aggregator.app, FIRST), _as(world, aggregator.app, SECOND)
        waiting = asyncio.create_task(first.get("/v1/offers", params={"wait_s": 1.0}))
        await asyncio.sleep(0.2)
        restarted = _as(world, aggregator.app, Instance(SECOND.id, previous=FIRST.id))
        assert (await restarted.get("/v1/offers")).status_code == 409
        assert (await second.get("/v1/offers")).status_code == 409
        assert (await waiting).status_code == 204
        assert (await restarted.get("/v1/offers")).status_code == 204
