"""A federation in memory under a schedule of faults, and what must hold afterwards.

A fault hits the n-th call that a server gets: its request is lost, its answer is lost, it comes twice, or it
comes late, so that calls overtake each other. A crash ends a server at its n-th commit. Silos here have no
ledger: I1 is that each signs one update a round; ``tests/attacks/test_silo_ledger_crash.py`` has the ledger.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from aggregator.assembly import Aggregator, AssembledShareServer
from privacy.plan import JobSpec
from tests.crash_world import CrashWorld, FailPoint, plain_model
from tests.faults import mock_clock
from tests.federation import Federation

Kind = Literal["request_lost", "answer_lost", "twice", "late", "dies_before", "dies_after"]
PARTIES = ("aggregator", "server-0", "server-1")
CALLS: tuple[Kind, ...] = ("request_lost", "answer_lost", "twice", "late")
CRASHES: tuple[Kind, ...] = ("dies_before", "dies_after")
ONE = Federation()
"""Its keys are made once; every run has disks of its own."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, once."""

    kind: Kind
    party: str
    at: int
    """Of that party's calls or, of a crash, of its process's commits."""
    late_s: float = 0.0


def schedule(seed: int) -> tuple[Fault, ...]:
    """Four to sixteen faults on the net and up to three crashes."""
    draw = random.Random(seed)
    calls = [
        Fault(draw.choice(CALLS), draw.choice(PARTIES), draw.randint(1, 40), draw.choice((0.05, 0.5, 3.0)))
        for _ in range(draw.randint(4, 16))
    ]
    crashes = [
        Fault(draw.choice(CRASHES), draw.choice(PARTIES), draw.randint(1, 14))
        for _ in range(draw.randint(0, 3))
    ]
    return (*calls, *crashes)


@dataclass
class FaultyWorld(CrashWorld):
    """The crash world behind a net with these faults."""

    faults: Sequence[Fault] = ()
    every_call_s: float = 0.0
    """Latency of each call."""
    calls: Counter[str] = field(default_factory=Counter)
    faulty: bool = False
    """Only while the job runs: whoever submits it and reads what came of it is no part of the experiment."""

    crashes: list[FailPoint] = field(default_factory=list)

    async def _restart(self, point: FailPoint) -> None:
        """A server's crashes one after the other, each in the process that the one before has left."""
        await super()._restart(point)
        mine = [later for later in self.crashes if later.party == point.party]
        if following := mine[mine.index(point) + 1 :]:
            following[0].arm(self.servers[point.party].store._engine)
            await self._restart(following[0])

    async def _keep_up(self, points: list[FailPoint]) -> None:
        self.faulty = True
        try:
            await super()._keep_up(points)
        finally:
            self.faulty = False

    def start_server(self, server: str) -> AssembledShareServer:
        started = super().start_server(server)
        self.servers[server] = dataclasses.replace(started, app=self._behind_net(server, started.app))
        return self.servers[server]

    def build_aggregator(self, **settings: Any) -> Aggregator:
        built = super().build_aggregator(**settings)
        return dataclasses.replace(built, app=self._behind_net("aggregator", built.app))

    def _deaths(self, party: str) -> int:
        return sum(point.dead.is_set() for point in self.crashes if point.party == party)

    def _behind_net(self, party: str, app: Any) -> Any:
        earlier = self._deaths(party)

        async def alive(scope: Any, receive: Any, send: Any) -> None:
            """A process that has died answers nothing more, whatever it was doing."""
            if self._deaths(party) > earlier:
                raise httpx.ConnectError("it is dead")
            said: list[Any] = []
            await app(scope, receive, _into(said))
            if self._deaths(party) > earlier:
                raise httpx.ReadError("it died")
            for message in said:
                await send(message)

        async def behind(scope: Any, receive: Any, send: Any) -> None:
            if not self.faulty:
                await app(scope, receive, send)
                return
            self.calls[party] += 1
            number = self.calls[party]
            hits = {fault.kind: fault for fault in self.faults if (fault.party, fault.at) == (party, number)}
            late = hits["late"].late_s if "late" in hits else 0.0
            if late or self.every_call_s:
                await asyncio.sleep(late + self.every_call_s)
            if "request_lost" in hits:
                raise httpx.ConnectError("lost on the way there")
            if "twice" in hits:
                whole = await _whole(receive)
                await alive(scope, _once(whole, receive), _into([]))
                receive = _once(whole, receive)
            if "answer_lost" in hits:
                await alive(scope, receive, _into([]))
                raise httpx.ReadError("lost on the way back")
            await alive(scope, receive, send)

        return behind


def _into(said: list[Any]) -> Callable[[Any], Any]:
    """Where an answer goes first; whether it reaches anybody is decided afterwards."""

    async def keep(message: Any) -> None:
        said.append(message)

    return keep


async def _whole(receive: Any) -> dict[str, Any]:
    """A request in one message."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return {"type": "http.request", "body": body, "more_body": False}


def _once(whole: dict[str, Any], receive: Any) -> Callable[[], Any]:
    """That request, and then a sender who stays connected."""
    left = [whole]

    async def next_message() -> Any:
        return left.pop() if left else await receive()

    return next_message


def play(faults: Sequence[Fault], rounds: int = 2, every_call_s: float = 0.0) -> Counter[str]:
    """Play a job under these faults and hold what came of it against the invariants; the calls it took.

    Raises:
        AssertionError: one is broken; the message begins with its number.
    """
    calls: Counter[str] = mock_clock.run(_play(faults, rounds, every_call_s))
    return calls


async def _play(faults: Sequence[Fault], rounds: int, every_call_s: float) -> Counter[str]:
    points = [
        FailPoint(fault.party, fault.at, fault.kind == "dies_after")
        for fault in faults
        if fault.kind in CRASHES
    ]
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unseen.append(repr(told)))
    with tempfile.TemporaryDirectory() as root:
        # A grace longer than a lost call keeps a silo away: who is waited for is invited, and rounds open.
        world = FaultyWorld(
            Path(root), ONE, grace_s=10.0, faults=faults, every_call_s=every_call_s, crashes=points
        )
        spec = ONE.job_spec(parameters=5, rounds=rounds, round_deadline_s=60)
        firsts = {point.party: point for point in reversed(points) if point.party != "aggregator"}
        at_aggregator = [point for point in points if point.party == "aggregator"]
        view = await world.play(spec, [*at_aggregator, *firsts.values()], silo_4={"refuses": True})
        _judge(world, spec, view)
    gc.collect()  # a task whose failure nobody asked for says so when it goes
    assert unseen == [], f"a failure passed unseen: {unseen}"
    return world.calls


def _judge(world: FaultyWorld, spec: JobSpec, view: dict[str, Any]) -> None:
    rounds = list(range(1, spec.rounds + 1))
    contexts = [entry["context"] for entry in view["history"]]
    sent = [world.silos[f"silo-{number}"].sent for number in (1, 2, 3)]
    assert (view["state"], [entry["round"] for entry in view["history"]]) == ("finished", rounds), "I7"
    for updates in sent:
        assert [update.envelope.context for update in updates] == contexts, "I1: one update a round"
    for entry in view["history"]:
        assert (entry["outcome"], len(entry["survivors"])) == ("opened", 3), "I2: the minimum is three"
    for name in world.servers:
        left = [path for path in (world.root / name / "parts").rglob("*") if path.is_file()]
        assert left == [], "I3: no share outlives its round"
    assert view["openings"] == spec.rounds, "I4"
    for kind in ("round_offered", "cohort_cleared", "sum_opened", "model_published"):
        assert world.kinds().count(kind) == spec.rounds, f"I4: {kind}"
    for before, after in zip(world.shown, world.shown[1:], strict=False):
        assert after[: len(before)] == before, "I5"
    plain = plain_model(spec, [[updates[number - 1].encoded for updates in sent] for number in rounds])
    assert view["bytes"] == plain, "I6"


def shrunk(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> tuple[Fault, ...]:
    """As few of these faults as still fail: whole stretches are left out first, then ever shorter ones."""
    kept, length = tuple(faults), max(1, len(faults) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + length :]
            if fails(fewer):
                kept = fewer
            else:
                start += length
        if length == 1:
            return kept
        length //= 2


def violates(faults: Sequence[Fault]) -> bool:
    """Whether an invariant breaks under these faults."""
    try:
        play(faults)
    except AssertionError:
        return True
    return False


def as_json(seed: int, faults: Sequence[Fault]) -> str:
    """A schedule as it is kept under ``reproductions/``."""
    return json.dumps({"seed": seed, "faults": [dataclasses.asdict(fault) for fault in faults]}, indent=1)


def from_json(text: str) -> tuple[Fault, ...]:
    """A schedule that was kept."""
    return tuple(Fault(**fault) for fault in json.loads(text)["faults"])
