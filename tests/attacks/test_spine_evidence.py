"""Attacks on what evidence rests on: silos that show two faces, charters that change, readers too early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from aggregator.assembly import Aggregator
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Role
from privacy.wire.messages import SurvivorSet
from tests.aggregator_world import Silo, World, client_of, on_loop, send_share, submit
from tests.federation import Federation, demo_policy_text


@dataclass
class TwoFaced(Silo):
    """Shares with the servers, and shows the aggregator another manifest, or none."""

    shows: str = "nothing"

    async def _answer(self, client: httpx.AsyncClient, plan: RoundPlan) -> None:
        federation = self.world.federation
        update = federation.share(plan, self.name)
        await send_share(self.world.to_servers(self.name), update)
        if self.shows == "another":
            other = federation.share(plan, self.name, np.ones(plan.parameters, dtype=np.float32))
            await self._post(client, f"/v1/rounds/{plan.context}/manifests", other.envelope)


async def _evidence(world: World, aggregator: Aggregator, job: str) -> dict[str, Any]:
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        document: dict[str, Any] = json.loads((await client.get(f"/v1/jobs/{job}/evidence")).content)
        return document


async def _finish(world: World, aggregator: Aggregator, spec: JobSpec, silos: Sequence[Silo]) -> None:
    await submit(world, aggregator, spec)
    await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)


@pytest.mark.parametrize("shows", ["nothing", "another"])
def test_a_silo_that_hides_its_manifest_from_the_aggregator_cannot_spoil_the_evidence(
    tmp_path: Path, shows: str
) -> None:
    @on_loop
    async def play() -> None:
        world = World(tmp_path)
        spec = world.federation.job_spec(rounds=1, round_deadline_s=2)
        async with world.running(world.build_aggregator()) as aggregator:
            silos = [Silo(world, aggregator, f"silo-{number}") for number in (1, 2, 3)]
            await _finish(
                world, aggregator, spec, [*silos, TwoFaced(world, aggregator, "silo-4", shows=shows)]
            )
            (round_,) = (await _evidence(world, aggregator, spec.job))["rounds"]
        agreed = SurvivorSet.model_validate_json(round_["survivors"][0]["body"])
        assert "silo-4" in agreed.survivors
        shown = [sha256_hex(round_["manifests"][silo]["body"].encode()) for silo in agreed.survivors]
        assert shown == list(agreed.manifests)

    play()


@on_loop
async def test_only_the_aggregator_asks_a_share_server_for_manifests(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = f"/v1/rounds/{'0' * 64}/manifests/silo-1"
    for party, status in (("silo-1", 403), ("researcher", 403), ("server-1", 403), ("aggregator", 404)):
        async with world.as_party(party, "server-0") as client:
            assert (await client.get(path)).status_code == status


@on_loop
async def test_evidence_of_a_job_rests_on_the_charter_it_was_accepted_under(tmp_path: Path) -> None:
    world = World(tmp_path)
    federation = world.federation
    spec = federation.job_spec(rounds=1)
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [Silo(world, aggregator, silo) for silo in federation.charter.silos]
        await _finish(world, aggregator, spec, silos)
    _seal_next(world)
    later = world.build_aggregator()
    assert later.state.held.charter.epoch == 2
    evidence = await _evidence(world, later, spec.job)
    later.state.store.close()
    assert evidence["charter"] == federation.endorsed_charter.model_dump(mode="json")


def _seal_next(world: World) -> None:
    """The officers endorse epoch 2, and the aggregator's operator puts it in place."""
    sealed = world.federation.endorse(world.federation.next_charter())
    (world.root / "aggregator" / "charter.json").write_bytes(canonical_bytes(sealed))


@on_loop
async def test_models_for_silos_reach_a_silos_own_researcher_over_the_wire(tmp_path: Path) -> None:
    """The threat model's gate judges readers; the aggregator has no second opinion."""
    text = demo_policy_text().replace("{to: researchers, when: job_end}", "{to: silos, when: job_end}")
    for entity, status in (("Hospital 1", 200), ("University", 422)):
        world = World(tmp_path / entity.replace(" ", "-"), _researcher_of(entity, text))
        spec = world.federation.job_spec(rounds=1)
        async with world.running(world.build_aggregator()) as aggregator:
            silos = [
                Silo(world, aggregator, silo, np.full(3, 0.5, dtype=np.float32))
                for silo in world.federation.charter.silos
            ]
            await _finish(world, aggregator, spec, silos)
            model = silos[0].results[-1].model_out
            async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
                assert (await client.get(f"/v1/models/{model}")).status_code == status


def _researcher_of(entity: str, policy_text: str) -> Federation:
    class Sealed(Federation):
        """A federation whose researcher belongs to ``entity``."""

        def _add(self, name: str, role: Role, _entity: str) -> None:
            super()._add(name, role, entity if role == "researcher" else _entity)

    return Sealed(policy_text=policy_text)
