"""Evidence that real servers, agents and ledgers of every scheme left behind, put before the verifier."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sealsum_verify.verify import Report, verify_pack

from aggregator.assembly import Aggregator
from privacy.chain import Head
from privacy.dp.events import round_event
from privacy.ids import PartyId, ServerId, SiloId
from privacy.keystore import load_identity
from privacy.plan import JobSpec, RoundPlan
from privacy.transparency.checkpoint import EMPTY_LOG
from sealsum.evidence import build_pack
from sealsum.served_log import ServedLog
from silo_agent.ledger.admission import RoundCharge
from silo_agent.ledger.entries import EpsilonCaps, Opening
from silo_agent.ledger.ledger import Ledger, ledger_origin
from tests.aggregator_world import Silo, World, client_of, on_loop, send_share, submit
from tests.evidence_pack import AT
from tests.federation import Federation
from tests.he_world import HeWorld, he_federation
from tests.pairwise_world import PairwiseWorld
from tests.threshold_world import ThresholdWorld, threshold_federation
from tests.validity_world import world as validity_world

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GRACE_S = 5
"""So that every silo is in the cohort on a busy machine."""
SECRET_KINDS = (
    "pairwise_shares",
    "pairwise_unmask",
    "he_key",
    "threshold_reveal",
    "validity_check",
)
"""What can open an update, or is sealed to one party, and what opens checks of proofs."""


class Books:
    """A real ledger of each silo, which each round is charged to before its manifest is signed."""

    def __init__(self, root: Path, federation: Federation, spec: JobSpec) -> None:
        caps = EpsilonCaps(round=1.0, job=3.0, lifetime=8.0)
        opening = Opening(
            dataset=spec.dataset, unit="patient", patient_id="patient", epsilon=caps, delta_max=1e-4
        )
        self._dataset = spec.dataset
        self._files = {silo: root / silo / f"{spec.dataset}.jsonl" for silo in federation.charter.silos}
        self._ledgers = {
            silo: Ledger(
                file, ledger_origin(federation.name, silo, spec.dataset), federation.key(silo), opening, NOW
            )
            for silo, file in self._files.items()
        }

    def charge(self, silo: str, plan: RoundPlan) -> Head:
        """Reserve, begin and settle a round; the head after that."""
        assert plan.dp is not None
        ledger = self._ledgers[SiloId(PartyId(silo))]
        charge = RoundCharge(
            job=plan.job,
            job_digest=plan.job_digest,
            dataset=self._dataset,
            context=plan.context,
            round=plan.round,
            rounds=plan.rounds,
            event=round_event(plan.dp, plan.training),
            fallback=None,
            delta=plan.dp.delta,
            log_head=EMPTY_LOG,
        )
        reserved = ledger.reserve(charge, NOW)
        ledger.begin(reserved, NOW)
        ledger.settle(plan.context, NOW)
        return ledger.head

    def charge_all(self, silos: Any) -> None:
        """Have each of these silos charge its rounds."""
        for silo in silos:
            silo.charge = lambda plan, name=silo.name: self.charge(name, plan)

    def close(self) -> dict[SiloId, bytes]:
        """Their bytes."""
        for ledger in self._ledgers.values():
            ledger.close()
        return {silo: file.read_bytes() for silo, file in self._files.items()}


@dataclass
class PayingSilo(Silo):
    """A silo that charges each round before it takes part."""

    books: Books | None = None

    async def _answer(self, client: httpx.AsyncClient, plan: RoundPlan) -> None:
        assert self.books is not None
        head = self.books.charge(self.name, plan)
        update = self.world.federation.share(plan, self.name, self.update, ledger_head=head)
        await send_share(self.world.to_servers(self.name), update)
        await self._post(client, f"/v1/rounds/{plan.context}/manifests", update.envelope)


async def evidence_of(federation: Federation, aggregator: Aggregator) -> dict[str, Any]:
    """What the aggregator answers the researcher."""
    async with client_of(aggregator.app, federation.certificate_der("researcher")) as client:
        evidence: dict[str, Any] = json.loads((await client.get("/v1/jobs/heart/evidence")).content)
    return evidence


async def logs_of(world: World) -> dict[ServerId, ServedLog]:
    """Share servers' logs, as they answer the researcher."""
    logs = {}
    for server in world.federation.charter.share_servers:
        async with world.as_party("researcher", server) as client:
            served = (await client.get("/v1/log/checkpoint")).json()
            lines = (await client.get("/v1/log")).content
        logs[ServerId(server)] = ServedLog(lines, served["checkpoint"], served["witnessed"])
    return logs


def verified(
    root: Path,
    federation: Federation,
    evidence: Mapping[str, Any],
    books: Books,
    logs: Mapping[ServerId, ServedLog] | None = None,
) -> tuple[Report, bytes]:
    """What the verifier says of the pack that the researcher exports."""
    federation.identity("researcher", root / "researcher")
    identity = load_identity(root / "researcher")
    pack = build_pack(evidence, logs or {}, books.close(), identity, AT)
    report = verify_pack(pack, federation.officers.digest)
    assert report.verified, report.fault
    assert not [kind for kind in SECRET_KINDS if f'\\"kind\\":\\"{kind}\\"'.encode() in pack]
    assert not [kind for kind in SECRET_KINDS if f'"kind":"{kind}"'.encode() in pack]
    return report, pack


@on_loop
async def test_a_job_run_by_real_share_servers_yields_a_pack_that_verifies(tmp_path: Path) -> None:
    world = World(tmp_path)
    federation = world.federation
    spec = federation.job_spec(parameters=5)
    books = Books(tmp_path, federation, spec)
    async with world.running(world.build_aggregator()) as aggregator:
        silos = [
            PayingSilo(world, aggregator, name, np.full(5, 0.25, dtype=np.float32), books=books)
            for name in federation.charter.silos
        ]
        await submit(world, aggregator, spec)
        await asyncio.wait_for(asyncio.gather(*(silo.run() for silo in silos)), 60)
        evidence = await evidence_of(federation, aggregator)
        logs = await logs_of(world)
    report, _ = verified(tmp_path, federation, evidence, books, logs)
    summary = report.summary
    assert (summary["rounds"], summary["openings"], summary["state"]) == (2, 2, "finished")
    assert sorted(report.epsilon) == ["silo-1", "silo-2", "silo-3", "silo-4"]


def one_server(root: Path, scheme: str) -> PairwiseWorld:
    """A federation of a scheme without share servers."""
    if scheme == "pairwise":
        return PairwiseWorld(root)
    if scheme.startswith("threshold_"):
        return ThresholdWorld(root, threshold_federation(scheme))
    return HeWorld(root, he_federation(scheme))


@pytest.mark.parametrize(
    ("scheme", "leaves"),
    [
        ("pairwise", None),
        pytest.param("pairwise", "masked", marks=pytest.mark.slow),
        pytest.param("pairwise", "unmask", marks=pytest.mark.slow),
        ("bfv", None),
        pytest.param("bfv", "opened", marks=pytest.mark.slow),
        ("ckks", None),
        pytest.param("threshold_bfv", None, marks=pytest.mark.slow),
        pytest.param("threshold_bfv", "reveal", marks=pytest.mark.slow),
        pytest.param("threshold_ckks", None, marks=pytest.mark.slow),
    ],
)
@on_loop
async def test_a_job_run_by_one_real_server_yields_a_pack_that_verifies(
    tmp_path: Path, scheme: str, leaves: str | None
) -> None:
    world = one_server(tmp_path, scheme)
    world.settings["grace_s"] = GRACE_S
    rounds = 1 if leaves else 2
    spec = world.spec(
        rounds=rounds, **({"round_deadline_s": 3} if leaves in ("masked", "unmask", "opened") else {})
    )
    books = Books(tmp_path, world.federation, spec)
    silos = world.silos(silo_2={"leaves": leaves})
    books.charge_all(silos)
    async with world.running() as aggregator:
        view = await world.run_job(spec, silos)
        assert view["state"] == "finished", view
        evidence = await evidence_of(world.federation, aggregator)
    report, pack = verified(tmp_path, world.federation, evidence, books)
    summary = report.summary
    assert (summary["rounds"], summary["openings"], summary["state"]) == (rounds, rounds, "finished")
    for silo in silos:
        assert not any(raw.tobytes() in pack for raw in silo.encoded), "an update"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "step"),
    [
        ("pairwise", "unmask"),
        ("bfv", "opened"),
        ("pairwise", "keys"),
        ("threshold_bfv", "partial"),
        ("threshold_bfv", "commit"),
    ],
)
@on_loop
async def test_a_round_that_ended_by_name_verifies_too(tmp_path: Path, scheme: str, step: str) -> None:
    world = one_server(tmp_path, scheme)
    world.settings["grace_s"] = GRACE_S
    spec = world.spec(**({} if scheme.startswith("threshold_") else {"round_deadline_s": 3}))
    books = Books(tmp_path, world.federation, spec)
    silos = world.silos(silo_2={"leaves": step}, silo_3={"leaves": step})
    books.charge_all(silos)
    async with world.running() as aggregator:
        view = await world.run_job(spec, silos)
        assert view["state"] == "failed", view
        evidence = await evidence_of(world.federation, aggregator)
    report, _ = verified(tmp_path, world.federation, evidence, books)
    assert (report.summary["state"], report.summary["openings"]) == (
        "failed",
        int(step not in ("keys", "commit")),
    )


@pytest.mark.parametrize("cheats", [False, True])
@on_loop
async def test_a_job_with_proofs_of_validity_yields_a_pack_that_verifies(
    tmp_path: Path, cheats: bool
) -> None:
    here = validity_world(tmp_path)
    here.grace_s = GRACE_S
    spec = here.spec()
    books = Books(tmp_path, here.federation, spec)
    ten_times_the_bound = [10 * (2 << 20), 0, 0, 0, 0, 1 << 20]
    silos = here.silos(**({"silo_2": {"encoded": ten_times_the_bound}} if cheats else {}))
    books.charge_all(silos)
    outcome = await here.run_job(spec, silos)
    assert outcome.view["state"] == "finished", outcome.view
    async with here.running(here.build_aggregator()) as aggregator:
        evidence = await evidence_of(here.federation, aggregator)
    (round_,) = evidence["rounds"]
    assert len(json.loads(round_["result"]["body"])["survivors"]) == (3 if cheats else 4)
    report, _ = verified(tmp_path, here.federation, evidence, books, await logs_of(here))
    assert (report.summary["openings"], report.summary["state"]) == (1, "finished")
