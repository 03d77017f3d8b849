"""A silo's ledger goes back, forks or begins anew: every server that saw a later head refuses it by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregator.assembly import Aggregator
from privacy.canonical import canonical_bytes
from privacy.chain import EMPTY, Head
from privacy.ids import SiloId
from privacy.plan import JobSpec, RoundPlan
from privacy.transparency.leaf import parse_record
from privacy.wire.ledger_heads import parse_witnessed_heads
from silo_agent.ledger.witnessed import Witness, open_witnessed
from tests.aggregator_world import Silo, World, client_of, on_loop, send_share, submission, submit

SERVERS = ("server-0", "server-1")
LATER = Head(seq=7, hash="7a" * 32)
ROLLED_BACK = "submission.ledger_rolled_back"
FORKED = "submission.ledger_forked"


class Rounds:
    """Rounds of one job at both share servers, played by hand as the aggregator and one silo."""

    def __init__(self, root: Path, silo: str = "silo-1") -> None:
        self.world = World(root)
        self.silo = silo
        self.spec = self.world.federation.job_spec(rounds=4)
        self.job = self.world.federation.sign_job(self.spec)

    async def open(self, number: int) -> RoundPlan:
        """Both servers admit a round."""
        plan = self.world.federation.plan(self.spec, number)
        offer = canonical_bytes(self.world.federation.offer(plan, self.job))
        for client in self.world.to_servers("aggregator").values():
            assert (await client.post("/v1/rounds", content=offer)).status_code == 201
        return plan

    async def show(self, plan: RoundPlan, head: Head, server: str = "server-1") -> httpx.Response:
        """Send one server the silo's share, under a manifest with this head."""
        update = self.world.federation.share(plan, self.silo, ledger_head=head)
        path = f"/v1/rounds/{plan.context}/manifests"
        return await self.world.as_party(self.silo, server).post(path, content=submission(update, server))

    def log(self, server: str) -> list[dict[str, Any]]:
        store = self.world.servers[server].store
        with store.read() as view:
            return [parse_record(line).model_dump() for line in store.log.lines(view.connection)]


def _rules(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [finding["rule"] for finding in answer.json()["findings"]]


@pytest.mark.parametrize(
    ("head", "rule"),
    [
        (Head(seq=6, hash="66" * 32), ROLLED_BACK),
        (Head(seq=0, hash="00" * 32), ROLLED_BACK),
        (EMPTY, ROLLED_BACK),
        (Head(seq=7, hash="7b" * 32), FORKED),
    ],
)
@on_loop
async def test_a_head_that_goes_back_or_forks_is_refused_by_name_and_logged(
    tmp_path: Path, head: Head, rule: str
) -> None:
    rounds = Rounds(tmp_path)
    assert (await rounds.show(await rounds.open(1), LATER)).status_code == 201
    plan = await rounds.open(2)
    refused = await rounds.show(plan, head)
    assert _rules(refused) == [rule]
    assert "restore" in refused.text
    assert "new name" in refused.text
    [entry] = [one for one in rounds.log("server-1") if one["kind"] == "update_refused"]
    fields = entry["fields"]
    assert (fields["silo"]["value"], fields["rules"]["value"]) == ("silo-1", [rule])
    assert (await rounds.show(plan, Head(seq=8, hash="88" * 32))).status_code == 201, "it may go on"


@on_loop
async def test_the_same_head_passes_as_a_job_without_dp_adds_no_entry(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    for number in (1, 2):
        assert (await rounds.show(await rounds.open(number), LATER)).status_code == 201


@on_loop
async def test_a_server_remembers_heads_across_a_restart(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    assert (await rounds.show(await rounds.open(1), LATER)).status_code == 201
    rounds.world.start_server("server-1")
    assert _rules(await rounds.show(await rounds.open(2), EMPTY)) == [ROLLED_BACK]


@on_loop
async def test_heads_are_kept_per_silo_and_per_dataset(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    assert (await rounds.show(await rounds.open(1), LATER)).status_code == 201
    rounds.silo = "silo-2"
    plan = await rounds.open(2)
    assert (await rounds.show(plan, EMPTY)).status_code == 201, "another silo's ledger is its own"
    rounds.silo = "silo-1"
    rounds.spec = rounds.world.federation.job_spec(job="other", dataset="radiology")
    rounds.job = rounds.world.federation.sign_job(rounds.spec)
    assert (await rounds.show(await rounds.open(1), EMPTY)).status_code == 201, "so is another dataset's"


@on_loop
async def test_a_server_gives_a_silo_its_own_signed_manifest_and_nobody_elses(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    for number, seq in ((1, 3), (2, 9)):
        assert (
            await rounds.show(await rounds.open(number), Head(seq=seq, hash="aa" * 32))
        ).status_code == 201
    answer = await rounds.world.as_party("silo-1", "server-1").get("/v1/ledger-heads")
    key = rounds.world.federation.key("silo-1").verify_key
    shown = parse_witnessed_heads(answer.content)
    found = open_witnessed({"server-1": shown}, SiloId("silo-1"), key)  # type: ignore[dict-item, arg-type]  # literal ids
    assert found == (Witness("server-1", "cardio", Head(seq=9, hash="aa" * 32)),)  # type: ignore[arg-type]  # a literal id
    other = await rounds.world.as_party("silo-2", "server-1").get("/v1/ledger-heads")
    assert parse_witnessed_heads(other.content).heads == ()
    assert (await rounds.world.as_party("researcher", "server-1").get("/v1/ledger-heads")).status_code == 403


@dataclass
class Restored(Silo):
    """A silo that shows one head after the other, and is not surprised to be refused."""

    heads: Sequence[Head] = ()
    refused: list[httpx.Response] = field(default_factory=list)

    async def _answer(self, client: httpx.AsyncClient, plan: RoundPlan) -> None:
        update = self.world.federation.share(plan, self.name, ledger_head=self.heads[plan.round - 1])
        if update.manifest.ledger_head.seq >= max(
            (head.seq for head in self.heads[: plan.round - 1]), default=-1
        ):
            await send_share(self.world.to_servers(self.name), update)
        path = f"/v1/rounds/{plan.context}/manifests"
        answer = await client.post(path, content=canonical_bytes(update.envelope))
        if answer.status_code != 202:
            self.refused.append(answer)


async def _play(world: World, aggregator: Aggregator, spec: JobSpec, heads: Sequence[Head]) -> Restored:
    restored = Restored(world, aggregator, "silo-4", heads=heads)
    others = [Silo(world, aggregator, name) for name in world.federation.charter.silos[:3]]
    runs = [asyncio.create_task(silo.run()) for silo in (*others, restored)]
    await submit(world, aggregator, spec)
    await asyncio.wait_for(asyncio.gather(*runs), 60)
    return restored


@on_loop
async def test_the_aggregator_counts_no_silo_whose_ledger_went_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.federation.job_spec(rounds=3, round_deadline_s=2)
    heads = [LATER, Head(seq=2, hash="22" * 32), Head(seq=11, hash="bb" * 32)]
    async with world.running(world.build_aggregator()) as aggregator:
        restored = await _play(world, aggregator, spec, heads)
        async with client_of(aggregator.app, world.federation.certificate_der("silo-4")) as client:
            kept = parse_witnessed_heads((await client.get("/v1/ledger-heads")).content)
    assert [_rules(answer) for answer in restored.refused] == [[ROLLED_BACK]]
    assert ["silo-4" in result.survivors for result in restored.results] == [True, False, True]
    key = world.federation.key("silo-4").verify_key
    [witness] = open_witnessed({"aggregator": kept}, SiloId("silo-4"), key)  # type: ignore[dict-item, arg-type]  # literal ids
    assert witness.head == heads[2]
