"""The table threat × lock follows the rules: "stops" only where the loader would agree."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from policies.assumption import largest_witnessed
from policies.loader import load_threat_model
from policies.profiles import PROFILES, profile_text
from policies.schema import ThreatModel
from policies.strictness import STRICTNESS
from policies.threat_table import Row, supposing, threat_table
from sealsum.policy_commands import policy
from tests.unit.policies.policies_terms import ABSENT, bent, bent_demo, bent_policy, rules_of, unjudged

CURIOUS = {"behaviour": "honest_but_curious", "colludes_with_silos": 0}
NO_DP: dict[str, object] = {
    "require.dp": "none",
    "assume.aggregator": CURIOUS,
    "assume.recipient.kind": "silos",
    "release.model.to": "silos",
    "assume.network.tls_inspection": False,
}


def _rows(text: str) -> dict[str, Row]:
    return {row.key: row for row in threat_table(load_threat_model(text).model)}


def _effect(text: str, threat: str, lock: str = "secure sum") -> str:
    return _rows(text)[threat].cells[lock].effect


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_profile_assumes_of_its_parties_its_sum_stops(name: str) -> None:
    model = load_threat_model(profile_text(name)).model
    rows = {row.key: row.cells["secure sum"].effect for row in threat_table(model)}
    assume = model.spec.assume
    assert rows["curious_aggregator"] == "stops"
    if assume.aggregator.behaviour == "malicious":
        assert rows["malicious_aggregator"] == "stops"
    if assume.aggregator.colludes_with_silos >= 1:
        assert rows["aggregator_with_silo"] == "stops"
    if assume.silos.max_colluding >= 2:
        assert rows["silos_pool"] == "stops"
    if assume.recipient.kind != "silos":
        assert rows["decryption_outside"] == "stops"


def test_a_threat_beyond_what_the_loader_admits_is_not_said_to_be_stopped() -> None:
    """Written down as an assumption, the same threat is refused by the rule that the cell names."""
    beyond = {"assume.silos.max_colluding": 2}
    (rule,) = rules_of(bent(beyond))
    cell = _rows(bent({}))["silos_pool"].cells["secure sum"]
    assert (cell.effect, rule in cell.because) == ("does not", True)


def test_one_key_stops_only_who_looks() -> None:
    text = bent_demo("ckks", {})
    stopped = {threat for threat in _rows(text) if _effect(text, threat) == "stops"}
    assert stopped == {"curious_aggregator", "differencing", "tls_proxy"}
    assert _effect(bent_demo("bfv", {}), "decryption_outside") == "stops"


def test_a_threshold_chosen_for_a_curious_aggregator_does_not_stop_one_that_lies() -> None:
    """The plan's t follows from what is assumed, whatever t the loader would also admit."""
    curious = bent_demo("pairwise", {"assume.aggregator": CURIOUS, "assume.silos.max_colluding": 0})
    assert _effect(curious, "curious_aggregator") == "stops"
    assert _effect(curious, "malicious_aggregator") == "does not"
    assert _effect(bent_demo("pairwise", {}), "malicious_aggregator") == "stops"


def test_without_noise_nothing_answers_for_the_model() -> None:
    rows = _rows(bent(NO_DP))
    assert not rows["membership"].answered
    assert {row.cells["noise"].effect for row in rows.values()} <= {"does not", "not asked"}
    assert _rows(bent({}))["membership"].cells["noise"].effect == "bounds"


def test_shared_noise_bounds_single_updates_by_the_fallback() -> None:
    caps = {"round": 1.5, "job": 4, "lifetime": 9}
    rows = _rows(bent({"require.dp.model": "distributed", "limits.epsilon_fallback": caps}))
    assert "ε_fallback ≤ 4" in rows["curious_aggregator"].cells["noise"].because
    assert "ε ≤ 3" in rows["membership"].cells["noise"].because


def test_poisoning_is_bounded_by_proofs_and_how_far_depends_on_who_checks() -> None:
    proven: dict[str, object] = {"require.validity": "l2_bound"}
    assert _effect(bent({}), "poisoning", "checks on shares") == "does not"
    helped = _rows(bent(proven))["poisoning"].cells["checks on shares"]
    assert (helped.effect, "unless a share server helps" in helped.because) == ("bounds", True)
    honest = _rows(bent({**proven, "assume.share_servers.max_colluding": 0}))["poisoning"]
    assert "unless" not in honest.cells["checks on shares"].because


def test_a_rule_in_place_of_people_bounds_and_does_not_stop_an_unwanted_job() -> None:
    assert _effect(bent({}), "unwanted_job", "logs and people") == "bounds"
    people = {"require.approvals.automatic": "refused"}
    assert _effect(bent(people), "unwanted_job", "logs and people") == "stops"


@given(witnesses=st.integers(1, 6), colluding=st.integers(0, 3), silos=st.integers(2, 8))
def test_witnesses_suffice_exactly_where_any_two_sets_of_them_share_an_honest_one(
    witnesses: int, colluding: int, silos: int
) -> None:
    """Against every pair of sets, colluders being whoever helps the attack most: the first ones."""
    if not colluding < witnesses <= silos:
        return
    spec = unjudged(
        bent({"evidence.witnesses_min": witnesses, "assume.silos.max_colluding": max(colluding, 1)})
    ).spec
    sets = [set(one) for one in itertools.combinations(range(silos), witnesses)]
    colluders = set(range(max(colluding, 1)))
    never_split = all(one & other - colluders for one in sets for other in sets)
    assert never_split == (silos <= largest_witnessed(spec))


def test_supposing_changes_one_place_and_leaves_the_model_alone() -> None:
    model: ThreatModel = bent_policy({}).model
    other = supposing(model, {"assume.aggregator": CURIOUS, "limits.max_dropouts": 0})
    assert other.spec.assume.aggregator.behaviour == "honest_but_curious"
    assert other.spec.limits == model.spec.limits.model_copy(update={"max_dropouts": 0})
    assert model.spec.assume.aggregator.behaviour == "malicious"


# --- sealsum policy explain --table, diff ---


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(policy, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_is_shown_with_its_reasons_and_is_in_the_document() -> None:
    shown = _run("explain", "demo-hospitals", "--table")
    assert "two silos that pool what they see" in shown
    assert "secure sum does not: share servers that all collude" in shown
    table = json.loads(_run("explain", "demo-hospitals", "--json"))["table"]
    assert [row["key"] for row in table] == list(_rows(profile_text("demo-hospitals")))


def test_diff_names_each_field_and_which_way_it_goes(tmp_path: Path) -> None:
    changed: dict[str, Any] = {
        "limits.rounds_max": 50,
        "limits.max_dropouts": 0,
        "limits.min_records": 40,
        "/metadata.version": 2,
    }
    path = tmp_path / "after.yaml"
    path.write_text(bent(changed))
    document = json.loads(_run("diff", "demo-hospitals", str(path), "--json"))
    assert {one["field"]: one["verdict"] for one in document["changes"]} == {
        "metadata.version": "changed",
        "limits.max_dropouts": "tightened",
        "limits.min_records": "loosened",
        "limits.rounds_max": "tightened",
    }
    assert "loosened   limits.min_records: 50 → 40" in _run("diff", "demo-hospitals", str(path))
    assert all(one["field"] in STRICTNESS for one in document["changes"])


def test_diff_tells_the_same_values_in_another_text_from_the_same_text(tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(profile_text("demo-hospitals") + "# read on 1 March\n")
    assert _run("diff", "demo-hospitals", str(path)) == "the same in every field; the texts differ\n"
    assert _run("diff", "demo-hospitals", "demo-hospitals") == "the same in every field\n"


def test_diff_of_what_is_left_out_goes_by_the_value_in_force(tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text(bent({"limits.max_dropouts": ABSENT}))
    said = _run("diff", "demo-hospitals", str(path))
    assert said == "tightened  limits.max_dropouts: 1 → 0\n"
