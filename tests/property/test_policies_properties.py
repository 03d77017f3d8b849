"""For all plans, sets and policies: no altered plan passes, no small sum opens, no reader loses a byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.explain import explain
from policies.findings import MAX_TEXT, Finding, PolicyInvalid, PolicyRefusal
from policies.gates import admit_plan, clear_cohort
from policies.loader import load_threat_model
from policies.rules_validity import validity_as_required
from policies.upload_size import upload_bytes
from privacy.plan import CohortMember, RoundPlan, ServerSlot, ValidityClaim, VectorTerms
from privacy.query_terms import CountStatistic, StatisticsTerms
from privacy.secagg.he.framing import Form, he_stretches, part_bytes
from privacy.secagg.he.parameters import parameters_named
from privacy.vector_terms import FurtherVector
from privacy.wire.messages import Refusal
from tests.unit.policies.policies_terms import altered, bent, bent_demo, honest_round, planned_round, unjudged

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
NAME = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
COUNT = st.integers(1, 1000)
REAL = st.floats(1e-3, 1e3)


def _inside(field: str, alternatives: dict[str, st.SearchStrategy[Any]]) -> Callable[[RoundPlan], Any]:
    """Other values of one field inside a group of terms."""

    def draw(plan: RoundPlan) -> st.SearchStrategy[Any]:
        terms = getattr(plan, field)
        one_term = [values.map(lambda value, n=name: {n: value}) for name, values in alternatives.items()]
        return st.one_of(one_term).map(lambda changes: altered(terms, **changes))

    return draw


def _members(plan: RoundPlan) -> st.SearchStrategy[Any]:
    stranger = st.builds(CohortMember, silo=NAME, verify_key=HEX)
    return st.lists(stranger, min_size=1, max_size=3).map(lambda more: (*plan.cohort, *more))


def _servers(plan: RoundPlan) -> st.SearchStrategy[Any]:
    stranger = st.builds(ServerSlot, server=NAME, verify_key=HEX)
    strangers = st.lists(stranger, min_size=2, max_size=3)
    return st.one_of(st.permutations(plan.servers), strangers).map(tuple)


NAME_OF_VECTOR = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True).filter(lambda name: name != "model")


def _one_vector(name: str, coordinates: int) -> tuple[FurtherVector, ...]:
    terms = VectorTerms(coordinate_bound=1.0, scale_bits=16)
    return (FurtherVector(name=name, coordinates=coordinates, terms=terms),)


FORGERIES: dict[str, Callable[[RoundPlan], st.SearchStrategy[Any]]] = {
    "protocol": lambda plan: st.just("sealsum/0"),
    "session": lambda plan: st.text("0123456789abcdef", min_size=32, max_size=32),
    "federation": lambda plan: NAME,
    "charter": lambda plan: HEX,
    "roster_epoch": lambda plan: COUNT,
    "policy": lambda plan: HEX,
    "job": lambda plan: NAME,
    "job_digest": lambda plan: HEX,
    "round": lambda plan: st.integers(1, plan.rounds),
    "rounds": lambda plan: COUNT,
    "scheme": lambda plan: st.sampled_from(["none", "pairwise", "ckks"]),
    "threshold": lambda plan: st.integers(2, 100),
    "he": lambda plan: st.sampled_from(["bfv-2048-40", "ckks-4096-36", "homemade"]),
    "validity": lambda plan: st.builds(ValidityClaim, norm_bound=REAL),
    "architecture": lambda plan: HEX,
    "model": lambda plan: HEX,
    "parameters": lambda plan: COUNT,
    "sent": lambda plan: st.integers(1, plan.parameters),
    "cohort": _members,
    "pool": lambda plan: st.just(tuple(sorted(member.silo for member in plan.cohort))),
    "servers": _servers,
    "training": _inside(
        "training",
        {
            "algorithm": st.just("median"),
            "local_steps": COUNT,
            "learning_rate": REAL,
            "server_learning_rate": REAL,
            "weights": st.just("examples"),
            "weight_cap": COUNT,
        },
    ),
    "dp": _inside(
        "dp",
        {
            "unit": st.just("record"),
            "sample_rate": st.floats(0.01, 1),
            "noise_multiplier": REAL,
            "clip_l2": REAL,
            "normaliser": REAL,
            "delta": st.floats(1e-9, 0.5),
        },
    ),
    "vector": _inside("vector", {"coordinate_bound": REAL, "scale_bits": st.integers(1, 30)}),
    "further": lambda plan: st.builds(_one_vector, NAME_OF_VECTOR, st.integers(1, 1024)),
    "query": lambda plan: st.just(StatisticsTerms(statistics=(CountStatistic(),))),
    "min_survivors": lambda plan: st.integers(2, 1000),
    "deadline_s": lambda plan: st.integers(1, 86400),
}
"""Every field of a plan, and what a forger may write there."""
FREE = {"protocol", "session", "round", "min_survivors"}
"""Fields that an aggregator may choose: another one is another context.

A plan of another protocol does not parse.
"""


def test_every_field_of_a_plan_is_forged_here() -> None:
    assert set(FORGERIES) == set(RoundPlan.model_fields)


@pytest.mark.parametrize("field", FORGERIES)
def test_a_plan_altered_in_transit_has_another_context_and_is_refused(field: str) -> None:
    honest = honest_round()

    @given(st.data())
    @settings(max_examples=15)
    def forge(data: st.DataObject) -> None:
        plan = altered(honest.plan, **{field: data.draw(FORGERIES[field](honest.plan))})
        if plan == honest.plan:
            return
        assert plan.context != honest.plan.context
        offer = honest.offer()
        sent = altered(offer.message, plan=plan)
        with pytest.raises(PolicyRefusal, match="offer_context"):
            admit_plan(
                [honest.policy],
                type(offer)(sent, offer.sender, offer.context, offer.envelope),
                honest.signed_job(),
                honest.charter,
            )

    forge()


@pytest.mark.parametrize("field", sorted(set(FORGERIES) - FREE))
def test_a_plan_altered_by_the_aggregator_itself_is_refused(field: str) -> None:
    """It signs it under its own context; only what the researcher and the officer signed stops it."""
    honest = honest_round()

    @given(st.data())
    @settings(max_examples=15)
    def forge(data: st.DataObject) -> None:
        plan = altered(honest.plan, **{field: data.draw(FORGERIES[field](honest.plan))})
        if plan == honest.plan:
            return
        offer = honest.offer()
        sent = altered(offer.message, plan=plan)
        with pytest.raises(PolicyRefusal) as refused:
            admit_plan(
                [honest.policy],
                type(offer)(sent, offer.sender, plan.context, offer.envelope),
                honest.signed_job(),
                honest.charter,
            )
        assert "offer_context" not in {finding.rule for finding in refused.value.findings}

    forge()


@given(st.sets(st.sampled_from(["silo-1", "silo-2", "silo-3", "silo-4", "silo-5", "silo-9"]), min_size=1))
def test_a_set_is_opened_exactly_when_it_is_invited_and_large_enough(silos: set[str]) -> None:
    honest = honest_round(silos=5)
    plan = altered(honest.plan, min_survivors=4)
    round_ = type(honest)(honest.federation, honest.policy, honest.job, plan)
    admitted = admit_plan([honest.policy], round_.offer(), honest.signed_job(), honest.charter)
    signed = round_.survivors(*sorted(silos))
    allowed = "silo-9" not in silos and len(silos) >= 4
    try:
        cleared = clear_cohort(admitted, signed, honest.charter, honest.policy, opened_before=False)
    except PolicyRefusal:
        assert not allowed
    else:
        assert allowed
        assert set(cleared.survivors) == silos


@given(st.text(max_size=2000), st.text(max_size=2000))
def test_every_finding_fits_the_refusal_that_carries_it(expected: str, got: str) -> None:
    finding = Finding("some_rule.name", "a sentence", expected, got, "a remedy")
    assert len(finding.expected) <= MAX_TEXT
    Refusal(
        silo="silo-1",  # type: ignore[arg-type]  # a plain name
        rule=finding.rule,
        sentence=finding.sentence,
        expected=finding.expected,
        got=finding.got,
        remedy=finding.remedy,
    )


@settings(max_examples=25)
@given(
    servers=st.integers(2, 6),
    colluding=st.integers(0, 4),
    poisoning=st.integers(0, 4),
    minimum=st.integers(2, 9),
    inspected=st.booleans(),
    cap=st.floats(0.1, 8),
)
def test_a_loaded_threat_model_is_explained_with_its_own_numbers(
    servers: int, colluding: int, poisoning: int, minimum: int, inspected: bool, cap: float
) -> None:
    text = bent(
        {
            "assume.share_servers.count": servers,
            "assume.share_servers.max_colluding": servers - 1,
            "assume.silos.max_colluding": min(colluding, minimum - 2),
            "assume.aggregator.colludes_with_silos": 0,
            "assume.silos.max_poisoning": poisoning,
            "assume.network.tls_inspection": inspected,
            "limits.min_silos_open": minimum,
            "limits.max_weight_share": 1,
            "limits.epsilon": {"round": cap, "job": cap, "lifetime": 8},
        }
    )
    said = str(explain(load_threat_model(text).model))
    assert f"at least {minimum} institutions" in said
    assert f"{servers - 1} of {servers} share servers" in said
    assert f"ε = {cap:g}" in said
    assert ("A proxy that opens TLS and reads the models" in said) == inspected


@settings(max_examples=60)
@given(
    scheme=st.sampled_from(["pairwise", "bfv", "ckks"]),
    behaviour=st.sampled_from(["trusted", "honest_but_curious", "malicious"]),
    with_aggregator=st.integers(0, 4),
    among_silos=st.integers(0, 4),
    minimum=st.integers(2, 12),
    dropouts=st.integers(0, 6),
    validity=st.sampled_from(["none", "range", "l2_bound"]),
    servers=st.none() | st.fixed_dictionaries({"count": st.integers(2, 4), "max_colluding": st.just(1)}),
)
def test_a_threat_model_with_one_server_loads_only_if_its_scheme_keeps_every_assumption(
    scheme: str,
    behaviour: str,
    with_aggregator: int,
    among_silos: int,
    minimum: int,
    dropouts: int,
    validity: str,
    servers: dict[str, int] | None,
) -> None:
    changes: dict[str, object] = {
        "assume.aggregator": {"behaviour": behaviour, "colludes_with_silos": with_aggregator},
        "assume.silos.max_colluding": among_silos,
        "limits.min_silos_open": minimum,
        "limits.max_dropouts": dropouts,
        "limits.max_weight_share": 1,
        "require.validity": validity,
    }
    if servers is not None:
        changes["assume.share_servers"] = servers
    colluding = max(with_aggregator, among_silos)
    kept = (
        servers is None
        and validity == "none"
        and minimum >= colluding + 2
        and not (behaviour == "trusted" and with_aggregator > 0)
    )
    if scheme == "pairwise":
        kept = kept and (behaviour != "malicious" or 2 * minimum > minimum + dropouts + colluding)
    else:
        kept = kept and behaviour != "malicious" and colluding == 0
    text = bent_demo(scheme, changes)
    if not kept:
        with pytest.raises(PolicyInvalid):
            load_threat_model(text)
        return
    said = str(explain(load_threat_model(text).model))
    assert "share server" not in said
    assert f"at least {minimum} institutions" in said


@given(scheme=st.sampled_from(["additive", "pairwise", "bfv", "ckks"]), parameters=st.integers(1, 10**7))
def test_an_upload_is_judged_by_what_a_silo_really_sends(scheme: str, parameters: int) -> None:
    plan = altered(planned_round(scheme).plan, parameters=parameters)
    ring = 4 * (parameters + 1)
    if plan.he is None:
        assert upload_bytes(plan) == ring
        return
    row = parameters_named(plan.he)
    sent = sum(part_bytes(row, part, Form.UPDATE) for part in he_stretches(row, plan.vector_length))
    assert upload_bytes(plan) == sent + ring


@given(norm=st.floats(0.01, 100), most=st.floats(0.01, 100), required=st.sampled_from(["range", "l2_bound"]))
def test_no_looser_bound_than_required_is_ever_admitted(norm: float, most: float, required: str) -> None:
    spec = unjudged(bent({"require.validity": required, "limits.update_norm_max": most})).spec
    honest = honest_round()
    claim = ValidityClaim(norm_bound=norm)
    found = list(validity_as_required(spec, altered(honest.plan, validity=claim), honest.charter))
    assert bool(found) == (norm > most)
    said = str(explain(altered(honest.policy.model, spec=spec)))
    assert f"longer than {most:g}" in said
