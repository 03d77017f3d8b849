"""Attacks on approval by rule: nothing passes by omission, by another name, or against the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.plan import TrainingTerms
from privacy.wire.job_envelope import open_job
from silo_agent.approvals.case import request_of
from tests.approval_world import ApprovingSilo, policy_asking
from tests.silo_yaml import registered

RULE: dict[str, Any] = {"researchers": ["researcher"], "datasets": ["cardio"]}


def silo_with(
    tmp_path: Path, rule: dict[str, Any], automatic: str = "allowed", **settings: Any
) -> ApprovingSilo:
    text = policy_asking(automatic=automatic)
    return ApprovingSilo(tmp_path / "silo-1", text, approval_rules={"routine": rule}, **settings)


def test_a_rule_approves_what_keeps_all_its_conditions_and_leaves_evidence_of_itself(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE)
    spec = silo.show()
    silo.train(spec)
    [decision] = silo.registry()._decisions.about(spec.digest)
    assert (decision.approval.by, decision.approval.role) == ("routine", "rule")
    assert decision.verify_key == silo.federation.key("silo-1").verify_key


def test_a_threat_model_that_refuses_rules_is_obeyed(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE, automatic="refused")
    spec = silo.show()
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
    assert not silo.file(spec).exists()


def test_a_rules_approval_ends_when_a_threat_model_comes_to_refuse_rules(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE)
    spec = silo.show()
    silo.train(spec)
    (silo.root / "own.yaml").write_text(policy_asking(automatic="refused"))
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


def test_the_silos_own_threat_model_may_refuse_rules_that_the_federations_allows(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE)
    spec = silo.show()
    (silo.root / "own.yaml").write_text(policy_asking(automatic="refused"))
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
    assert not silo.file(spec).exists(), "the rule was not even asked"


@pytest.mark.parametrize(
    "condition",
    [
        {"researchers": ["somebody"]},
        {"purposes": ["another purpose"]},
        {"algorithms": ["dp_fedsgd"]},
        {"architectures": ["sha256:" + "0" * 64]},
        {"epsilon_job_max": 0.01},
        {"epsilon_fallback_max": 0.01},
        {"delta_max": 1e-9},
        {"rounds_max": 1},
        {"recipients": ["silos"]},
    ],
)
def test_one_condition_that_does_not_hold_is_enough(tmp_path: Path, condition: dict[str, Any]) -> None:
    silo = silo_with(tmp_path, {**RULE, **condition})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(silo.show())


def test_a_job_without_dp_never_passes_a_rule_that_does_not_list_it(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE)
    training = TrainingTerms(algorithm="fedavg", local_steps=2, learning_rate=0.5, server_learning_rate=1.0)
    spec = silo.federation.job_spec(dp=None, training=training)
    rule = silo.settings.approval_rules["routine"]
    job = open_job(silo.federation.sign_job(spec), silo.federation.charter)
    request = request_of(silo.registry().office, job)
    assert rule.broken_by(request.terms, request.researcher.id, "test", None) == "algorithms"


def test_shared_noise_carries_no_job_past_a_rule(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, {**RULE, "epsilon_job_max": 2.0})
    job = open_job(silo.federation.sign_job(silo.federation.job_spec()), silo.federation.charter)
    terms = request_of(silo.registry().office, job).terms
    rule = silo.settings.approval_rules["routine"]
    asked = terms.model_copy(update={"epsilon_job": 1.5})
    who = silo.federation.charter.with_role("researcher")[0].id
    assert rule.broken_by(asked, who, "test", 1.5) == ""
    assert rule.broken_by(asked, who, "test", 40.0) == "epsilon_fallback_max"
    wider = rule.model_copy(update={"epsilon_fallback_max": 50.0})
    assert wider.broken_by(asked, who, "test", 40.0) == ""


def test_a_rule_for_a_dataset_that_was_renamed_is_no_rule_for_its_new_name(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE, datasets={"cardio": registered(), "heart": registered(path="heart.csv")})
    (silo.root / "heart.csv").write_text("patient,age,pressure,num\n")
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(silo.show(dataset="heart"))
    silo.write(datasets={"heart": registered()}, approval_rules={"routine": RULE})
    with pytest.raises(ConfigurationError, match=r"approval_rules\.routine\.datasets.*cardio"):
        silo.settings  # noqa: B018 - reading is what refuses


def test_names_swapped_between_two_files_end_a_rules_approval(tmp_path: Path) -> None:
    both = {"cardio": registered(), "rare": registered(path="rare.csv")}
    silo = silo_with(tmp_path, {**RULE, "rounds_max": 2}, datasets=both)
    (silo.root / "rare.csv").write_text("patient,age,pressure,num\n")
    spec = silo.show()
    silo.train(spec)
    swapped = {"cardio": registered(path="rare.csv"), "rare": registered()}
    silo.write(datasets=swapped, approval_rules={})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


def test_a_rule_that_was_taken_out_or_tightened_approves_no_more(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE)
    spec = silo.show()
    silo.train(spec)
    silo.write(approval_rules={"routine": {**RULE, "rounds_max": 1}})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
    silo.write(approval_rules={})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


def test_a_person_who_rejects_is_not_outvoted_by_a_rule(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, RULE)
    spec = silo.show()
    silo.decide("ada", decision="reject")
    with pytest.raises(PolicyRefusal, match=r"approval\.rejected"):
        silo.train(spec)
    assert not silo.file(spec, 2).exists(), "the rule was not asked any more"


@pytest.mark.parametrize("missing", ["researchers", "datasets"])
def test_a_rule_cannot_cover_everybody_or_everything_by_leaving_it_out(tmp_path: Path, missing: str) -> None:
    rule = {name: value for name, value in RULE.items() if name != missing}
    with pytest.raises(ConfigurationError, match=missing):
        silo_with(tmp_path, rule).settings  # noqa: B018 - reading is what refuses
