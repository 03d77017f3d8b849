"""What each scheme can keep of a threat model: refused by name, at load, where it cannot."""

from __future__ import annotations

import pytest

from policies.assumption import assumption_of
from policies.explain import explain
from policies.loader import load_threat_model
from policies.profiles import profile_text
from policies.rules_assumed import ONE_SERVER_SEES_NO_SHARES, threshold_reachable
from policies.rules_loader import open_threats_are_named
from privacy.secagg.pairwise.terms import least_threshold
from tests.federation import demo_policy_text
from tests.unit.policies.policies_terms import ABSENT, bent, bent_demo, findings_of, rules_of, unjudged

ONE_KEY = ("bfv", "ckks")
ONE_SERVER = ("pairwise", *ONE_KEY)
SERVERS = {"count": 2, "max_colluding": 1}
EXTERNAL = {"assume.recipient.kind": "external"}


@pytest.mark.parametrize("scheme", ["additive", *ONE_SERVER])
def test_the_demonstrations_threat_model_of_each_scheme_loads(scheme: str) -> None:
    assert load_threat_model(demo_policy_text(scheme)).model.spec.require.secagg.scheme == scheme


@pytest.mark.parametrize("scheme", ONE_SERVER)
def test_share_servers_are_an_idle_line_with_one_server(scheme: str) -> None:
    (finding,) = findings_of(bent_demo(scheme, {"assume.share_servers": SERVERS}))
    assert finding.rule == "share_servers_idle"
    assert scheme in finding.sentence


@pytest.mark.parametrize("scheme", ONE_SERVER)
@pytest.mark.parametrize("validity", ["range", "l2_bound"])
def test_validity_without_shares_is_refused_with_the_sentence_that_says_why(
    scheme: str, validity: str
) -> None:
    (finding,) = findings_of(bent_demo(scheme, {"require.validity": validity}))
    assert finding.rule == "validity_without_shares"
    assert ONE_SERVER_SEES_NO_SHARES in finding.sentence
    assert "no second party to check shares with" in finding.sentence


@pytest.mark.parametrize("scheme", ONE_KEY)
@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"assume.aggregator.behaviour": "malicious"}, "malicious_aggregator"),
        ({"assume.aggregator.colludes_with_silos": 1}, "key_at_colluders"),
        ({"assume.silos.max_colluding": 1}, "key_shared_by_colluders"),
    ],
)
def test_one_key_at_all_silos_is_refused_against_whom_it_does_not_withstand(
    scheme: str, changes: dict[str, object], rule: str
) -> None:
    assert rules_of(bent_demo(scheme, changes)) == [f"{scheme}_{rule}"]


@pytest.mark.parametrize("scheme", ONE_KEY)
def test_a_malicious_aggregator_is_refused_even_where_nobody_colludes(scheme: str) -> None:
    """The count of contributors in slot 0 does not show a ciphertext that is scaled or replaced."""
    (finding,) = findings_of(bent_demo(scheme, {"assume.aggregator.behaviour": "malicious"}))
    assert "scale or replace" in finding.sentence


def test_approximate_decryptions_stay_with_the_silos() -> None:
    assert rules_of(bent_demo("ckks", EXTERNAL)) == ["ckks_decryption_leaves_silos"]


def test_exact_decryptions_may_leave_the_silos() -> None:
    assert rules_of(bent_demo("bfv", EXTERNAL)) == []


# --- the threshold of pairwise ---


@pytest.mark.parametrize(
    ("minimum", "dropouts", "colluding", "reachable"),
    [(3, 1, 1, True), (3, 2, 1, False), (4, 2, 1, True), (5, 1, 2, True), (5, 3, 2, False), (6, 3, 2, True)],
)
def test_a_malicious_aggregator_needs_a_threshold_that_dropouts_leave_in_reach(
    minimum: int, dropouts: int, colluding: int, reachable: bool
) -> None:
    changes: dict[str, object] = {
        "limits.min_silos_open": minimum,
        "limits.max_dropouts": dropouts,
        "assume.aggregator.colludes_with_silos": colluding,
    }
    rules = rules_of(bent_demo("pairwise", changes))
    assert rules == ([] if reachable else ["threshold_unreachable"])


def test_the_refused_threshold_is_told_with_its_numbers() -> None:
    (finding,) = findings_of(bent_demo("pairwise", {"limits.max_dropouts": 2}))
    assert "of 5 silos 4 must agree" in finding.sentence
    assert "after 2 dropouts only 3 are left" in finding.sentence
    assert "at least 4" in finding.expected


@pytest.mark.parametrize("behaviour", ["malicious", "honest_but_curious"])
@pytest.mark.parametrize("minimum", [3, 4, 7, 20])
@pytest.mark.parametrize("dropouts", [0, 1, 2, 6])
def test_where_a_threat_model_loads_every_cohort_reaches_its_threshold_after_all_dropouts(
    behaviour: str, minimum: int, dropouts: int
) -> None:
    """The oracle for the one cohort that the rule looks at: all cohorts up to the largest."""
    changes: dict[str, object] = {
        "assume.aggregator.behaviour": behaviour,
        "limits.min_silos_open": minimum,
        "limits.max_dropouts": dropouts,
    }
    model = unjudged(bent_demo("pairwise", changes))
    assumed = assumption_of(model.spec)
    if list(threshold_reachable(model)):
        assert least_threshold(minimum + dropouts, assumed) > minimum
        return
    for silos in range(minimum, 101):
        survivors = max(minimum, silos - dropouts)
        assert least_threshold(silos, assumed) <= survivors


def test_a_cohort_that_every_silo_can_mask_with_has_a_largest_size() -> None:
    assert rules_of(bent_demo("pairwise", {"limits.min_silos_open": 100})) == ["cohort_beyond_scheme"]
    assert rules_of(bent_demo("pairwise", {"limits.min_silos_open": 99})) == []


def test_a_silo_of_a_hospital_without_share_servers_finds_a_strict_profile() -> None:
    spec = load_threat_model(profile_text("cross-hospital-one-server")).model.spec
    assert (spec.require.secagg.scheme, spec.assume.aggregator.behaviour) == ("pairwise", "malicious")
    strict = load_threat_model(profile_text("cross-hospital-strict")).model.spec
    assert spec.limits == strict.limits
    assert spec.assume.silos == strict.assume.silos


# --- poisoning ---


@pytest.mark.parametrize(
    ("validity", "colluding", "left_open"),
    [("none", 0, True), ("none", 1, True), ("range", 1, True), ("l2_bound", 1, True), ("l2_bound", 0, False)],
)
def test_poisoning_is_open_unless_it_is_checked_by_servers_of_which_none_colludes(
    validity: str, colluding: int, left_open: bool
) -> None:
    changes: dict[str, object] = {
        "require.validity": validity,
        "assume.share_servers.max_colluding": colluding,
        "assume.out_of_scope": ["silo_host_compromise"],
    }
    rules = [finding.rule for finding in open_threats_are_named(unjudged(bent(changes)))]
    assert rules == (["poisoning_unchecked"] if left_open else [])


# --- explained ---


def test_a_threat_model_with_one_server_promises_nothing_of_share_servers() -> None:
    for scheme in ("pairwise", "bfv", "ckks", "threshold_bfv"):
        text = bent({"assume.share_servers": ABSENT, "require.secagg.scheme": scheme})
        assert "share server" not in str(explain(unjudged(text)))


def test_each_scheme_says_whose_collusion_opens_an_update() -> None:
    said = {
        name: str(explain(unjudged(demo_policy_text(name))))
        for name in ("additive", "pairwise", "bfv", "ckks")
    }
    assert "All 2 share servers together" in said["additive"]
    assert "3 of 4, by 2t > n + c with c = 1" in said["pairwise"]
    assert "The aggregator with 2 or more silos" in said["pairwise"]
    for name in ("bfv", "ckks"):
        assert "The aggregator with any single silo" in said[name]
        assert "An aggregator that departs from the protocol" in said[name]


def test_a_curious_aggregators_threshold_is_explained_by_the_weaker_rule() -> None:
    text = bent_demo("pairwise", {"assume.aggregator.behaviour": "honest_but_curious"})
    said = str(explain(load_threat_model(text).model))
    assert "2 of 4, by t > c with c = 1" in said
    assert "a malicious one could show silos different sets" in said


def test_required_validity_moves_poisoning_to_what_is_protected_up_to_the_bound() -> None:
    changes: dict[str, object] = {"require.validity": "l2_bound", "limits.update_norm_max": 3}
    explanation = explain(unjudged(bent(changes)))
    assert any("longer than 3" in sentence.text for sentence in explanation.protects)
    assert any("within the bound" in sentence.text for sentence in explanation.does_not)
    assert not any("as far as it likes" in sentence.text for sentence in explanation.does_not)
