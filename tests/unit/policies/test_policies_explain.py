"""Findings read well, explanations follow the model, and ``sealsum policy`` shows both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from policies.explain import explain
from policies.findings import Finding, PolicyInvalid, PolicyRefusal
from policies.profiles import PROFILES
from privacy.errors import ConfigurationError
from sealsum.policy_commands import policy
from sealsum.policy_file import read_policy
from tests.unit.policies.policies_terms import bent, bent_policy

FINDING = Finding("a_rule", "why", "this", "that", "do so")


def test_a_refusal_prints_every_finding_on_lines_of_its_own() -> None:
    refusal = PolicyRefusal("round 1 of job heart", [FINDING, FINDING])
    assert str(refusal).splitlines()[:5] == [
        "round 1 of job heart: refused by 2 rules",
        "  a_rule: why",
        "      expected  this",
        "      got       that",
        "      to do     do so",
    ]


def test_nothing_found_is_no_refusal() -> None:
    with pytest.raises(ValueError, match="at least one"):
        PolicyRefusal("round 1", [])


def test_an_invalid_threat_model_is_a_configuration_error() -> None:
    invalid = PolicyInvalid("threat model", [FINDING])
    assert isinstance(invalid, ConfigurationError)
    assert (invalid.exit_code, PolicyRefusal("x", [FINDING]).exit_code) == (78, 3)


def test_a_rule_name_that_no_refusal_message_could_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="lower-case words"):
        Finding("A rule", "why", "this", "that", "do so")


@pytest.mark.parametrize("name", PROFILES)
def test_each_sentence_says_what_it_rests_on(name: str) -> None:
    explanation = explain(read_policy(name).model)
    for sentence in (*explanation.protects, *explanation.does_not):
        assert sentence.text.endswith(".")
        assert sentence.rests_on
    assert len(explanation.does_not) >= 5, "what is not protected is not kept short"


def test_giving_up_dp_moves_the_promise_to_the_other_list() -> None:
    no_dp = bent_policy(
        {
            "require.dp": "none",
            "assume.aggregator": {"behaviour": "honest_but_curious", "colludes_with_silos": 0},
            "assume.recipient.kind": "silos",
            "assume.network.tls_inspection": False,
            "release.model.to": "silos",
        }
    )
    explanation = explain(no_dp.model)
    assert not any("ε" in sentence.text for sentence in explanation.protects)
    assert any("Membership tests" in sentence.text for sentence in explanation.does_not)
    assert any("difference of the two sums" in sentence.text for sentence in explanation.does_not)


def test_one_operator_audit_and_one_institution_are_admitted_weaknesses() -> None:
    said = str(explain(read_policy("single-operator-research").model))
    assert "The aggregator with any single silo" in said
    assert "One institution learning about its own sites" in said
    one_operator = {
        "assume.aggregator": {"behaviour": "honest_but_curious", "colludes_with_silos": 0},
        "assume.share_servers": {"count": 2, "max_colluding": 0, "distinct_operators": False},
    }
    assert "The operator of the share servers" in str(explain(bent_policy(one_operator).model))
    audit = bent_policy({"mode": "audit", "data_class": "synthetic"})
    assert "they are recorded and pass" in str(explain(audit.model))


def test_out_of_scope_threats_are_said_out_loud() -> None:
    said = str(explain(read_policy("demo-hospitals").model))
    assert "Whoever controls a silo's machine." in said
    assert "made-up update" in said


# --- sealsum policy ---


def _run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(policy, arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def test_list_names_every_profile() -> None:
    assert [entry["name"] for entry in json.loads(_run("list", "--json"))] == list(PROFILES)
    for name in PROFILES:
        assert name in _run("list")


def test_a_copy_of_what_show_prints_is_the_same_threat_model(tmp_path: Path) -> None:
    loaded = read_policy("demo-hospitals")
    result = CliRunner().invoke(policy, ["show", "demo-hospitals"])
    copy = tmp_path / "copy.yaml"
    copy.write_text(result.stdout)
    assert result.stderr == f"digest {loaded.digest}\n"
    assert read_policy(str(copy)).digest == loaded.digest


def test_show_prints_every_effective_value_as_json() -> None:
    loaded = read_policy("demo-hospitals")
    shown = json.loads(_run("show", "demo-hospitals", "--json"))
    assert shown["digest"] == loaded.digest
    assert shown["model"]["spec"]["limits"]["upload_bytes_max"] == 64 << 20


def test_lint_accepts_a_profile_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(bent({}))
    assert "no faults" in _run("lint", str(path))
    assert json.loads(_run("lint", "demo-hospitals", "--json"))["valid"] is True


def test_lint_reports_every_fault_and_exits_78(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(bent({"mode": "audit", "limits.epsilon.round": 4}))
    report = json.loads(_run("lint", str(path), "--json", code=78))
    rules = [finding["rule"] for finding in report["findings"]]
    assert rules == ["audit_on_real_data", "epsilon_caps_disordered"]
    with pytest.raises(PolicyInvalid, match="refused by 2 rules"):
        CliRunner().invoke(policy, ["lint", str(path)], catch_exceptions=False)


def test_explain_says_both_halves() -> None:
    said = json.loads(_run("explain", "demo-hospitals", "--json"))
    assert said["protects"]
    assert said["does_not"]
    assert "What it does not protect against" in _run("explain", "demo-hospitals")


def test_only_what_is_flooded_is_said_to_withstand_silos_that_collude() -> None:
    flooded, partly = _run("explain", "demo-threshold-bfv"), _run("explain", "demo-threshold-ckks")
    assert "all silos but one may collude with the aggregator" in flooded
    assert "honest but curious, and no silo colludes with it" in partly
    assert "all silos but one may collude" not in partly


def test_an_empty_list_of_architectures_is_said_to_admit_none() -> None:
    assert "on no architecture, as none is listed yet" in _run("explain", "cross-hospital-one-server")


def test_a_name_that_is_neither_profile_nor_file_is_refused_with_the_profiles() -> None:
    with pytest.raises(ConfigurationError, match=r"cross-hospital-strict, .*demo-hospitals.*'lenient'"):
        read_policy("lenient")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_policy(str(path))


def test_a_file_too_large_to_be_a_policy_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("#" * (1 << 20))
    with pytest.raises(PolicyInvalid, match="at most 65536 bytes"):
        read_policy(str(path))
