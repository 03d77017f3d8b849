"""A federation in memory whose servers can die at any commit and come back, on a network that loses calls.

A crash ends one server at its n-th commit, before it or right after it is on disk: the next process is built
from that disk. Silos do what the agent does: the same bytes again until they are answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine

from aggregator.assembly import Aggregator
from aggregator.server_step import STEPS, Moment, Opened
from privacy.canonical import canonical_bytes
from privacy.plan import JobSpec, RoundPlan
from privacy.secagg.encoding import decode
from privacy.transparency.leaf import parse_record
from privacy.update import model_bytes
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import Refusal, RoundOffer, RoundResult
from tests.aggregator_world import AsTlsPeer, World, content_digest, submission, submit
from tests.federation import SharedUpdate


class Crash(BaseException):
    """The process is gone; nothing of ours catches it."""


@dataclass
class FailPoint:
    """Ends one process at its n-th commit."""

    party: str
    at: int
    after: bool
    """Whether that commit is on disk."""
    seen: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    def arm(self, engine: Engine) -> None:
        """Watch the commits of the process that has this engine."""
        dialect: Any = engine.dialect
        commit = dialect.do_commit

        def do_commit(connection: Any) -> None:
            if self.dead.is_set():
                raise Crash
            self.seen += 1
            if self.seen == self.at:
                if self.after:
                    commit(connection)
                self.dead.set()
                raise Crash
            commit(connection)

        dialect.do_commit = do_commit


@dataclass
class CrashWorld(World):
    """One job whose servers die and come back."""

    lossy: random.Random | None = None
    """Decides which calls are lost; none if left out."""
    aggregator: Aggregator | None = None
    silos: dict[str, CarefulSilo] = field(default_factory=dict)
    shown: list[tuple[bytes, ...]] = field(default_factory=list)
    """The aggregator's log at each of its starts."""

    def to_server(self, server: str, der: bytes) -> httpx.AsyncBaseTransport:
        return Wire(lambda: self.servers[server].app, der, None)

    async def play(self, spec: JobSpec, points: list[FailPoint], **silos: dict[str, Any]) -> dict[str, Any]:
        """Run the job to its end through the crashes; what the aggregator then says of it."""
        first = self.build_aggregator()
        await submit(self, first, spec)
        first.state.store.close()
        runs = [
            asyncio.create_task(
                CarefulSilo(self, name, number, **silos.get(name.replace("-", "_"), {})).run()
            )
            for number, name in enumerate(self.federation.charter.silos, 1)
        ]
        for point in points:
            if point.party != "aggregator":
                point.arm(self.servers[point.party].store._engine)
        keeping = asyncio.create_task(self._keep_up(points))
        playing = asyncio.gather(*runs)
        await asyncio.wait({playing, keeping}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        if keeping.done():
            await keeping
        results = await playing
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        async with self.running(self.build_aggregator()) as last:
            assert all(told == results[0] for told in results), "every silo was told the same of each round"
            self._show(last)
            async with httpx.AsyncClient(
                transport=AsTlsPeer(last.app, self.federation.certificate_der("researcher")),
                base_url="https://a.test",
            ) as client:
                view: dict[str, Any] = (await client.get(f"/v1/jobs/{spec.job}")).json()
                view["bytes"] = (await client.get(f"/v1/models/{view['model']}")).content
        for server in self.servers.values():
            server.store.close()
        return view

    def kinds(self) -> list[str]:
        """What the aggregator's log says has happened, in order."""
        return [parse_record(line).kind for line in self.shown[-1]]

    async def _keep_up(self, points: list[FailPoint]) -> None:
        """Start every server again that dies."""
        ours = [point for point in points if point.party == "aggregator"]
        for point in points:
            if point.party != "aggregator":
                asyncio.get_running_loop().create_task(self._restart(point))
        while True:
            self.aggregator = running = self.build_aggregator()
            self._show(running)
            point = ours.pop(0) if ours else FailPoint("aggregator", 0, False)
            point.arm(running.state.store._engine)
            work = asyncio.create_task(running.loop.run())
            try:
                dying = asyncio.create_task(point.dead.wait())
                await asyncio.wait({dying, work}, return_when=asyncio.FIRST_COMPLETED)
                dying.cancel()
                if not point.dead.is_set():
                    await work  # it ended by itself, which is a failure of ours
            finally:
                self.aggregator = None
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                running.state.bell.silence()
                running.state.store.close()

    async def _restart(self, point: FailPoint) -> None:
        await point.dead.wait()
        self.start_server(point.party)

    def _show(self, aggregator: Aggregator) -> None:
        with aggregator.state.store.read() as view:
            self.shown.append(tuple(aggregator.state.store.log.lines(view.connection)))


class Wire(httpx.AsyncBaseTransport):
    """To whichever process of a server runs now; a call to a dead one, or a lost one, is no answer."""

    def __init__(self, app_of: Callable[[], Any], der: bytes, lossy: random.Random | None) -> None:
        self._app_of, self._der, self._lossy = app_of, der, lossy

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._lost():
            raise httpx.ConnectError("lost on the way there")
        app = self._app_of()
        if app is None:
            raise httpx.ConnectError("nobody listens")
        try:
            answer = await AsTlsPeer(app, self._der).handle_async_request(request)
        except Crash as error:
            raise httpx.ReadError("it died") from error
        if self._lost():
            raise httpx.ReadError("lost on the way back")
        return answer

    def _lost(self) -> bool:
        return self._lossy is not None and self._lossy.random() < 0.1


@dataclass
class CarefulSilo:
    """A silo that asks again until it is answered, always with the same bytes."""

    world: CrashWorld
    name: str
    number: int
    refuses: bool = False
    sent: list[SharedUpdate] = field(default_factory=list)
    told: list[tuple[str, str, bytes]] = field(default_factory=list)

    async def run(self) -> list[tuple[str, str, bytes]]:
        """Take part until the job has ended; what it was told of each round."""
        after = ""
        self.world.silos[self.name] = self
        while True:
            answer = await self._ask("aggregator", "GET", f"/v1/offers?after={after}&wait_s=1")
            if answer.status_code == 204:
                continue
            assert answer.status_code == 200, answer.text
            plan = RoundOffer.model_validate_json(parse_envelope(answer.content).body).plan
            assert plan.context != after
            after = plan.context
            await self._take_part(plan)
            answer = await self._ask("aggregator", "GET", f"/v1/rounds/{after}/result?wait_s=2")
            while answer.status_code == 204:
                answer = await self._ask("aggregator", "GET", f"/v1/rounds/{after}/result?wait_s=2")
            assert answer.status_code == 200, answer.text
            result = RoundResult.model_validate_json(parse_envelope(answer.content).body)
            self.told.append((after, result.outcome, answer.content))
            if result.job_state != "running":
                return self.told

    async def _take_part(self, plan: RoundPlan) -> None:
        ctx, federation = plan.context, self.world.federation
        if self.refuses:
            said = Refusal(
                silo=self.name, rule="data.none", sentence="no data", expected="some", got="none", remedy="-"
            )
            envelope = federation.sign(said, "refusal", ctx, self.name)
            await self._ask(
                "aggregator", "POST", f"/v1/rounds/{ctx}/refusals", canonical_bytes(envelope), {200, 202}
            )
            return
        update = federation.share(plan, self.name, np.full(plan.parameters, 0.1 * self.number, np.float32))
        self.sent.append(update)
        first, *others = sorted(self.world.servers)
        for index, part in enumerate(update.parts):
            await self._ask(first, "PUT", f"/v1/rounds/{ctx}/parts/{index}", part, {200, 201})
        for server in (first, *others):
            raw = submission(update, server)
            await self._ask(server, "POST", f"/v1/rounds/{ctx}/manifests", raw, {200, 201})
        raw = canonical_bytes(update.envelope)
        await self._ask("aggregator", "POST", f"/v1/rounds/{ctx}/manifests", raw, {202})

    async def _ask(
        self, party: str, method: str, path: str, raw: bytes = b"", expected: set[int] | None = None
    ) -> httpx.Response:
        der = self.world.federation.certificate_der(self.name)
        headers = content_digest(raw) if method == "PUT" else {}

        def app() -> Any:
            if party != "aggregator":
                return self.world.servers[party].app
            return None if self.world.aggregator is None else self.world.aggregator.app

        wire = Wire(app, der, self.world.lossy)
        while True:
            try:
                async with httpx.AsyncClient(transport=wire, base_url="https://a.test", timeout=30) as client:
                    answer = await client.request(method, path, content=raw, headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 503:
                await asyncio.sleep(0.02)
                continue
            assert expected is None or answer.status_code in expected, answer.text
            return answer


def plain_model(spec: JobSpec, rounds: list[list[NDArray[np.uint32]]]) -> bytes:
    """The model that the plain sums of each round's updates lead to, round after round."""
    model = np.zeros(spec.model.parameters, dtype="<f4")
    for number, encoded in enumerate(rounds, 1):
        opened = decode(np.sum(np.stack(encoded), axis=0, dtype=np.uint32), spec.vector)
        one = Opened(model, opened[:-1], float(opened[-1]))
        model = STEPS[spec.training.algorithm](one, {}, spec.training, Moment(number, spec.rounds, 0)).model
    return model_bytes(model)
