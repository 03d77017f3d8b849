"""A job that the policy refuses never starts a process or touches the output folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from policies.findings import PolicyRefusal
from policies.loader import LoadedPolicy, load_threat_model
from policies.profiles import profile_text
from privacy.plan import SchemeName
from privacy.secagg.catalogue import SCHEMES
from privacy.secagg.validity.norms import suggested_norm_bound
from sealsum.cli import cli
from sealsum.demo.cast import CAST, cast_of
from sealsum.demo.job import demo_terms
from sealsum.demo.options import POLICIES, VALIDITY_POLICY
from sealsum.demo.preflight import refuse_if_policy_does
from sealsum.policy_file import read_policy


@pytest.fixture(scope="module")
def policy() -> LoadedPolicy:
    return load_threat_model(profile_text("demo-hospitals"))


def edited(old: str, new: str) -> LoadedPolicy:
    text = profile_text("demo-hospitals")
    assert old in text
    return load_threat_model(text.replace(old, new))


def test_the_default_job_is_admitted(policy: LoadedPolicy) -> None:
    refuse_if_policy_does(policy, demo_terms(20, 3.0, seed=0))


def test_one_round_is_admitted_once_its_noise_keeps_the_cap_of_a_round(policy: LoadedPolicy) -> None:
    refuse_if_policy_does(policy, demo_terms(1, 3.0, seed=0, round_cap=1.0))
    with pytest.raises(PolicyRefusal, match="epsilon_round"):
        refuse_if_policy_does(policy, demo_terms(1, 3.0, seed=0))


def test_more_epsilon_than_the_policy_allows_is_refused_with_the_finding(policy: LoadedPolicy) -> None:
    with pytest.raises(PolicyRefusal, match="epsilon_job: one job would cost more ε"):
        refuse_if_policy_does(policy, demo_terms(20, 3.5, seed=0))


def test_a_policy_for_three_share_servers_is_refused_for_this_cast() -> None:
    with pytest.raises(PolicyRefusal, match=r"roster\.share_servers"):
        refuse_if_policy_does(edited("{count: 2,", "{count: 3,"), demo_terms(20, 3.0, seed=0))


def test_too_many_rounds_are_refused() -> None:
    with pytest.raises(PolicyRefusal, match="rounds: the job has more rounds"):
        refuse_if_policy_does(edited("rounds_max: 100", "rounds_max: 19"), demo_terms(20, 3.0, seed=0))


def test_share_servers_of_the_cast_have_different_operators() -> None:
    operators = [part.operator for part in CAST if part.role == "share_server"]
    assert len(set(operators)) == len(operators) == 2


def test_the_command_refuses_with_exit_code_3_and_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(cli, ["demo", "--epsilon", "5", "--out", str(out)])
    assert result.exit_code == 3
    assert "epsilon_job" in result.output
    assert not out.exists()


def test_another_scheme_is_a_usage_error_that_lists_the_schemes() -> None:
    result = CliRunner().invoke(cli, ["demo", "--scheme", "rot13"])
    assert result.exit_code == 2
    assert f"expected one of: {', '.join(sorted(SCHEMES))}; got 'rot13'" in result.output


def test_a_policy_that_is_none_is_refused_with_the_profiles(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["demo", "--policy", "no-such", "--out", str(tmp_path / "out")])
    assert result.exit_code == 78
    assert "demo-hospitals" in result.output


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rounds", [1, 20])
def test_the_job_of_each_scheme_is_admitted_by_the_policy_that_the_demo_takes_for_it(
    scheme: SchemeName, rounds: int
) -> None:
    policy = read_policy(POLICIES[scheme])
    refuse_if_policy_does(policy, demo_terms(rounds, 3.0, seed=0, round_cap=1.0, scheme=scheme))


def test_no_share_server_plays_where_the_aggregator_is_the_one_server() -> None:
    assert {part.role for part in cast_of("pairwise")} == {"silo", "aggregator", "researcher"}
    assert cast_of("additive") == CAST


def test_a_policy_of_another_scheme_is_refused_before_anything_runs() -> None:
    with pytest.raises(PolicyRefusal, match="scheme: the plan sums updates by another scheme") as refused:
        refuse_if_policy_does(read_policy("demo-hospitals"), demo_terms(20, 3.0, seed=0, scheme="pairwise"))
    assert "roster.share_servers" in {finding.rule for finding in refused.value.findings}


@pytest.mark.parametrize("rounds", [1, 3, 20, 100])
def test_what_hospitals_prove_in_the_demo_is_within_its_policy_and_provable(rounds: int) -> None:
    terms = demo_terms(rounds, 3.0, seed=0, round_cap=1.0, validity=True)
    assert terms.validity is not None
    assert terms.validity.norm_bound >= suggested_norm_bound(terms.dp, terms.training, terms.model.parameters)
    refuse_if_policy_does(read_policy(VALIDITY_POLICY), terms)


def test_a_policy_that_requires_validity_refuses_a_job_without() -> None:
    with pytest.raises(PolicyRefusal, match="validity_missing"):
        refuse_if_policy_does(read_policy(VALIDITY_POLICY), demo_terms(20, 3.0, seed=0))


@pytest.mark.parametrize("scheme", ["pairwise", "bfv", "ckks"])
def test_validity_where_nobody_can_check_shares_is_a_usage_error_that_says_why(scheme: str) -> None:
    result = CliRunner().invoke(cli, ["demo", "--scheme", scheme, "--validity"])
    assert result.exit_code == 2
    assert "no second party to check shares with" in " ".join(result.output.split())
