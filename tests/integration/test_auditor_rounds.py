"""Evidence that the real aggregator, share servers and ledgers left behind, put before the verifier."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
from sealsum_verify.verify import verify_pack

from privacy.chain import EMPTY
from privacy.dp.events import round_event
from privacy.ids import PartyId, ServerId, SiloId
from privacy.keystore import load_identity
from privacy.plan import RoundPlan
from sealsum.evidence import build_pack
from sealsum.evidence_report import plain_report
from silo_agent.ledger.ledger import Ledger, ledger_origin
from silo_agent.ledger.spending import EpsilonCaps, Opening, Reserve
from tests.aggregator_world import Silo, World, client_of, on_loop, send_share, submit
from tests.evidence_pack import AT

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass
class PayingSilo(Silo):
    """A silo that charges each round to a real ledger before it takes part."""

    ledger: Ledger | None = None

    async def _answer(self, client: httpx.AsyncClient, plan: RoundPlan) -> None:
        assert self.ledger is not None
        assert plan.dp is not None
        reserve = Reserve(
            job=plan.job,
            job_digest=plan.job_digest,
            context=plan.context,
            round=plan.round,
            event=round_event(plan.dp, plan.training),
            delta=plan.dp.delta,
            log_head=EMPTY,
        )
        reserved = self.ledger.reserve(reserve, NOW)
        self.ledger.begin(reserved, NOW)
        update = self.world.federation.share(plan, self.name, self.update, ledger_head=reserved.head)
        self.ledger.settle(plan.context, NOW)
        await send_share(self.world.to_servers(self.name), update)
        await self._post(client, f"/v1/rounds/{plan.context}/manifests", update.envelope)


@on_loop
async def test_a_job_run_by_the_real_servers_yields_a_pack_that_verifies(tmp_path: Path) -> None:
    world = World(tmp_path)
    federation = world.federation
    spec = federation.job_spec(parameters=5)
    caps = EpsilonCaps(round=1.0, job=3.0, lifetime=8.0)
    opening = Opening(
        dataset=spec.dataset, unit="patient", patient_id="patient", epsilon=caps, delta_max=1e-4
    )
    async with world.running(world.build_aggregator()) as aggregator:
        silos = []
        for number in range(1, 5):
            name = SiloId(PartyId(f"silo-{number}"))
            origin = ledger_origin(federation.name, name, spec.dataset)
            ledger = Ledger(tmp_path / name / "cardio.jsonl", origin, federation.key(name), opening, NOW)
            update = np.full(5, 0.25 * number, dtype=np.float32)
            silos.append(PayingSilo(world, aggregator, name, update, ledger=ledger))
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
        der = federation.certificate_der("researcher")
        async with client_of(aggregator.app, der) as client:
            evidence = json.loads((await client.get(f"/v1/jobs/{spec.job}/evidence")).content)
        logs = {}
        for server in federation.charter.share_servers:
            async with world.as_party("researcher", server) as client:
                logs[ServerId(server)] = (await client.get("/v1/log")).content
    ledgers = {}
    for silo in silos:
        assert silo.ledger is not None
        silo.ledger.close()
        ledgers[SiloId(PartyId(silo.name))] = (tmp_path / silo.name / "cardio.jsonl").read_bytes()
    federation.identity("researcher", tmp_path / "researcher")
    identity = load_identity(tmp_path / "researcher")
    pack = build_pack(evidence, logs, ledgers, identity, plain_report(evidence), AT)

    report = verify_pack(pack, federation.officer.verify_key)
    assert report.verified, report.fault
    assert (report.summary["rounds"], report.summary["openings"], report.summary["state"]) == (
        2,
        2,
        "finished",
    )
    assert sorted(report.epsilon) == ["silo-1", "silo-2", "silo-3", "silo-4"]
