"""Rounds with validity in one process: real aggregator and share servers, and agents' halves that may cheat.

Servers live on the test's event loop. Each silo runs in a thread, as an agent does, and calls them through
the production client. A silo can leave before a step, share a vector that is out of bounds and prove as well
as can be, or send what its half did not make.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
from numpy.typing import NDArray

from aggregator.assembly import Aggregator
from aggregator.schemes.additive_validity import PROVE
from aggregator.state import AggregatorState
from policies.loader import load_threat_model
from privacy.canonical import sha256_hex
from privacy.chain import EMPTY, Head
from privacy.errors import OutOfOrder, SealsumError
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.plan import JobSpec, RoundPlan, ValidityClaim
from privacy.secagg.validity.bits import spell
from privacy.secagg.validity.field import MODULUS, centred, to_bytes
from privacy.secagg.validity.sharing import Binding
from privacy.secagg.validity.terms import ValidityTerms, terms_of
from privacy.secagg.vectors import MODEL, VectorName
from privacy.transparency.leaf import parse_record
from privacy.wire.envelope import Envelope
from privacy.wire.messages import RoundResult
from silo_agent.delivery import Delivery
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Contribution, Outbox, Stored
from silo_agent.participation import open_offer
from silo_agent.refusals import refusal_of
from silo_agent.results import open_result
from silo_agent.schemes.catalogue import half_of
from silo_agent.schemes.half import Seat
from silo_agent.schemes.validity import ValidityHalf
from silo_agent.transport import FederationClient
from silo_agent.update import FloatUpdate
from tests.aggregator_world import AsTlsPeer, World, client_of, submit
from tests.federation import Federation
from tests.validity_cohort import CheatingSilo

Leaves = Literal["shares", "prove", "witness", "desk"]
NORM_BOUND = 2.0


class Gone(Exception):
    """The silo's process ends here and does not come back in this round."""


@dataclass
class ValidityWorld(World):
    """One federation, whose jobs claim an L2 bound."""

    grace_s: float = 30.0
    """All silos are waited for, however busy this machine is."""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """Party, method and path of every silo's call."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loop = asyncio.get_running_loop()
        self.aggregator: Aggregator | None = None
        self.gone: set[str] = set()

    def leave(self, silo: str) -> None:
        """From a silo's thread: it will not answer any more in this round."""
        self.gone.add(silo)
        assert self.aggregator is not None
        self.loop.call_soon_threadsafe(self.aggregator.state.bell.ring)

    def spec(self, parameters: int = 5, norm_bound: float = NORM_BOUND, **changes: Any) -> JobSpec:
        """A small job of one round, whose deadlines are short."""
        terms = {"validity": ValidityClaim(norm_bound=norm_bound), "rounds": 1, "round_deadline_s": 61}
        return self.federation.job_spec(parameters=parameters, **{**terms, **changes})

    def silos(self, **changes: dict[str, Any]) -> list[ProvingSilo]:
        """Every silo with an update of its own; ``changes``: silo_1={"leaves": "prove"}."""
        return [
            ProvingSilo(self, name, **{"value": 0.2 * number, **changes.get(name.replace("-", "_"), {})})
            for number, name in enumerate(self.federation.charter.silos, 1)
        ]

    async def run_job(self, spec: JobSpec, silos: Sequence[ProvingSilo], **settings: Any) -> Outcome:
        """Submit, have the silos take part until the job has ended, and say how it ended."""
        aggregator = self.aggregator = self.build_aggregator(**settings)
        self._pass_deadlines(aggregator.state, spec.round_deadline_s)
        async with self.running(aggregator):
            await submit(self, aggregator, spec)
            with ThreadPoolExecutor(len(silos)) as threads:
                try:
                    running = [self.loop.run_in_executor(threads, silo.run) for silo in silos]
                    await asyncio.wait_for(asyncio.gather(*running), 90)
                finally:
                    for silo in silos:
                        silo.stopping.set()
            async with client_of(aggregator.app, self.federation.certificate_der("researcher")) as client:
                view = (await client.get("/v1/jobs/heart")).json()
            model = aggregator.state.models.path(view["model"]).read_bytes()
            log = self.log_of(aggregator.state.store)
        return Outcome(view, np.frombuffer(model, dtype="<f4").copy(), log)

    def _pass_deadlines(self, state: AggregatorState, deadline_s: int) -> None:
        """A deadline passes when only silos are missing that are gone, however busy this machine is."""
        usual = state.bell.wait_for

        def in_vain() -> bool:
            current = state.current
            if current is None:
                return False
            if current.round.phase == "collecting":
                missing = set(current.round.plan.silos) - set(current.round.answers)
            else:
                missing = set(current.desk.expected(PROVE) - current.desk.answered(PROVE))
            return bool(missing) and missing <= self.gone

        async def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
            if seconds != deadline_s:
                return await usual(condition, seconds)

            def settled() -> tuple[Any] | None:
                found = condition()
                return (found,) if found is not None or in_vain() else None

            found = await usual(settled, seconds)
            return None if found is None else found[0]

        state.bell.wait_for = wait_for  # type: ignore[method-assign]  # time is the test's

    @staticmethod
    def log_of(store: Any) -> list[tuple[str, dict[str, Any]]]:
        """Kind and body of every entry of a server's log."""
        with store.read() as view:
            entries = [parse_record(line) for line in store.log.lines(view.connection)]
        return [(entry.kind, entry.body) for entry in entries]


@dataclass
class Outcome:
    """How a job of one round ended."""

    view: dict[str, Any]
    model: NDArray[np.float32]
    log: list[tuple[str, dict[str, Any]]]

    @property
    def refused(self) -> dict[str, list[str]]:
        """Whose update was left out by name, and the rule that says why."""
        return {body["silo"]: body["rules"] for kind, body in self.log if kind == "update_refused"}


class OnLoop(httpx.BaseTransport):
    """Reaches an application on the test's loop from a silo's thread."""

    def __init__(self, silo: ProvingSilo, server: str) -> None:
        self._silo, self._server = silo, server
        self._der = silo.world.federation.certificate_der(silo.name)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        world = self._silo.world

        async def call() -> httpx.Response:
            if self._server == "aggregator":
                assert world.aggregator is not None
                app = world.aggregator.app
            else:
                app = world.servers[self._server].app
            answer = await AsTlsPeer(app, self._der).handle_async_request(request)
            return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())

        world.calls.append((self._silo.name, request.method, request.url.path))
        return asyncio.run_coroutine_threadsafe(call(), world.loop).result()


class Wire(Delivery):
    """A silo's production calls, cut where its test says."""

    def __init__(self, silo: ProvingSilo) -> None:
        super().__init__(silo.identity, silo.world.federation.charter, None, silo.stopping)

        def dial(server: str) -> FederationClient:
            transport = OnLoop(silo, server)
            url = f"https://{server}.test"
            return FederationClient(silo.identity, url, stopping=silo.stopping, transport=transport)

        for client in (self.aggregator, *self._servers.values()):
            client.close()
        self.aggregator = dial("aggregator")
        self._servers = {server: dial(server) for server in self._servers}
        self._of = silo

    def next_offer(self, after: Digest | None) -> Envelope | None:
        params = {} if after is None else {"after": after}
        return self.aggregator.poll_envelope("/v1/offers", wait_s=1, params=params)

    def to_share_servers(self, stored: Stored, first: ServerId) -> None:
        if self._of.leaves == "shares":
            raise Gone
        super().to_share_servers(stored, first)
        self._of.stored = stored

    def await_step(self, context: Context, step: str) -> tuple[Envelope, ...]:
        if self._of.leaves == "prove":
            raise Gone
        inbox = super().await_step(context, step)
        self._of.inbox = inbox
        return self._of.shown(inbox)

    def prove(self, context: Context, first: ServerId, witness: bytes, proof: Envelope) -> None:
        if self._of.leaves == "witness":
            raise Gone
        witness, proof = self._of.tamper(witness, proof)
        super().prove(context, first, witness, proof)
        if self._of.leaves == "desk":
            raise Gone

    def send_step(self, context: Context, step: str, messages: Sequence[Envelope]) -> None:
        super().send_step(context, step, [self._of.at_desk(one) for one in messages])


@dataclass
class ProvingSilo:
    """A silo without data: it has an update, and everything else that an agent has."""

    world: ValidityWorld
    name: str
    value: float
    """Length of its update, whose coordinates are all alike."""
    update: NDArray[np.float32] | None = None
    """Its whole update instead."""
    encoded: Sequence[int] | None = None
    """d coordinates and a weight mod p that it shares instead, proving as well as can be."""
    leaves: Leaves | None = None
    restarts: bool = False
    """Its process ends after its shares are sent, and comes back."""
    shown: Callable[[tuple[Envelope, ...]], tuple[Envelope, ...]] = lambda inbox: inbox
    """What a lying aggregator shows it as the step's inbox instead."""
    tamper: Callable[[bytes, Envelope], tuple[bytes, Envelope]] = lambda witness, proof: (witness, proof)
    at_desk: Callable[[Envelope], Envelope] = lambda proof: proof
    """What it tells the aggregator instead, when the first server has its proof."""
    before_conclude: Callable[[], None] = lambda: None
    charge: Callable[[RoundPlan], Head] = lambda plan: EMPTY
    """What reserves the round in a ledger before it signs a manifest; the ledger's head."""
    results: list[RoundResult] = field(default_factory=list)
    faults: list[SealsumError] = field(default_factory=list)
    drawn: NDArray[np.uint32] | None = None
    """What it encoded, for the oracle."""
    half: ValidityHalf | None = None
    inbox: tuple[Envelope, ...] = ()
    stored: Stored | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.directory = self.world.root / self.name
        self.identity = self.world.federation.identity(self.name, self.directory)
        self.outbox = Outbox(self.directory / "outbox")
        self.silo = SiloId(PartyId(self.name))

    def seat(self, plan: RoundPlan, delivery: Delivery) -> Seat:
        """Its seat in a round, as ``Attendance`` makes it."""
        return Seat(
            plan=plan,
            silo=self.silo,
            aggregator=PartyId("aggregator"),
            identity=self.identity,
            charter=self.world.federation.charter,
            policies=(load_threat_model(self.world.federation.policy_text),),
            delivery=delivery,
            directory=self.directory / "secrets" / plan.context,
        )

    def run(self) -> None:
        """Answer offers until the job has ended, or this silo is gone for good."""
        wire, after = Wire(self), None
        try:
            while not self.stopping.is_set():
                offer = wire.next_offer(after)
                if offer is None:
                    if wire.job_has_ended("heart"):
                        return
                    continue
                plan = open_offer(offer, self.world.federation.charter)[0].message.plan
                after = plan.context
                with suppress(Gone):
                    self._carry(offer, plan, wire)
                if self.leaves is not None or self.faults:
                    self.world.leave(self.name)
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

    def _carry(self, offer: Envelope, plan: RoundPlan, wire: Wire) -> None:
        half = half_of(self.seat(plan, wire))
        assert isinstance(half, ValidityHalf)
        self.half = half
        half.prepare()
        values = self.update
        if values is None:
            values = np.full(plan.parameters, self.value / plan.parameters**0.5, dtype=np.float32)
        update = Recorded(plan, values, 1.0)
        try:
            parts = list(self._cheat(half, plan)) if self.encoded else list(half.seal(update, plan.model))
        except SealsumError as error:
            self.faults.append(error)
            refusal = refusal_of(error, self.silo)
            envelope = self.world.federation.sign(refusal, "refusal", plan.context, self.name)
            wire.refuse(plan.context, envelope)
            return
        self.outbox.put_parts(plan.context, parts)
        if update.drawn:
            self.drawn = np.concatenate(update.drawn)
        signed = half.manifest(self.charge(plan))
        stored = self.outbox.complete(
            plan.context, Contribution(offer=offer, manifest=signed.manifest, seeds=signed.seeds)
        )
        try:
            half.deliver(stored)
            if self.restarts:
                half = half_of(self.seat(plan, wire))
                with suppress(OutOfOrder):  # the servers may have closed in between
                    half.deliver(stored)
            self.before_conclude()
            half.conclude(stored)
        except SealsumError as error:
            self.faults.append(error)
        self.outbox.remove(plan.context)

    def _cheat(self, half: ValidityHalf, plan: RoundPlan) -> Any:
        """``seal`` of a vector that no honest half would share."""
        assert self.encoded is not None
        terms = terms_of(plan)
        binding = Binding(plan.context, terms.digest, plan.model, self.silo)
        charter = self.world.federation.charter
        keys = {slot.server: charter.member(slot.server).sealing_key for slot in plan.servers}
        cheat = Cheat(terms, binding, keys)
        claim_best(cheat, terms, self.encoded)
        cheat.vector = vector = centred(np.array([x % MODULUS for x in self.encoded], dtype=np.uint64))
        half._half, half._model = cheat, plan.model
        half._encoded = [np.zeros(len(vector), dtype=np.uint32)]  # it proves about its own
        part = to_bytes(cheat.share(0, vector))
        half._digests = [sha256_hex(part)]
        cheat.commit()
        yield part


class Cheat(CheatingSilo):
    """It proves about elements mod p, which no encoded update has."""

    vector: NDArray[np.int64]

    def project(self, start: int, encoded: NDArray[np.int64]) -> None:
        super().project(start, self.vector[start : start + len(encoded)])


class Recorded(EncodedUpdate):
    """An encoding that a test may read, for the oracle."""

    def __init__(self, plan: RoundPlan, values: NDArray[np.float32], weight: float) -> None:
        super().__init__(plan, FloatUpdate(values), weight)
        self.drawn: list[NDArray[np.uint32]] = []

    def elements(self, start: int, length: int, vector: VectorName = MODEL) -> NDArray[np.uint32]:
        drawn = super().elements(start, length, vector)
        self.drawn.append(drawn)
        return drawn


def claim_best(cheat: CheatingSilo, terms: ValidityTerms, encoded: Sequence[int]) -> None:
    """The bits that a cheat claims of a vector out of bounds: as true as they can be within range."""
    bound = terms.encoded_bound**2
    claim = min(sum(x * x for x in encoded[:-1]) % MODULUS, bound)
    weight = min(encoded[-1], terms.weight_scale)
    cheat.claimed_norm = spell([claim, bound - claim], terms.norm_bits)
    cheat.claimed_weight = spell([weight, terms.weight_scale - weight], terms.weight_bits)


def oracle(silos: Sequence[ProvingSilo], scale_bits: int = 20) -> NDArray[np.float64]:
    """Mean of what these silos encoded, from their elements in the open."""
    signed = [silo.drawn.view(np.int32).astype(np.int64) for silo in silos if silo.drawn is not None]
    total = np.sum(signed, axis=0)
    assert total[-1] == len(silos) << scale_bits
    return total[:-1] / 2.0**scale_bits / len(silos)


def world(root: Path, silos: int = 4, servers: int = 2, **federation: Any) -> ValidityWorld:
    """A federation on disk."""
    return ValidityWorld(root, Federation(silos=silos, servers=servers, **federation))
