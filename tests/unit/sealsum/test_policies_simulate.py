"""``sealsum policy simulate`` says what the gates will say, and what the ledger will be charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policies.findings import PolicyRefusal
from policies.gates import admit_plan, check_survivors
from policies.loader import load_threat_model
from policies.profiles import profile_text
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.dp.accountant import epsilon
from privacy.dp.events import fallback_event, round_event
from privacy.errors import ConfigurationError
from privacy.ids import ServerId
from privacy.plan import DpTerms, TrainingTerms
from privacy.secagg.catalogue import MEASURED_PARAMETERS, PLAINTEXT_MS
from privacy.wire.messages import SurvivorSet
from sealsum.policy_simulate_command import simulate
from sealsum.policy_trial import trial_charter, try_job
from tests.federation import Federation
from tests.unit.policies.policies_terms import altered, bent, honest_round, planned_round

ROOT = Path(__file__).parents[3]
JOB = """
job: heart-1
purpose: Predict heart disease
dataset: heart
data:
  features: [{kind: numeric, column: age, low: 30, high: 80, impute: 55}]
  label: {column: num, threshold: 0}
  patient_id: patient_id
model: {adapter: logistic, seed: 1}
training: {server_learning_rate: 4.0}
dp: {unit: patient, sample_rate: 1.0, target_epsilon: 2.0, clip_l2: 0.5, normaliser: 150, delta: 1.0e-5}
rounds: 10
min_silos: 3
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def _run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(simulate, [str(one) for one in (*arguments, "--json")])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_job_that_every_gate_admits_would_run(job_file: Path) -> None:
    said = _run("--silos", 4, "--policy", "demo-hospitals", "--job", job_file)
    assert said["runs"] is True
    assert (said["least_cohort"], said["opens_from"], said["aborts"]) == (3, 3, [0, 1, 2])
    assert 1.9 < said["price"]["epsilon"] <= 2.0
    assert said["price"]["epsilon"] == said["price"]["epsilon_fallback"]
    shown = (
        CliRunner()
        .invoke(simulate, ["--silos", "4", "--policy", "demo-hospitals", "--job", str(job_file)])
        .stdout
    )
    assert "This job would run." in shown
    assert "opens with 3 survivors or more" in shown


def test_a_silo_with_a_stricter_threat_model_says_no_by_name_and_the_command_exits_3(job_file: Path) -> None:
    given = ("--silos", 4, "--policy", "demo-hospitals", "--job", job_file)
    said = _run(*given, "--silo-policy", "cross-hospital-strict", code=3)
    federation, own = said["judged"]
    assert not federation["findings"]
    assert {"share_server_count", "legal_entities", "architecture"} <= {
        finding["rule"] for finding in own["findings"]
    }
    assert all(finding["remedy"] for finding in own["findings"])


def test_what_it_refuses_is_what_the_gate_refuses() -> None:
    """The same plan, once tried and once offered, is refused by the same rules."""
    for changes in ({"limits.rounds_max": 1}, {"allow.algorithms": ["fedavg"], "limits.delta_max": 1e-6}):
        here = honest_round(bent(changes))
        trial = try_job(here.job, here.charter, here.policy, [])
        with pytest.raises(PolicyRefusal) as refused:
            admit_plan([here.policy], here.offer(), here.signed_job(), here.charter)
        by_gate = {finding.rule for finding in refused.value.findings}
        assert {finding.rule for finding in trial.judged[0].findings} == by_gate
        assert not trial.runs


@pytest.mark.parametrize("scheme", ["additive", "pairwise"])
def test_the_sizes_that_abort_are_those_that_the_opening_gate_refuses(scheme: str) -> None:
    here = planned_round(scheme, 5)
    trial = try_job(here.job, here.charter, here.policy, [])
    admitted = admit_plan([here.policy], here.offer(), here.signed_job(), here.charter)
    for size in range(1, 6):
        named = here.plan.silos[:size]
        manifests = tuple(sha256_hex(silo.encode()) for silo in named)
        survivors = SurvivorSet(server=ServerId("any"), survivors=named, manifests=manifests)  # type: ignore[arg-type]  # a name
        refused = False
        try:
            check_survivors(admitted, survivors, here.charter, here.policy)
        except PolicyRefusal:
            refused = True
        assert (size in trial.aborts) == refused


def test_shared_noise_is_priced_with_and_without_the_secure_sum() -> None:
    policy = load_threat_model(profile_text("demo-distributed"))
    charter = trial_charter(4, policy)
    federation = Federation(policy_text=policy.text)
    dp = DpTerms(
        model="distributed",
        noise_shares=2,
        unit="patient",
        sample_rate=0.1,
        noise_multiplier=4.0,
        clip_l2=1.0,
        normaliser=20.0,
        delta=1e-5,
    )
    training = TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0
    )
    job = federation.job_spec(dp=dp, training=training, federation="trial", charter=charter.digest)
    price = try_job(job, charter, policy, []).price
    assert price is not None
    for event, said in (
        (round_event(dp, job.training), price.epsilon),
        (fallback_event(dp, job.training), price.epsilon_fallback),
    ):
        assert event is not None
        steps = event.steps * job.rounds
        assert said == epsilon([event.model_copy(update={"steps": steps})], dp.delta)
    assert price.epsilon < price.epsilon_fallback


def test_a_job_without_dp_has_no_price_and_one_with_hardly_any_noise_is_not_computed() -> None:
    here = honest_round()
    assert here.job.dp is not None
    for dp in (None, here.job.dp.model_copy(update={"noise_multiplier": 1e-4})):
        trial = try_job(altered(here.job, dp=dp), here.charter, here.policy, [])
        assert trial.price is None
        assert not trial.runs


def test_mode_audit_notes_and_lets_pass(tmp_path: Path, job_file: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(bent({"mode": "audit", "data_class": "synthetic", "limits.rounds_max": 1}))
    said = _run("--silos", 4, "--policy", policy, "--job", job_file)
    (one,) = said["judged"]
    assert (said["runs"], one["enforced"]) == (True, False)
    assert [finding["rule"] for finding in one["findings"]] == ["rounds"]


def test_a_charter_gives_its_own_roster_and_policy(tmp_path: Path, job_file: Path) -> None:
    charter = tmp_path / "charter.json"
    charter.write_bytes(canonical_bytes(Federation(silos=6).endorsed_charter))
    said = _run("--federation", charter, "--job", job_file)
    assert (said["silos"], said["runs"], said["opens_from"]) == (6, True, 5)
    stricter = _run("--federation", charter, "--policy", "cross-hospital-strict", "--job", job_file, code=3)
    assert stricter["judged"][0]["name"] == "cross-hospital-strict v1"


@pytest.mark.parametrize("arguments", [[], ["--silos", "4", "--federation", "F"], ["--silos", "4"]])
def test_it_asks_for_one_federation_and_a_policy(arguments: list[str], job_file: Path) -> None:
    given = [str(job_file) if one == "F" else one for one in arguments]
    with pytest.raises(ConfigurationError, match=r"expected (one of --federation|a profile or a file)"):
        CliRunner().invoke(simulate, [*given, "--job", str(job_file)], catch_exceptions=False)


def test_costs_name_every_scheme_that_can_carry_the_job_and_mark_the_one_asked(job_file: Path) -> None:
    costs = _run("--silos", 4, "--policy", "demo-hospitals", "--job", job_file)["costs"]
    assert [cost["scheme"] for cost in costs if cost["asked"]] == ["additive"]
    by_name = {cost["scheme"]: cost for cost in costs}
    assert set(by_name) == {"additive", "pairwise", "bfv", "ckks", "threshold_bfv", "threshold_ckks"}
    assert by_name["additive"]["up_bytes"] < by_name["bfv"]["up_bytes"] < by_name["threshold_bfv"]["up_bytes"]
    assert all(cost["silo_ms"] > 0 and cost["servers_ms"] > 0 for cost in costs)


def test_the_plaintext_sum_took_as_long_as_measured() -> None:
    measured = json.loads((ROOT / "benchmarks/results/secagg.json").read_text())
    assert measured["params"] == MEASURED_PARAMETERS
    plain = measured["plaintext"]
    assert pytest.approx(plain["silo_cpu_s"] * 1000, rel=0.02) == PLAINTEXT_MS.silo
    assert pytest.approx(plain["server_cpu_s"] * 1000, rel=0.02) == PLAINTEXT_MS.servers
