"""Evidence cannot be forged, and each gate refuses what its docstring numbers."""

from __future__ import annotations

import ast
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import policies
from policies import gates
from policies.findings import PolicyRefusal
from policies.gates import (
    AdmittedPlan,
    AdmittedUpdate,
    ClearedCohort,
    admit_plan,
    admit_update,
    check_reader,
    check_survivors,
    clear_cohort,
)
from policies.rules_round import survivor_findings
from privacy.ids import SiloId
from privacy.wire.envelope import Verified
from privacy.wire.messages import ShareManifest
from tests.unit.policies.policies_terms import Round, altered, bent, bent_policy, honest_round, verified

OTHER = "ab" * 32
FOUR = ("silo-1", "silo-2", "silo-3", "silo-4")


def _admitted(round_: Round) -> AdmittedPlan:
    return admit_plan([round_.policy], round_.offer(), round_.signed_job(), round_.charter)


def _manifest(round_: Round, sender: str = "silo-1", **changes: Any) -> Verified[ShareManifest]:
    """``silo-1``'s honest manifest with some fields replaced, signed by ``sender``."""
    body = altered(round_.federation.share(round_.plan, "silo-1").manifest, **changes)
    return verified(round_.federation.sign(body, "manifest", round_.plan.context, sender), body)


def _cleared(round_: Round, **changes: Any) -> ClearedCohort:
    terms: dict[str, Any] = {
        "survivor_sets": round_.survivors(*FOUR),
        "charter": round_.charter,
        "policy": round_.policy,
        "opened_before": False,
        **changes,
    }
    return clear_cohort(_admitted(round_), **terms)


def _refused(error: pytest.ExceptionInfo[PolicyRefusal]) -> list[str]:
    return [finding.rule for finding in error.value.findings]


# --- evidence ---


def test_an_honest_round_passes_every_gate() -> None:
    honest = honest_round()
    admitted = _admitted(honest)
    assert (admitted.plan, admitted.job, admitted.context) == (honest.plan, honest.job, honest.plan.context)
    assert admitted.tolerated == ()
    manifest = _manifest(honest)
    update = admit_update(admitted, manifest)
    assert (update.silo, update.manifest_digest) == ("silo-1", manifest.envelope.body_digest)
    cleared = _cleared(honest)
    assert cleared.survivors == FOUR


def test_evidence_cannot_be_constructed() -> None:
    honest = honest_round()
    admitted = _admitted(honest)
    with pytest.raises(TypeError, match="expected it from a gate"):
        AdmittedPlan(honest.plan, honest.job, honest.plan.context, ())
    with pytest.raises(TypeError, match="expected it from a gate"):
        AdmittedUpdate(_manifest(honest).message, honest.plan.context, SiloId(honest.plan.silos[0]))
    with pytest.raises(TypeError, match="expected it from a gate"):
        ClearedCohort(admitted, honest.plan.silos, honest.plan.context, mint=object())


def test_evidence_cannot_be_altered() -> None:
    admitted = _admitted(honest_round())
    loose = altered(admitted.plan, min_survivors=2)
    with pytest.raises(TypeError, match="expected it from a gate"):
        replace(admitted, plan=loose)
    with pytest.raises(AttributeError):
        admitted.plan = loose  # type: ignore[misc]  # that it is refused is the point
    assert copy.copy(admitted) == admitted


def test_evidence_cannot_be_subclassed_elsewhere() -> None:
    with pytest.raises(TypeError, match="cannot be subclassed"):

        class Forged(AdmittedPlan):  # type: ignore[misc]  # that it is refused is the point
            def __post_init__(self, mint: object) -> None:
                pass


def test_nobody_outside_the_gates_names_the_mint() -> None:
    root = Path(policies.__file__).parent.parent
    for package in ("policies", "silo_agent", "aggregator", "sealsum"):
        for path in (root / package).rglob("*.py"):
            if path == Path(gates.__file__):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                named = (
                    getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
                )
                assert named != "_MINT", path
                assert not (isinstance(node, ast.keyword) and node.arg == "mint"), path


# --- admit_plan ---


def test_another_first_threat_model_than_the_federations_is_refused() -> None:
    honest = honest_round()
    own = bent_policy({"/metadata.name": "own"})
    for judged in ([own], [own, honest.policy], []):
        with pytest.raises(PolicyRefusal, match="federation_policy") as refused:
            admit_plan(judged, honest.offer(), honest.signed_job(), honest.charter)
        assert _refused(refused) == ["federation_policy"]


@pytest.mark.parametrize("sender", ["silo-1", "server-0", "researcher"])
def test_an_offer_not_signed_by_the_aggregator_is_refused(sender: str) -> None:
    honest = honest_round()
    with pytest.raises(PolicyRefusal) as refused:
        admit_plan([honest.policy], honest.offer(sender=sender), honest.signed_job(), honest.charter)
    assert _refused(refused) == ["offer_sender"]


def test_an_offer_under_another_context_than_its_plans_is_refused() -> None:
    honest = honest_round()
    offer = replace(honest.offer(), context=honest.charter.digest)
    with pytest.raises(PolicyRefusal) as refused:
        admit_plan([honest.policy], offer, honest.signed_job(), honest.charter)
    assert _refused(refused) == ["offer_context"]


@pytest.mark.parametrize("sender", ["silo-1", "server-0", "aggregator"])
def test_a_job_not_signed_by_a_researcher_is_refused(sender: str) -> None:
    honest = honest_round()
    with pytest.raises(PolicyRefusal) as refused:
        admit_plan([honest.policy], honest.offer(), honest.signed_job(sender=sender), honest.charter)
    assert _refused(refused) == ["job_sender"]


def test_a_job_signed_under_another_charter_is_refused() -> None:
    honest = honest_round()
    job = replace(honest.signed_job(), context=honest.plan.context)
    with pytest.raises(PolicyRefusal) as refused:
        admit_plan([honest.policy], honest.offer(), job, honest.charter)
    assert _refused(refused) == ["job_context"]


def test_an_offer_from_before_the_newest_charter_is_refused() -> None:
    honest = honest_round()
    newer = altered(honest.charter, epoch=2)
    with pytest.raises(PolicyRefusal) as refused:
        admit_plan([honest.policy], honest.offer(), honest.signed_job(), newer)
    assert _refused(refused) == ["job_context", "plan_charter", "plan_roster_epoch", "job_charter"]


# --- admit_update ---

MANIFESTS: dict[str, dict[str, Any]] = {
    "manifest_sender": {"silo": "silo-2"},
    "manifest_model": {"model": OTHER},
    "manifest_seeds": {"seeds": {}},
}


@pytest.mark.parametrize("rule", MANIFESTS)
def test_a_bent_manifest_is_refused_by_its_own_rule_alone(rule: str) -> None:
    honest = honest_round()
    with pytest.raises(PolicyRefusal) as refused:
        admit_update(_admitted(honest), _manifest(honest, **MANIFESTS[rule]))
    assert _refused(refused) == [rule]


@pytest.mark.parametrize("changes", [{"vector_length": 5}, {"parts": (OTHER, OTHER)}])
def test_a_share_of_another_length_is_refused(changes: dict[str, Any]) -> None:
    honest = honest_round()
    with pytest.raises(PolicyRefusal) as refused:
        admit_update(_admitted(honest), _manifest(honest, **changes))
    assert _refused(refused) == ["manifest_length"]


@pytest.mark.parametrize(
    "seeds", [{"server-0": OTHER}, {"server-1": OTHER, "server-0": OTHER}, {"server-9": OTHER}]
)
def test_seeds_go_to_exactly_the_servers_after_the_first(seeds: dict[str, str]) -> None:
    honest = honest_round()
    with pytest.raises(PolicyRefusal) as refused:
        admit_update(_admitted(honest), _manifest(honest, seeds=seeds))
    assert _refused(refused) == ["manifest_seeds"]


def test_a_silo_that_was_not_invited_is_refused() -> None:
    honest = honest_round()
    smaller = replace(honest, plan=honest.federation.plan(honest.job, silos=FOUR[1:]))
    with pytest.raises(PolicyRefusal) as refused:
        admit_update(_admitted(smaller), _manifest(smaller))
    assert _refused(refused) == ["manifest_stranger"]


def test_a_manifest_of_another_round_is_refused() -> None:
    honest = honest_round()
    later = replace(honest, plan=honest.federation.plan(honest.job, round_number=2))
    with pytest.raises(PolicyRefusal) as refused:
        admit_update(_admitted(later), _manifest(honest))
    assert _refused(refused) == ["another_round"]


# --- clear_cohort and check_survivors ---


def test_a_second_opening_is_refused() -> None:
    with pytest.raises(PolicyRefusal, match="difference of two sums") as refused:
        _cleared(honest_round(), opened_before=True)
    assert _refused(refused) == ["second_opening"]


def test_a_missing_doubled_or_foreign_signature_is_refused() -> None:
    honest = honest_round()
    both = honest.survivors(*FOUR)
    for sets in (
        [],
        both[:1],
        [both[0], both[0]],
        [*both, both[0]],
        honest.survivors(*FOUR, servers=("server-0", "silo-1")),
    ):
        with pytest.raises(PolicyRefusal) as refused:
            _cleared(honest, survivor_sets=sets)
        assert _refused(refused) == ["survivors_signers"]


def test_a_server_that_signs_for_another_is_refused() -> None:
    honest = honest_round()
    first, second = honest.survivors(*FOUR)
    posing = replace(second, message=altered(second.message, server=first.message.server))
    with pytest.raises(PolicyRefusal) as refused:
        _cleared(honest, survivor_sets=[first, posing])
    assert _refused(refused) == ["survivors_sender"]


def test_different_sets_at_two_servers_never_open() -> None:
    honest = honest_round()
    first = honest.survivor_set("server-0", FOUR)
    for other in (
        honest.survivor_set("server-1", FOUR[:3]),
        honest.survivor_set("server-1", FOUR, manifests=("cd" * 32,) * 4),
    ):
        with pytest.raises(PolicyRefusal) as refused:
            _cleared(honest, survivor_sets=[first, other])
        assert _refused(refused) == ["survivors_disagree"]


def test_survivors_of_another_round_are_refused() -> None:
    honest = honest_round()
    later = replace(honest, plan=honest.federation.plan(honest.job, round_number=2))
    with pytest.raises(PolicyRefusal) as refused:
        _cleared(honest, survivor_sets=later.survivors(*FOUR))
    assert _refused(refused) == ["another_round", "another_round"]


SETS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "below the minimum": (
        FOUR[:2],
        ["survivors_below_minimum", "dropouts_above_maximum", "survivors_legal_entities"],
    ),
    "a stranger makes up the number": (
        ("silo-1", "silo-2", "silo-9"),
        [
            "survivors_strangers",
            "survivors_below_minimum",
            "dropouts_above_maximum",
            "survivors_legal_entities",
        ],
    ),
    "a silo twice": (
        ("silo-1", "silo-2", "silo-2"),
        [
            "survivors_form",
            "survivors_below_minimum",
            "dropouts_above_maximum",
            "survivors_legal_entities",
        ],
    ),
    "out of order": (("silo-2", "silo-1", "silo-3"), ["survivors_form"]),
}


@pytest.mark.parametrize("case", SETS)
def test_a_bad_set_is_refused_by_each_server_and_by_the_opening(case: str) -> None:
    honest = honest_round()
    silos, rules = SETS[case]
    admitted, signed = _admitted(honest), honest.survivors(*silos)
    with pytest.raises(PolicyRefusal) as refused:
        check_survivors(admitted, signed[0].message, honest.charter, honest.policy)
    assert _refused(refused) == rules
    with pytest.raises(PolicyRefusal) as refused:
        clear_cohort(admitted, signed, honest.charter, honest.policy, opened_before=False)
    assert _refused(refused) == rules


def test_a_manifest_for_each_survivor() -> None:
    honest = honest_round()
    short = honest.survivor_set("server-0", FOUR, manifests=("ab" * 32,) * 3).message
    with pytest.raises(PolicyRefusal) as refused:
        check_survivors(_admitted(honest), short, honest.charter, honest.policy)
    assert _refused(refused) == ["survivors_form"]


def test_the_minimum_is_the_larger_of_the_plans_and_the_threat_models() -> None:
    honest = honest_round()
    three = honest.survivor_set("server-0", FOUR[:3]).message
    check_survivors(_admitted(honest), three, honest.charter, honest.policy)
    strict_plan = altered(honest.plan, min_survivors=4)
    rules = [f.rule for f in survivor_findings(honest.policy, strict_plan, honest.charter, three)]
    assert rules == ["survivors_below_minimum"]
    strict_policy = bent_policy({"limits.min_silos_open": 4})
    with pytest.raises(PolicyRefusal) as refused:
        check_survivors(_admitted(honest), three, honest.charter, strict_policy)
    assert _refused(refused) == ["release_policy", "survivors_below_minimum", "survivors_legal_entities"]


def test_dropouts_are_limited_at_the_opening_too() -> None:
    wide = honest_round(silos=5)
    plan = altered(wide.plan, min_survivors=3)
    three = wide.survivor_set("server-0", FOUR[:3]).message
    rules = [finding.rule for finding in survivor_findings(wide.policy, plan, wide.charter, three)]
    assert rules == ["dropouts_above_maximum"]


def test_silos_of_one_institution_do_not_make_up_the_minimum() -> None:
    honest = honest_round()
    members = tuple(
        altered(member, legal_entity="Hospital 1") if member.id in FOUR[:2] else member
        for member in honest.charter.members
    )
    charter = altered(honest.charter, members=members)
    three = honest.survivor_set("server-0", FOUR[:3]).message
    with pytest.raises(PolicyRefusal) as refused:
        check_survivors(_admitted(honest), three, charter, honest.policy)
    assert _refused(refused) == ["survivors_legal_entities"]


def test_audit_mode_opens_no_small_sum() -> None:
    audited = honest_round(bent({"mode": "audit", "data_class": "synthetic"}))
    with pytest.raises(PolicyRefusal, match="survivors_below_minimum"):
        _cleared(audited, survivor_sets=audited.survivors(*FOUR[:2]))


# --- check_reader ---


def test_a_researcher_reads_models_only_when_the_job_has_ended() -> None:
    honest = honest_round()
    researcher = honest.federation.parties["researcher"].member
    check_reader(honest.policy, honest.charter, researcher, job_ended=True)
    with pytest.raises(PolicyRefusal) as refused:
        check_reader(honest.policy, honest.charter, researcher, job_ended=False)
    assert _refused(refused) == ["model_not_yet"]


def test_models_for_silos_reach_no_researcher_but_their_own() -> None:
    inside = bent_policy({"assume.recipient.kind": "silos", "release.model.to": "silos"})
    honest = honest_round()
    researcher = honest.federation.parties["researcher"].member
    with pytest.raises(PolicyRefusal) as refused:
        check_reader(inside, honest.charter, researcher, job_ended=True)
    assert _refused(refused) == ["model_recipient"]
    check_reader(inside, honest.charter, altered(researcher, legal_entity="hospital  2"), job_ended=True)


@pytest.mark.parametrize("party", ["silo-1", "server-0", "aggregator"])
def test_those_who_run_a_job_read_its_models(party: str) -> None:
    honest = honest_round()
    member = honest.federation.parties[party].member
    check_reader(honest.policy, honest.charter, member, job_ended=False)
