"""A child threat model may only tighten: every field, once loosened, is refused by its name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.fields import effective, fields
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model, policy_digest
from policies.profiles import PROFILES, profile_text
from policies.rules_extends import loosened
from policies.rules_plan import limit_findings
from policies.schema import ThreatModel
from policies.strictness import STRICTNESS, Free, changes
from tests.unit.policies.policies_terms import ABSENT, bent, bent_text, honest_round, unjudged

REALS = st.floats(1e-9, 0.999).map(lambda x: float(f"{x:.6g}"))
WHOLE = st.integers(2, 900)
DIGESTS = [f"sha256:{letter * 64}" for letter in "abc"]
SOME_OF = {
    "assume.out_of_scope": ["silo_host_compromise", "silo_poisoning"],
    "require.approvals.roles": ["data_steward", "dpo", "security", "site_admin"],
    "allow.algorithms": ["dp_fedsgd", "dp_fedavg", "fedavg"],
    "allow.architectures": DIGESTS,
    "release.metrics.names": ["auc", "loss", "accuracy"],
}
WORDS: dict[str, list[Any]] = {
    "mode": ["audit", "enforce"],
    "data_class": ["synthetic", "financial", "patient"],
    "assume.aggregator.behaviour": ["trusted", "honest_but_curious", "malicious"],
    "assume.share_servers.distinct_operators": [False, True],
    "assume.silos.distinct_legal_entities": [False, True],
    "assume.recipient.kind": ["silos", "external", "public"],
    "assume.recipient.access": ["black_box", "white_box"],
    "assume.network.tls_inspection": [False, True],
    "require.dp.model": ["central", "distributed", "local"],
    "require.dp.unit": ["record", "patient"],
    "require.dp.secure_rng": [False, True],
    "require.validity": ["none", "range", "l2_bound"],
    "require.approvals.automatic": ["allowed", "refused"],
    "require.attack_suite": ["none", "quick", "full"],
    "release.metrics.dp": ["none", "charged", "withheld"],
    "release.model.to": ["researchers", "silos"],
    "release.model.when": ["every_round", "job_end"],
    "evidence.fail_closed": [False, True],
}
"""From the loosest word to the strictest, said once more than in the table under test."""
MORE_IS_STRICTER = {
    "assume.aggregator.colludes_with_silos": WHOLE,
    "assume.share_servers.count": st.integers(2, 16),
    "assume.share_servers.max_colluding": WHOLE,
    "assume.silos.max_colluding": WHOLE,
    "assume.silos.max_poisoning": WHOLE,
    "require.approvals.n": st.integers(1, 3),
    "limits.min_silos_open": WHOLE,
    "limits.min_records": WHOLE,
    "evidence.witnesses_min": WHOLE,
    "evidence.sinks_min": st.integers(1, 2),
    "retention.evidence_days": WHOLE,
}
LESS_IS_STRICTER = {
    "require.dp.max_records_per_unit": WHOLE,
    "require.attack_suite_days": WHOLE,
    "limits.max_dropouts": WHOLE,
    "limits.max_weight_share": REALS,
    "limits.epsilon.round": REALS,
    "limits.epsilon.job": REALS,
    "limits.epsilon.lifetime": REALS,
    "limits.epsilon_fallback.round": REALS,
    "limits.epsilon_fallback.job": REALS,
    "limits.epsilon_fallback.lifetime": REALS,
    "limits.delta_max": REALS,
    "limits.clip_l2_max": REALS,
    "limits.update_norm_max": REALS,
    "limits.upload_bytes_max": WHOLE,
    "limits.rounds_max": WHOLE,
}
EITHER_WAY_REFUSED: dict[str, list[str]] = {
    "require.secagg.scheme": ["additive", "pairwise", "bfv", "ckks", "threshold_bfv", "threshold_ckks"],
    "require.dp.adjacency": ["add_remove", "replace_one"],
    "require.dp.sampling": ["poisson", "shuffle", "fixed_size"],
    "require.dp.accountant": ["pld", "rdp", "gdp"],
}
SPELT_IN_FULL = {"limits.epsilon_fallback": {"round": 1, "job": 3, "lifetime": 8}}
ONE_VALUE_OR_FREE = {"apiVersion", "kind", "metadata.name", "metadata.version", "metadata.extends"}
GROUPS = {"assume.share_servers", "require.dp", "limits.epsilon_fallback"}


TREE: dict[str, Any] = yaml.safe_load(profile_text("demo-hospitals"))


def _with(path: str, value: object) -> ThreatModel:
    above = next((group for group in SPELT_IN_FULL if path.startswith(f"{group}.")), None)
    tree = copy.deepcopy(TREE)
    if above:
        tree["spec"]["limits"]["epsilon_fallback"] = dict(SPELT_IN_FULL[above])
    *groups, last = path.split(".")
    node = tree["spec"]
    for step in groups:
        node = node.setdefault(step, {})
    node[last] = value
    return ThreatModel.model_validate(tree)


def _named(parent: ThreatModel, child: ThreatModel) -> set[str]:
    """Fields that are refused, by the sentence that names them."""
    return {finding.sentence.partition(":")[0] for finding in loosened(parent, child)}


def test_every_field_of_the_schema_has_an_order_and_a_case_here() -> None:
    every = {field.path for field in fields()}
    assert set(STRICTNESS) == every
    tested = {*SOME_OF, *WORDS, *MORE_IS_STRICTER, *LESS_IS_STRICTER, *EITHER_WAY_REFUSED}
    assert tested | ONE_VALUE_OR_FREE | GROUPS == every
    assert {path for path, order in STRICTNESS.items() if isinstance(order, Free)} == (
        {"metadata.name", "metadata.version", "metadata.extends", "limits.epsilon_fallback"}
    )


@pytest.mark.parametrize("path", [*MORE_IS_STRICTER, *LESS_IS_STRICTER])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_number_may_go_the_strict_way_only(path: str, data: st.DataObject) -> None:
    values = (MORE_IS_STRICTER | LESS_IS_STRICTER)[path]
    one, other = data.draw(values), data.draw(values)
    loose, strict = sorted((one, other), reverse=path in LESS_IS_STRICTER)
    assert path not in _named(_with(path, loose), _with(path, strict))
    assert (path in _named(_with(path, strict), _with(path, loose))) == (loose != strict)


@pytest.mark.parametrize("path", WORDS)
def test_a_word_may_go_the_strict_way_only(path: str) -> None:
    words = WORDS[path]
    for low, loose in enumerate(words):
        for strict in words[low:]:
            assert _named(_with(path, loose), _with(path, strict)) == set()
            assert _named(_with(path, strict), _with(path, loose)) == ({path} if loose != strict else set())


@pytest.mark.parametrize("path", EITHER_WAY_REFUSED)
def test_what_has_no_order_stays_as_it_is(path: str) -> None:
    first, *others = EITHER_WAY_REFUSED[path]
    for other in others:
        assert path in _named(_with(path, first), _with(path, other))
        assert path in _named(_with(path, other), _with(path, first))


@pytest.mark.parametrize("path", SOME_OF)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_list_may_lose_names_and_gain_none(path: str, data: st.DataObject) -> None:
    names = st.lists(st.sampled_from(SOME_OF[path]), unique=True, min_size=path == "require.approvals.roles")
    before, after = data.draw(names), data.draw(names)
    refused = path in _named(_with(path, before), _with(path, after))
    assert refused == (not set(after) <= set(before))


def test_any_architecture_holds_every_list_and_no_list_holds_any() -> None:
    path = "allow.architectures"
    assert path not in _named(_with(path, "any"), _with(path, DIGESTS))
    assert path in _named(_with(path, DIGESTS), _with(path, "any"))


def test_a_child_may_add_dp_and_not_drop_it() -> None:
    without, given_ = _with("require.dp", "none"), unjudged(bent({}))
    assert _named(given_, without) == {"require.dp"}
    assert _named(without, given_) == set()


def test_caps_on_the_fallback_count_as_they_are_in_force() -> None:
    """Left out they are those of epsilon, so writing looser ones loosens, and leaving them out does not."""
    spelt = _with("limits.epsilon_fallback", {"round": 2, "job": 3, "lifetime": 8})
    assert _named(unjudged(bent({})), spelt) == {"limits.epsilon_fallback.round"}
    assert _named(spelt, unjudged(bent({}))) == set()


# --- what stricter means: whatever the child admits, its parent would have admitted ---

PLAN_FIELDS = [
    *(path for path in WORDS if path not in ("mode",)),
    *MORE_IS_STRICTER,
    *LESS_IS_STRICTER,
    *SOME_OF,
    *EITHER_WAY_REFUSED,
]


def _near(path: str) -> st.SearchStrategy[Any]:
    """Values on both sides of what the honest round has."""
    if path in WORDS or path in EITHER_WAY_REFUSED:
        return st.sampled_from((WORDS | EITHER_WAY_REFUSED)[path])
    if path in SOME_OF:
        minimum = 1 if path == "require.approvals.roles" else 0
        return st.lists(st.sampled_from(SOME_OF[path]), unique=True, min_size=minimum)
    if path.startswith(("limits.epsilon", "limits.delta", "limits.clip", "limits.max_weight", "limits.upd")):
        return st.sampled_from([1e-6, 1e-4, 0.05, 0.2, 0.4, 0.9])
    if path == "limits.upload_bytes_max":
        return st.sampled_from([8, 16, 64, 1 << 20])
    least = 2 if path.endswith(("servers.count", "min_silos_open")) else 1
    return st.integers(least, 2 if path.endswith("sinks_min") else 3 if path.endswith("approvals.n") else 6)


@pytest.mark.parametrize("path", PLAN_FIELDS)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_a_plan_that_a_child_admits_its_parent_admits(path: str, data: st.DataObject) -> None:
    """The order is checked against the rules themselves, which know nothing of it."""
    here = honest_round()
    parent, child = (_with(path, data.draw(_near(path))) for _ in range(2))
    if list(loosened(parent, child)):
        return
    admitted = {
        name: not limit_findings(_unchecked(model), here.plan, here.charter)
        for name, model in (("parent", parent), ("child", child))
    }
    assert admitted["parent"] or not admitted["child"]


def _unchecked(model: ThreatModel) -> Any:
    policy = honest_round().policy
    return type(policy)(model, policy.text, policy.digest)


# --- through the loader ---


def _child(changes_: dict[str, object], parent: str, digest: str | None = None) -> str:
    named = f"sha256:{digest or policy_digest(parent)}"
    return bent_text(parent, {"/metadata.name": "child", "/metadata.extends": named, **changes_})


@pytest.mark.parametrize("name", PROFILES)
def test_a_copy_of_a_shipped_profile_extends_it_without_its_text_at_hand(name: str) -> None:
    parent = profile_text(name)
    loaded = load_threat_model(_child({}, parent))
    assert loaded.parents == (parent,)
    assert [change.path for change in changes(load_threat_model(parent).model, loaded.model)] == (
        ["metadata.name", "metadata.extends"]
    )


def test_a_looser_child_is_refused_by_field_with_both_values_and_what_to_do() -> None:
    parent = profile_text("demo-hospitals")
    with pytest.raises(PolicyInvalid) as refused:
        load_threat_model(_child({"limits.max_dropouts": 2, "limits.rounds_max": 90}, parent))
    (finding,) = refused.value.findings
    assert finding.rule == "extends_loosens"
    assert finding.sentence.startswith("limits.max_dropouts: a child threat model may only tighten demo-hosp")
    assert (finding.expected, finding.got) == ("at most 1", "2")
    assert "write limits.max_dropouts: 1" in finding.remedy


def test_what_a_child_leaves_out_has_the_default_and_is_refused_where_that_is_looser() -> None:
    """One text says everything: an auditor who reads the child alone must not miss a line."""
    parent = bent({"limits.min_records": 500, "limits.upload_bytes_max": "1MiB"})
    with pytest.raises(PolicyInvalid, match="what a child leaves out has the default") as refused:
        load_threat_model(_child({"limits.upload_bytes_max": ABSENT}, parent), [parent])
    assert [finding.sentence.partition(":")[0] for finding in refused.value.findings] == (
        ["limits.upload_bytes_max"]
    )
    kept = load_threat_model(_child({"limits.max_dropouts": ABSENT}, parent), [parent])
    assert effective(kept.model)["limits.max_dropouts"] == 0


def test_a_parent_that_nobody_has_is_refused() -> None:
    parent = bent({"limits.rounds_max": 90})
    with pytest.raises(PolicyInvalid, match="extends_unknown"):
        load_threat_model(_child({}, parent))
    with pytest.raises(PolicyInvalid, match="extends_unknown"):
        load_threat_model(_child({}, parent, digest="ab" * 32), [parent])
    assert load_threat_model(_child({}, parent), ["unrelated", parent]).parents == (parent,)


def test_a_parent_that_is_itself_invalid_is_refused_with_its_faults() -> None:
    parent = bent({"mode": "audit"})
    with pytest.raises(PolicyInvalid, match="audit_on_real_data"):
        load_threat_model(_child({"mode": "enforce"}, parent), [parent])


def test_grandchildren_are_held_against_their_parents_and_a_long_line_is_refused() -> None:
    lineage = [bent({"limits.rounds_max": 90})]
    for rounds in (80, 70, 60):
        lineage.insert(0, _child({"limits.rounds_max": rounds}, lineage[0]))
    assert load_threat_model(lineage[0], lineage[1:]).parents == tuple(lineage[1:])
    with pytest.raises(PolicyInvalid, match="at most 4 generations"):
        load_threat_model(_child({}, lineage[0]), lineage)
    looser = _child({"limits.rounds_max": 75}, lineage[1])
    with pytest.raises(PolicyInvalid, match=r"limits\.rounds_max"):
        load_threat_model(looser, lineage)


def test_a_cohort_is_judged_by_the_child_not_by_its_parent() -> None:
    """The child's own text is what acts."""
    here = honest_round(_child({"limits.max_dropouts": 0}, profile_text("demo-hospitals")))
    assert here.policy.model.spec.limits.max_dropouts == 0
    assert any(
        finding.rule == "max_dropouts" for finding in limit_findings(here.policy, here.plan, here.charter)
    )
