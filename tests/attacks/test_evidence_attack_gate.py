"""A model that attacks are tried on first: nobody gets it by results of another job, person or time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.findings import PolicyRefusal
from policies.gates import check_reader
from policies.loader import LoadedPolicy
from policies.rules_attacks import Attacked, attacks_released_by
from privacy.canonical import canonical_bytes
from privacy.ids import Digest, PartyId
from privacy.plan import JobSpec
from privacy.wire.attack_results import AttackOutcome, AttackResult, Verdict
from privacy.wire.envelope import Envelope, Verified
from tests.aggregator_world import Silo, World, client_of, on_loop, submit
from tests.federation import Federation
from tests.unit.policies.policies_terms import bent, bent_policy, honest_round

NOW = datetime(2026, 6, 30, tzinfo=UTC)
JOB, MODEL = Digest("1" * 64), Digest("2" * 64)


def result_of(
    sender: str,
    at: datetime = NOW,
    verdict: Verdict = "consistent",
    job: Digest = JOB,
    **changes: Any,
) -> Verified[AttackResult]:
    said = AttackResult(
        job="job-1",
        job_digest=job,
        model=changes.pop("model", MODEL),
        suite=changes.pop("suite", "quick"),
        version="1",
        results="ab" * 32,
        outcomes=(AttackOutcome(attack="canaries", protection="noise", verdict=verdict),),
        at=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    envelope = honest_round().federation.sign(said, "attack_result", changes.pop("context", job), sender)
    return Verified(said, PartyId(sender), envelope.context, envelope)


def attacked_job(now: datetime, *results: Verified[AttackResult], by: str = "researcher") -> Attacked:
    return Attacked(JOB, PartyId(by), MODEL, results, now)


def refused(*results: Verified[AttackResult], policy: LoadedPolicy | None = None) -> list[str]:
    """Rules that keep the model from a researcher."""
    here = honest_round()
    asks = policy or bent_policy({"require.attack_suite": "quick"})
    researcher = here.charter.member(PartyId("researcher"))
    try:
        check_reader(asks, here.charter, researcher, True, (attacked_job(NOW, *results),))
    except PolicyRefusal as refusal:
        return [finding.rule for finding in refusal.findings]
    return []


def test_the_model_goes_out_once_a_silo_has_tried_the_attacks() -> None:
    assert refused(result_of("silo-1")) == []
    assert refused(result_of("silo-1", suite="full")) == []


@pytest.mark.parametrize(
    "result",
    [
        result_of("silo-1", NOW - timedelta(days=31)),
        result_of("silo-1", NOW + timedelta(days=2)),
        result_of("silo-1", job=Digest("3" * 64)),
        result_of("silo-1", context=Digest("3" * 64)),
        result_of("silo-1", model="4" * 64),
        result_of("researcher"),
        result_of("server-0"),
        result_of("aggregator"),
    ],
    ids=["old", "to come", "another job", "another context", "another model", "own", "server", "aggregator"],
)
def test_results_that_prove_nothing_here_open_nothing(result: Verified[AttackResult]) -> None:
    assert refused(result) == ["attacks_not_tried"]


def test_a_quick_suite_is_not_a_full_one() -> None:
    full = bent_policy({"require.attack_suite": "full"})
    assert refused(result_of("silo-1"), policy=full) == ["attacks_not_tried"]


@pytest.mark.parametrize("verdict", ["VIOLATED", "NO POWER"])
def test_what_one_silo_found_is_not_outvoted_and_does_not_age(verdict: Verdict) -> None:
    found = result_of("silo-2", NOW - timedelta(days=300), verdict)
    assert refused(result_of("silo-1"), found) == ["attacks_not_as_claimed"]


def test_a_model_that_no_finished_job_ended_with_stays() -> None:
    here = honest_round()
    asks, researcher = (
        bent_policy({"require.attack_suite": "quick"}),
        here.charter.member(PartyId("researcher")),
    )
    with pytest.raises(PolicyRefusal, match="attacks_of_no_job"):
        check_reader(asks, here.charter, researcher, True)
    check_reader(asks, here.charter, here.charter.member(PartyId("silo-1")), False)


def test_a_silo_that_asks_for_more_attacks_than_the_federation_takes_no_part() -> None:
    loose, strict = bent_policy({}).model, bent_policy({"require.attack_suite": "quick"}).model
    fewer_days = bent_policy({"require.attack_suite": "quick", "require.attack_suite_days": 7}).model
    assert [one.rule for one in attacks_released_by(loose, strict)] == ["attacks_not_asked_for"]
    assert [one.rule for one in attacks_released_by(strict, fewer_days)] == ["attacks_not_asked_for"]
    assert not [*attacks_released_by(strict, strict), *attacks_released_by(strict, loose)]


# --- at the aggregator ---


def _signed(world: World, spec: JobSpec, model: str, sender: str, **changes: Any) -> Envelope:
    said = result_of("silo-1", datetime.now(UTC), job=spec.digest, model=model).message
    mine = said.model_copy(update={"job": spec.job, **changes})
    return world.federation.sign(mine, "attack_result", spec.digest, sender)


@on_loop
async def test_the_aggregator_keeps_the_model_until_somebody_else_vouches_for_it(tmp_path: Path) -> None:
    text = bent({"require.attack_suite": "quick"})
    world = World(tmp_path, Federation(policy_text=text))
    async with world.running(world.build_aggregator()) as aggregator:
        spec = world.federation.job_spec(rounds=1)
        update = np.full(spec.model.parameters, 0.01, dtype=np.float32)
        silos = [Silo(world, aggregator, name, update).run() for name in world.federation.charter.silos]
        runs = asyncio.gather(*silos)
        await submit(world, aggregator, spec)
        await runs

        def as_(party: str) -> Any:
            return client_of(aggregator.app, world.federation.certificate_der(party))

        async with as_("researcher") as researcher, as_("silo-1") as silo:
            shown = (await silo.get(f"/v1/jobs/{spec.job}/attacks")).json()
            model, path = shown["model"], f"/v1/jobs/{spec.job}/attacks"
            before = await researcher.get(f"/v1/models/{model}")
            assert "attacks_not_tried" in before.text
            own = _signed(world, spec, model, "researcher")
            assert (await researcher.put(path, content=canonical_bytes(own))).status_code == 403
            forged = _signed(world, spec, model, "silo-2")
            assert (await silo.put(path, content=canonical_bytes(forged))).status_code == 403
            other = _signed(world, spec, "5" * 64, "silo-1")
            assert (await silo.put(path, content=canonical_bytes(other))).status_code == 422
            good = _signed(world, spec, model, "silo-1")
            assert (await silo.put(path, content=canonical_bytes(good))).status_code == 202
            assert (await researcher.get(f"/v1/models/{model}")).status_code == 200
            bad = _signed(world, spec, model, "silo-1", outcomes=(_violated(),))
            assert (await silo.put(path, content=canonical_bytes(bad))).status_code == 202
            after = await researcher.get(f"/v1/models/{model}")
            assert "attacks_not_as_claimed" in after.text
            evidence = (await researcher.get(f"/v1/jobs/{spec.job}/evidence")).json()
            assert [one["sender"] for one in evidence["attacks"]] == ["silo-1"]


def _violated() -> AttackOutcome:
    return AttackOutcome(attack="canaries", protection="noise", verdict="VIOLATED")
