"""Every call that changes a server, sent again byte for byte: the same answer, and no more is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from sqlalchemy import Engine, event

from aggregator.access import AGGREGATOR, SHARE_SERVER
from privacy.canonical import canonical_bytes
from privacy.ids import PartyId
from privacy.transparency.checkpoint import cosign, log_origin, open_checkpoint, witness_name
from privacy.transparency.leaf import parse_record
from privacy.wire.attack_results import AttackOutcome, AttackResult
from privacy.wire.envelope import parse_envelope
from privacy.wire.messages import RoundResult
from tests.access_world import AccessWorld
from tests.aggregator_world import (
    AsTlsPeer,
    Silo,
    World,
    client_of,
    content_digest,
    on_loop,
    submission,
    submit,
)
from tests.attacks.test_aggregator_share_server import Table, _listed
from tests.he_world import HeWorld
from tests.validity_world import world as validity_world

ROUND: Final = {
    ("PUT", "/v1/models/{digest}"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/{job}/readiness"),
    ("POST", "/v1/rounds"),
    ("PUT", "/v1/rounds/{ctx}/parts/{index}"),
    ("POST", "/v1/rounds/{ctx}/manifests"),
    ("POST", "/v1/rounds/{ctx}/refusals"),
    ("POST", "/v1/rounds/{ctx}/close"),
    ("POST", "/v1/rounds/{ctx}/agree"),
    ("POST", "/v1/rounds/{ctx}/release"),
    ("POST", "/v1/rounds/{ctx}/finish"),
    ("PUT", "/v1/jobs/{job}/attacks"),
}
VALIDITY: Final = {
    ("POST", "/v1/rounds/{ctx}/coins/{over}/commit"),
    ("POST", "/v1/rounds/{ctx}/coins/{over}/reveal"),
    ("POST", "/v1/rounds/{ctx}/coins/{over}/settle"),
    ("PUT", "/v1/rounds/{ctx}/witness"),
    ("POST", "/v1/rounds/{ctx}/proofs"),
    ("POST", "/v1/rounds/{ctx}/proofs/close"),
    ("POST", "/v1/rounds/{ctx}/checks/{silo}"),
    ("PUT", "/v1/rounds/{ctx}/checks/{silo}/{of}"),
    ("POST", "/v1/rounds/{ctx}/judge"),
    ("POST", "/v1/rounds/{ctx}/steps/{step}"),
}
ENCRYPTED: Final = {
    ("PUT", "/v1/jobs/{job}/he-key"),
    ("POST", "/v1/rounds/{ctx}/steps/{step}"),
    ("PUT", "/v1/rounds/{ctx}/files/{name}/{index}"),
}
OF_PEOPLE: Final = {
    ("POST", "/v1/drain"),
    ("DELETE", "/v1/drain"),
    ("POST", "/v1/holds"),
    ("DELETE", "/v1/holds/{job}"),
    ("POST", "/v1/expire"),
    ("POST", "/v1/collect"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/{token}"),
}
EVERYWHERE: Final = {("PUT", "/v1/charter"), ("POST", "/v1/log/cosignatures")}

KEY: Final = {"idempotency-key": '"6f1c1f0e-9a53-4f0b-8d5b-0b7c2f1d9a11"'}
_repeating: ContextVar[bool] = ContextVar("_repeating", default=False)
_USUAL: Final = AsTlsPeer.handle_async_request


def changing() -> set[tuple[str, str]]:
    """The rows of the access tables whose calls change something."""
    return {endpoint for endpoint in {**AGGREGATOR, **SHARE_SERVER} if endpoint[0] != "GET"}


def row_of(method: str, path: str) -> tuple[str, str]:
    for named, template in changing():
        if named == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return named, template
    raise AssertionError(f"{method} {path}: no row")


@dataclass
class Twice:
    """Sends each call that changes something twice; notes other answers, and what the second one wrote."""

    called: set[tuple[str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    sent: list[tuple[AsTlsPeer, httpx.Request]] = field(default_factory=list)

    async def send(self, transport: AsTlsPeer, request: httpx.Request) -> httpx.Response:
        await request.aread()
        first = await _USUAL(transport, request)
        answer = await first.aread()
        if request.method != "GET" and first.is_success:
            row = row_of(request.method, request.url.path)
            self.called.add(row)
            self.sent.append((transport, request))
            again = await self.repeat(transport, request)
            # 201 says that it is new, 200 that it is here.
            if (again.status_code, again.content) not in ((first.status_code, answer), (200, answer)):
                self.wrong.append(f"{row}: {first.status_code}, then {again.status_code} {again.text[:200]}")
        return httpx.Response(first.status_code, headers=first.headers, content=answer)

    async def repeat(self, transport: AsTlsPeer, request: httpx.Request) -> httpx.Response:
        token = _repeating.set(True)
        try:
            answer = await _USUAL(transport, request)
            await answer.aread()
        finally:
            _repeating.reset(token)
        return answer

    def wrote(self, statement: str) -> None:
        if _repeating.get() and statement.split(maxsplit=1)[0] in ("INSERT", "UPDATE", "DELETE"):
            self.wrong.append(statement)


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> Iterator[Twice]:
    both = Twice()

    async def handle(transport: AsTlsPeer, request: httpx.Request) -> httpx.Response:
        return await both.send(transport, request)

    def executing(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        both.wrote(statement)

    monkeypatch.setattr(AsTlsPeer, "handle_async_request", handle)
    event.listen(Engine, "before_cursor_execute", executing)
    yield both
    event.remove(Engine, "before_cursor_execute", executing)


def kinds(store: Any) -> list[str]:
    with store.read() as view:
        return [parse_record(line).kind for line in store.log.lines(view.connection)]


def test_every_call_that_changes_something_is_repeated_here() -> None:
    assert changing() == ROUND | VALIDITY | ENCRYPTED | OF_PEOPLE | EVERYWHERE


@on_loop
async def test_a_round_of_which_every_call_comes_twice_is_the_same_round_and_replayed_later_it_is_nothing(
    tmp_path: Path, twice: Twice
) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=1)
    update = np.full(spec.model.parameters, 0.5, dtype=np.float32)
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Silo(world, aggregator, f"silo-{n}", update, refuses=n == 4) for n in range(1, 5)]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
        with aggregator.state.store.read() as view:
            model = view.connection.exec_driver_sql("SELECT model FROM jobs").scalar_one()
        said = AttackResult(
            job=spec.job, job_digest=spec.digest, model=model, suite="quick", version="1", results="ab" * 32,
            outcomes=(AttackOutcome(attack="canaries", protection="noise", verdict="consistent"),),
            at="2026-06-30T00:00:00Z",
        )  # fmt: skip
        envelope = world.federation.sign(said, "attack_result", spec.digest, "silo-1")
        async with client_of(aggregator.app, world.federation.certificate_der("silo-1")) as client:
            answer = await client.put("/v1/jobs/heart/attacks", content=canonical_bytes(envelope))
        assert answer.status_code == 202, answer.text
        told = kinds(aggregator.state.store)
    assert twice.wrong == []
    assert twice.called >= ROUND
    once = (
        "job_accepted",
        "round_offered",
        "silo_refused",
        "model_published",
        "job_ended",
        "attacks_reported",
    )
    assert [told.count(kind) for kind in once] == [1] * len(once)

    # Every process begins anew, and all that was ever sent comes once more.
    again = world.build_aggregator()
    apps = {id(aggregator.app): again.app}
    for name, server in list(world.servers.items()):
        apps[id(server.app)] = world.start_server(name).app
    for transport, request in twice.sent:
        _, der = transport.of
        renewed = AsTlsPeer(apps[id(transport.of[0])], der)
        assert (await twice.repeat(renewed, request)).status_code in (200, 202, 204, 404, 409)
    assert twice.wrong == []
    again.state.store.close()


@pytest.mark.slow
@on_loop
async def test_each_of_a_share_servers_calls_is_answered_the_same_again_and_after_a_restart(
    tmp_path: Path, twice: Twice
) -> None:
    table = Table(tmp_path)
    federation, ctx = table.federation, f"/v1/rounds/{table.ctx}"

    async def call(party: str, method: str, path: str, raw: bytes = b"", **given: Any) -> list[bytes]:
        answers = []
        for server in given.pop("to", tuple(table.world.servers)):
            async with table.world.as_party(party, server) as client:
                first = await client.request(method, path, content=raw, **given)
            assert first.is_success, first.text
            table.world.start_server(server)
            async with table.world.as_party(party, server) as client:
                again = await twice.repeat(
                    client._transport, client.build_request(method, path, content=raw, **given)
                )  # type: ignore[arg-type]  # ours
            assert (again.is_success, again.content) == (True, first.content), (path, again.text)
            answers.append(first.content)
        return answers

    async def judged(name: str, said: list[bytes]) -> list[bytes]:
        return await call(
            "aggregator", "POST", f"{ctx}/{name}", _listed([parse_envelope(one) for one in said])
        )

    await call("aggregator", "POST", "/v1/rounds", canonical_bytes(federation.offer(table.plan, table.job)))
    for silo in table.plan.silos:
        update = table.share(silo)
        for index, part in enumerate(update.parts):
            path = f"{ctx}/parts/{index}"
            await call(silo, "PUT", path, part, to=("server-0",), headers=content_digest(part))
        for server in table.world.servers:
            await call(silo, "POST", f"{ctx}/manifests", submission(update, server), to=(server,))
    survivors = await judged("agree", await call("aggregator", "POST", f"{ctx}/close"))
    await judged("release", survivors)
    ended = RoundResult(
        outcome="opened", reason="done", survivors=table.plan.silos, model_in=table.plan.model,
        model_out=table.plan.model, openings=1, job_state="running",
    )  # fmt: skip
    result = canonical_bytes(federation.sign(ended, "result", table.ctx, "aggregator"))  # type: ignore[arg-type]  # it is one
    await call("aggregator", "POST", f"{ctx}/finish", result)
    assert twice.wrong == []


@pytest.mark.slow
@on_loop
async def test_proofs_coins_checks_and_verdicts_that_come_twice_count_once(
    tmp_path: Path, twice: Twice
) -> None:
    here = validity_world(tmp_path)
    silos = here.silos()
    outcome = await here.run_job(here.spec(), silos)
    assert (outcome.view["state"], [silo.faults for silo in silos]) == ("finished", [[], [], [], []])
    assert twice.wrong == []
    assert twice.called >= VALIDITY


@pytest.mark.slow
@on_loop
async def test_keys_steps_and_files_that_come_twice_count_once(tmp_path: Path, twice: Twice) -> None:
    world = HeWorld(tmp_path)
    silos = world.silos()
    async with world.running():
        view = await world.run_job(world.spec(), silos)
    assert (view["state"], [silo.faults for silo in silos]) == ("finished", [[], [], [], []])
    assert twice.wrong == []
    assert twice.called >= ENCRYPTED


@pytest.mark.slow
@on_loop
async def test_what_people_ask_twice_is_done_once_also_after_a_restart(tmp_path: Path, twice: Twice) -> None:
    people = AccessWorld(tmp_path)
    aggregator = people.aggregator()
    spec = people.world.federation.job_spec()
    await submit(people.world, aggregator, spec, approved=False)

    async def call(method: str, path: str, document: Any = None, role: Any = "site_admin") -> httpx.Response:
        nonlocal aggregator
        raw = b"" if document is None else canonical_bytes(document)
        async with people.client(aggregator.app, people.certificate(role)) as client:
            first = await client.request(method, path, content=raw, headers=KEY)
        assert first.is_success, first.text
        aggregator.state.store.close()
        aggregator = people.aggregator()
        async with people.client(aggregator.app, people.certificate(role)) as client:
            request = client.build_request(method, path, content=raw, headers=KEY)
            again = await twice.repeat(client._transport, request)  # type: ignore[arg-type]  # ours
        assert (again.is_success, again.content) == (True, first.content), again.text
        return first

    await call("POST", "/v1/drain", {"what": "jobs", "reason": "disk"})
    await call("DELETE", "/v1/drain")
    await call("POST", "/v1/holds", {"job": spec.job, "reason": "file 7"})
    await call("DELETE", f"/v1/holds/{spec.job}", role="dpo")
    await call("POST", "/v1/expire", {"older_than_days": 0})
    await call("POST", "/v1/collect", {})
    wanted = {"role": "auditor", "scopes": ["logs"], "days": 7, "label": "siem"}
    issued = await call("POST", "/v1/tokens", wanted)
    await call("DELETE", f"/v1/tokens/{issued.json()['id']}")
    assert twice.wrong == []
    assert twice.called >= OF_PEOPLE
    told = kinds(aggregator.state.store)
    of_people = ("drain_began", "drain_ended", "job_held", "hold_released", "token_issued", "token_revoked")
    assert [told.count(kind) for kind in of_people] == [1] * 6
    async with people.client(aggregator.app, people.certificate("site_admin")) as client:
        assert len((await client.get("/v1/tokens")).json()["tokens"]) == 1
        for changed in ({**wanted, "label": "another"}, {**wanted, "days": 8}):
            other = await client.post("/v1/tokens", content=canonical_bytes(changed), headers=KEY)
            assert other.status_code == 422
            assert "another call was made under it" in other.json()["detail"]
        short = await client.post(
            "/v1/tokens", content=canonical_bytes(wanted), headers={**KEY, "idempotency-key": '"1"'}
        )
        assert short.status_code == 400
    aggregator.state.store.close()
    secret = issued.json()["token"].rsplit("_", 1)[1]
    raw = b"".join(path.read_bytes() for path in (tmp_path / "aggregator").glob("server.db*"))
    assert secret.encode() not in raw
    assert KEY["idempotency-key"].strip('"').encode() not in raw


@on_loop
async def test_charters_and_cosignatures_that_come_twice_count_once_at_either_kind_of_server(
    tmp_path: Path, twice: Twice
) -> None:
    world = World(tmp_path)
    federation = world.federation
    aggregator = world.build_aggregator()
    apps: dict[str, tuple[Any, Callable[[], Any]]] = {
        "server-0": (world.servers["server-0"].app, lambda: world.servers["server-0"].store),
        "aggregator": (aggregator.app, lambda: aggregator.state.store),  # it hands the charter on
    }
    for party, (app, store) in apps.items():
        async with client_of(app, federation.certificate_der("silo-1")) as client:
            served = (await client.get("/v1/log/checkpoint")).json()["checkpoint"]
            shown = open_checkpoint(
                served,
                log_origin(federation.name, PartyId(party)),
                federation.parties[party].member.verify_key,
            )
            line = cosign(
                shown, witness_name(federation.name, PartyId("silo-1")), federation.key("silo-1"), 1
            ).line()
            document = {"size": shown.head.size, "cosignature": line, "own": None}
            answer = await client.post("/v1/log/cosignatures", content=canonical_bytes(document))
            assert answer.status_code == 202, answer.text
            charter = federation.endorse(federation.next_charter())
            assert (await client.put("/v1/charter", content=canonical_bytes(charter))).status_code == 201
        assert kinds(store()).count("checkpoint_cosigned") == 1
    assert twice.wrong == []
    assert twice.called == EVERYWHERE
    aggregator.state.store.close()
