"""An aggregator and agents' halves of ``pairwise`` in one process: production code at both ends of a call.

The aggregator lives on the test's event loop. Each silo runs in a thread, as an agent does, and calls it
through the production client. A silo can leave before a step, crash around one and come back from its disk,
refuse, or send what its half did not sign.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
from numpy.typing import NDArray

from aggregator.assembly import Aggregator, assemble_aggregator
from aggregator.server_step import STEPS as SERVER_STEPS
from aggregator.server_step import Moment, Opened
from aggregator.settings import AggregatorSettings
from aggregator.state import AggregatorState, OpenRound
from policies.loader import LoadedPolicy, load_threat_model
from privacy.chain import EMPTY, Head
from privacy.errors import SealsumError
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.keystore import Identity
from privacy.plan import JobSpec, RoundPlan
from privacy.secagg.encoding import decode
from privacy.secagg.vectors import MODEL, VectorName
from privacy.transparency.leaf import parse_record
from privacy.update import model_bytes
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import RoundResult
from silo_agent.delivery import Delivery
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Contribution, Outbox, Stored
from silo_agent.participation import open_offer
from silo_agent.refusals import refusal_of
from silo_agent.results import open_result
from silo_agent.schemes.catalogue import half_of
from silo_agent.schemes.half import SchemeHalf, Seat
from silo_agent.transport import FederationClient
from silo_agent.update import FloatUpdate
from tests.aggregator_world import AsTlsPeer, client_of, content_digest, submit
from tests.federation import Federation, demo_policy_text

Ring = NDArray[np.uint32]
Step = Literal["keys", "shares", "masked", "consistency", "unmask"]
AnyStep = Step | Literal["commit", "reveal", "manifest", "upload", "partial"]
Tamper = Callable[[tuple[Envelope, ...]], tuple[Envelope, ...]]


class Gone(Exception):
    """The silo's process ends here and does not come back in this round."""


class Crashed(Exception):
    """The silo's process ends here, and its next start finds what is on disk."""


def pairwise_federation(silos: int = 4, **changes: str) -> Federation:
    """Hospitals and an aggregator, without share servers; ``changes`` replaces lines' text in the profile."""
    text = demo_policy_text("pairwise")
    for old, new in changes.items():
        text = text.replace(old, new)
    return Federation(silos=silos, servers=0, policy_text=text)


class _OnLoop(httpx.BaseTransport):
    """Reaches whichever aggregator runs now, from a silo's thread."""

    def __init__(self, world: PairwiseWorld, party: str) -> None:
        self._world = world
        self._der = world.federation.certificate_der(party)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def call() -> httpx.Response:
            aggregator = self._world.aggregator
            if aggregator is None:
                raise httpx.ConnectError("the aggregator is down")
            try:
                answer = await AsTlsPeer(aggregator.app, self._der).handle_async_request(request)
                raw = await answer.aread()
            finally:
                if self._world.aggregator is not aggregator:  # killed meanwhile: nobody hears its last words
                    raise httpx.ConnectError("the aggregator is gone")
            return httpx.Response(answer.status_code, headers=answer.headers, content=raw)

        answer = asyncio.run_coroutine_threadsafe(call(), self._world.loop).result()
        self._world.calls.append((request.method, request.url.path, answer.status_code))
        return answer


@dataclass
class PairwiseWorld:
    """One federation on disk under ``root``, and its aggregator while it runs."""

    root: Path
    federation: Federation = field(default_factory=pairwise_federation)
    aggregator: Aggregator | None = None
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path and status of every silo's call."""
    settings: dict[str, Any] = field(default_factory=dict)
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Silos that send nothing more, and in which round (or in any, where it is empty)."""

    def __post_init__(self) -> None:
        self.federation.identity("aggregator", self.root / "aggregator")
        self.loop = asyncio.get_running_loop()

    def build(self) -> Aggregator:
        """The aggregator anew from its disk."""
        given = {"state_dir": self.root / "aggregator", "listen": "127.0.0.1:0", "grace_s": 0.2}
        aggregator = assemble_aggregator(AggregatorSettings(**{**given, **self.settings}))
        self._pass_deadlines(aggregator.state)
        return aggregator

    def leave(self, silo: str, context: str = "") -> None:
        """This silo is gone in a round, and nobody will wait for it to the deadline; from a silo's thread."""
        self.gone.add((silo, context))
        if (aggregator := self.aggregator) is not None:
            self.loop.call_soon_threadsafe(aggregator.state.bell.ring)

    def _pass_deadlines(self, state: AggregatorState) -> None:
        """A step's deadline passes when only silos are missing that are gone, on a busy machine too."""
        usual = state.bell.wait_for

        def in_vain() -> bool:
            current = state.current
            if current is None:
                return False
            desk, answers = current.desk, current.round.answers
            refused = {silo for silo, answer in answers.items() if answer == "refusal"}
            missing = {
                silo
                for step in desk._order
                if desk.is_open(step)
                for silo in desk.expected(step) - desk.answered(step) - refused
            }
            return bool(missing) and missing <= {silo for silo, at in self.gone if at in ("", current.ctx)}

        async def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
            if state.current is None or seconds != state.current.round.plan.deadline_s:
                return await usual(condition, seconds)

            def settled() -> tuple[Any] | None:
                found = condition()
                return (found,) if found is not None or in_vain() else None

            found = await usual(settled, seconds)
            return None if found is None else found[0]

        state.bell.wait_for = wait_for  # type: ignore[method-assign]  # time is the test's

    @asynccontextmanager
    async def running(self) -> Any:
        """The aggregator with its loop going."""
        aggregator = self.aggregator = self.build()
        work = asyncio.create_task(aggregator.loop.run())
        try:
            yield aggregator
        finally:
            self.aggregator = None
            aggregator.state.bell.silence()
            await asyncio.wait_for(work, 20)
            aggregator.state.store.close()

    @asynccontextmanager
    async def killed(self, when: Callable[[Aggregator], bool]) -> Any:
        """An aggregator that is killed as soon as ``when`` holds: what it held in memory is gone."""
        aggregator = self.aggregator = self.build()
        work = asyncio.create_task(aggregator.loop.run())
        try:
            yield aggregator
            await aggregator.state.bell.wait_for(lambda: True if when(aggregator) else None, 30)
        finally:
            self.aggregator = None
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            aggregator.state.current = None
            aggregator.state.bell.silence()
            aggregator.state.store.close()

    def spec(self, parameters: int = 5, **changes: Any) -> JobSpec:
        """A small job of one round, whose deadlines are past any patience but the world's own."""
        terms = {"scheme": "pairwise", "rounds": 1, "round_deadline_s": 601, **changes}
        return self.federation.job_spec(parameters=parameters, **terms)

    async def submit(self, spec: JobSpec) -> None:
        """The researcher's job."""
        assert self.aggregator is not None
        await submit(self, self.aggregator, spec)  # type: ignore[arg-type]  # it needs the federation only

    def silos(self, **changes: Mapping[str, Any]) -> list[CarriedSilo]:
        """Every silo of the federation with an update of its own; ``changes``: silo_1={"leaves": "keys"}."""
        silos = []
        for number, name in enumerate(self.federation.charter.silos, 1):
            silos.append(self.silo(name, 0.25 * number, **changes.get(name.replace("-", "_"), {})))
        return silos

    def silo(self, name: str, value: float, **changes: Any) -> CarriedSilo:
        """One silo, of the kind that this world has."""
        return CarriedSilo(self, name, value, **changes)

    async def run_job(self, spec: JobSpec, silos: Sequence[CarriedSilo]) -> dict[str, Any]:
        """Submit, have the silos take part until the job has ended, and return its view."""
        await self.submit(spec)
        await self.work(silos)
        return await self.view(spec.job)

    async def work(self, silos: Sequence[CarriedSilo], seconds: float = 90) -> None:
        """Have the silos take part, each in a thread of its own, until the job has ended."""
        for silo in silos:
            silo.stopping.clear()
        threads = ThreadPoolExecutor(len(silos))
        try:
            running = [self.loop.run_in_executor(threads, silo.run) for silo in silos]
            await asyncio.wait_for(asyncio.gather(*running), seconds)
        finally:
            for silo in silos:
                silo.stopping.set()
            # Not on this thread: they may be waiting for an answer of the aggregator, which runs on it.
            await asyncio.to_thread(threads.shutdown)

    async def view(self, job: str = "heart") -> dict[str, Any]:
        """The job, as its researcher sees it."""
        assert self.aggregator is not None
        der = self.federation.certificate_der("researcher")
        async with client_of(self.aggregator.app, der) as client:
            answer = await client.get(f"/v1/jobs/{job}")
        return dict(answer.json())

    async def model(self, digest: str) -> bytes:
        """A published model."""
        assert self.aggregator is not None
        return self.aggregator.state.models.path(digest).read_bytes()

    async def until(self, happened: Callable[[OpenRound], bool]) -> OpenRound:
        """The open round, once that holds of it."""

        def look() -> OpenRound | None:
            current = None if self.aggregator is None else self.aggregator.state.current
            return current if current is not None and happened(current) else None

        assert self.aggregator is not None
        current = await self.aggregator.state.bell.wait_for(look, 30)
        assert current is not None, "it did not happen in time"
        return current

    def wait_until(self, happened: Callable[[OpenRound], bool]) -> None:
        """The same, from a silo's thread."""
        asyncio.run_coroutine_threadsafe(self.until(happened), self.loop).result()

    def call(self, method: str, party: str, path: str, raw: bytes = b"") -> httpx.Response:
        """One call as any party, from a silo's thread."""
        with httpx.Client(transport=_OnLoop(self, party), base_url="https://aggregator.test") as client:
            headers = content_digest(raw) if method == "PUT" else {}
            return client.request(method, path, content=raw, headers=headers)

    def log(self) -> list[tuple[str, dict[str, Any]]]:
        """Kind and body of every entry of the aggregator's log."""
        assert self.aggregator is not None
        store = self.aggregator.state.store
        with store.read() as view:
            entries = [parse_record(line) for line in store.log.lines(view.connection)]
        return [(entry.kind, entry.body) for entry in entries]


class Wire(Delivery):
    """A silo's production calls, cut where its test says."""

    def __init__(self, silo: CarriedSilo, identity: Identity) -> None:
        super().__init__(identity, silo.world.federation.charter, None, silo.stopping)
        self.aggregator.close()
        self.aggregator = FederationClient(
            identity,
            "https://aggregator.test",
            stopping=silo.stopping,
            patience_s=20,
            transport=_OnLoop(silo.world, silo.name),
        )
        self._of = silo

    def next_offer(self, after: Digest | None) -> Envelope | None:
        params = {} if after is None else {"after": after}
        return self.aggregator.poll_envelope("/v1/offers", wait_s=1, params=params)

    def await_step(self, context: Context, step: str) -> tuple[Envelope, ...]:
        inbox = super().await_step(context, step)
        self._of.inboxes.setdefault(step, []).append(inbox)
        if step in self._of.shown:
            return self._of.shown[step](inbox)  # type: ignore[index]  # a step's name
        return inbox

    def send_step(self, context: Context, step: str, messages: Sequence[Envelope]) -> None:
        silo = self._of
        if silo.leaves == step:
            raise Gone
        if silo.crashes == ("before", step):
            silo.crashes = None
            raise Crashed
        if step in silo.tampers:
            messages = silo.tampers[step](tuple(messages))  # type: ignore[index]  # a step's name
        silo.sent.setdefault(step, []).append(tuple(messages))
        super().send_step(context, step, messages)
        if silo.twice:
            super().send_step(context, step, messages)
        if silo.crashes == ("after", step):
            silo.crashes = None
            raise Crashed

    def put_file(self, context: Context, name: str, index: int, raw: bytes) -> None:
        silo = self._of
        if silo.crashes == ("before", "parts"):
            silo.crashes = None
            raise Crashed
        if silo.uploads is not None:
            sent = silo.uploads(raw)
            if sent is None:
                return
            raw = sent
        super().put_file(context, name, index, raw)
        if silo.twice:
            super().put_file(context, name, index, raw)


@dataclass
class CarriedSilo:
    """A silo without data: it has an update, and everything else that an agent has."""

    world: PairwiseWorld
    name: str
    value: float
    leaves: AnyStep | None = None
    crashes: tuple[Literal["before", "after"], str] | None = None
    tampers: dict[AnyStep, Tamper] = field(default_factory=dict)
    """What it sends in a step instead."""
    shown: dict[AnyStep, Tamper] = field(default_factory=dict)
    """What a lying aggregator shows it as the inbox of a step instead."""
    refuses: bool = False
    twice: bool = False
    """Sends everything two times."""
    own_policy: str | None = None
    """Its own threat model; else the federation's."""
    uploads: Callable[[bytes], bytes | None] | None = None
    """What it uploads as a part instead, if anything."""
    masked_under: Digest | None = None
    """The model it believes it was sent, where that is another."""
    hides_it: bool = False
    """Its manifest names the plan's model all the same."""
    on_return: Callable[[], None] = lambda: None
    """What happens while its process is down."""
    before_offers: Callable[[], None] = lambda: None
    charge: Callable[[RoundPlan], Head] = lambda plan: EMPTY
    """What reserves the round in a ledger before it signs a manifest; the ledger's head."""
    inboxes: dict[str, list[tuple[Envelope, ...]]] = field(default_factory=dict)
    sent: dict[str, list[tuple[Envelope, ...]]] = field(default_factory=dict)
    encoded: list[Ring] = field(default_factory=list)
    """Its encoded update, one a round in which it got so far."""
    results: list[RoundResult] = field(default_factory=list)
    faults: list[SealsumError] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.directory = self.world.root / self.name
        self.identity = self.world.federation.identity(self.name, self.directory)
        self.outbox = Outbox(self.directory / "outbox")
        self.silo = SiloId(PartyId(self.name))

    @property
    def policies(self) -> tuple[LoadedPolicy, ...]:
        text = self.world.federation.policy_text
        return load_threat_model(text), load_threat_model(self.own_policy or text)

    def seat(self, plan: RoundPlan, delivery: Delivery) -> Seat:
        """Its seat in a round, as ``Attendance`` makes it."""
        return Seat(
            plan=plan,
            silo=self.silo,
            aggregator=PartyId("aggregator"),
            identity=self.identity,
            charter=self.world.federation.charter,
            policies=self.policies,
            delivery=delivery,
            directory=self.directory / "secrets" / plan.context,
        )

    def run(self) -> None:
        """Answer offers until the job has ended, or this silo is gone for good."""
        self.before_offers()
        wire, after = Wire(self, self.identity), None
        try:
            while not self.stopping.is_set():
                offer = wire.next_offer(after)
                if offer is None:
                    if wire.job_has_ended("heart"):
                        return
                    continue
                plan = open_offer(offer, self.world.federation.charter)[0].message.plan
                after = plan.context
                self._take_part(offer, plan, wire)
                result = None
                while result is None and not self.stopping.is_set():
                    result = wire.wait_for_result(plan.context)
                if result is None:
                    return
                self.results.append(open_result(result, plan, self.world.federation.charter))
                if self.results[-1].job_state != "running":
                    return
        finally:
            wire.close()

    def _take_part(self, offer: Envelope, plan: RoundPlan, wire: Wire) -> None:
        if self.refuses:
            self._refuse(plan, SealsumError("a silo's own reason"), wire)
            return
        try:
            self._carry(offer, plan, wire)
        except Gone:
            self.world.leave(self.name, plan.context)
        except Crashed:
            self._come_back(offer, plan, wire)
        except SealsumError as error:
            self.faults.append(error)
            self._refuse(plan, error, wire)

    def _carry(self, offer: Envelope, plan: RoundPlan, wire: Wire) -> None:
        half = half_of(self.seat(plan, wire))
        half.prepare()
        if self.leaves == "masked":
            raise Gone
        update = Recorded(plan, np.full(plan.parameters, self.value, dtype=np.float32), 1.0)
        half.agree()
        self.outbox.put_parts(plan.context, half.seal(update, self.masked_under or plan.model))
        if self.hides_it:
            half._masker.model = plan.model  # type: ignore[attr-defined]  # a silo may alter its own memory
        self.encoded.append(np.concatenate(update.drawn))
        signed = half.manifest(self.charge(plan))
        contribution = Contribution(offer=offer, manifest=signed.manifest, seeds=signed.seeds)
        self._finish(half, self.outbox.complete(plan.context, contribution))

    def _come_back(self, offer: Envelope, plan: RoundPlan, wire: Wire) -> None:
        """As an agent starts: go on with a complete contribution, be offered the round again without one."""
        self.on_return()
        pending = self.outbox.pending()
        try:
            if pending:
                self._finish(half_of(self.seat(plan, wire)), pending[0])
            else:
                self._carry(offer, plan, wire)
        except SealsumError as error:
            self.faults.append(error)
            self._refuse(plan, error, wire)

    def _finish(self, half: SchemeHalf, stored: Stored) -> None:
        try:
            half.deliver(stored)
            half.conclude(stored)
        except SealsumError as error:
            self.faults.append(error)
            self.world.leave(self.name, stored.context)

    def _refuse(self, plan: RoundPlan, error: SealsumError, wire: Wire) -> None:
        refusal = refusal_of(error, self.silo)
        envelope = sign_message(refusal, "refusal", plan.context, self.silo, self.identity.signing)
        try:
            wire.refuse(plan.context, envelope)
        except SealsumError as fault:
            self.faults.append(fault)


class Recorded(EncodedUpdate):
    """An encoded update that the test keeps a copy of, to add up in the open."""

    def __init__(self, plan: RoundPlan, values: NDArray[np.float32], weight: float) -> None:
        super().__init__(plan, FloatUpdate(values, further_of(plan, values)), weight)
        self.drawn: list[Ring] = []
        self.drawn_of_further: dict[VectorName, Ring] = {}

    def elements(self, start: int, length: int, vector: VectorName = MODEL) -> Ring:
        encoded = super().elements(start, length, vector)
        if vector == MODEL:
            self.drawn.append(encoded)
        else:
            self.drawn_of_further[vector] = encoded
        return encoded


def further_of(plan: RoundPlan, values: NDArray[np.float32]) -> dict[VectorName, FloatUpdate]:
    """Further vectors of a silo's test update, each an own multiple of its first value."""
    return {
        VectorName(vector.name): FloatUpdate(
            np.full(vector.coordinates, values[0] / (2 + number), dtype=np.float32)
        )
        for number, vector in enumerate(plan.further)
    }


def oracle_model(
    spec: JobSpec, survivors: Sequence[CarriedSilo], number: int = 0, before: bytes | None = None
) -> bytes:
    """The model that the plain sum of the survivors' updates leads to, from the zero model or another."""
    total = np.sum(np.stack([silo.encoded[number] for silo in survivors]), axis=0, dtype=np.uint32)
    opened = decode(total, spec.vector)
    zero = np.zeros(spec.model.parameters, dtype="<f4")
    model = zero if before is None else np.frombuffer(before, dtype="<f4")
    one = Opened(model, opened[:-1], float(opened[-1]))
    return model_bytes(SERVER_STEPS["dp_fedavg"](one, {}, spec.training, Moment(1, spec.rounds, 0)).model)


def files_under(directory: Path) -> Iterator[Path]:
    """Every file, however deep."""
    return (path for path in directory.rglob("*") if path.is_file())
