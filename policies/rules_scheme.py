"""Does a plan bring the secure aggregation that a threat model requires, with its parties and terms?"""

from __future__ import annotations

from collections.abc import Iterator

from policies.assumption import assumption_of
from policies.findings import Finding
from policies.institutions import distinct_operators
from policies.schema import Spec
from privacy.errors import Unprocessable
from privacy.plan import THRESHOLD_SCHEMES, RoundPlan
from privacy.roster import Charter
from privacy.secagg.pairwise.terms import MAX_SILOS, least_threshold
from privacy.secagg.rows import row_of
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES
from privacy.secagg.threshold.parameters import MAX_SILOS as MAX_KEYHOLDERS

LARGEST_COHORT: dict[str, int] = {"pairwise": MAX_SILOS, **dict.fromkeys(JOINT_KEY_SCHEMES, MAX_KEYHOLDERS)}
"""Scheme → the most silos of a round, where each deals with every other."""


def scheme_as_required(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """A weaker scheme than the required one withstands less."""
    if plan.scheme != spec.require.secagg.scheme:
        yield Finding(
            "scheme",
            "the plan sums updates by another scheme than the threat model requires",
            spec.require.secagg.scheme,
            plan.scheme,
            "sign the job with the required scheme",
        )


def threshold_withstands(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """t > c colluders; malicious aggregator: 2t > n + c (Bonawitz et al. 2017, sections 6.1 and 6.2)."""
    if plan.scheme not in THRESHOLD_SCHEMES and plan.threshold is None:
        return
    assumed = assumption_of(spec)
    least = least_threshold(len(plan.cohort), assumed)
    if plan.scheme not in THRESHOLD_SCHEMES or plan.threshold is None or plan.threshold < least:
        yield Finding(
            "threshold",
            "so few silos together could open a single update for a hostile aggregator",
            f"threshold of at least {least} of {len(plan.cohort)} ({assumed.aggregator} aggregator, "
            f"{assumed.colluding_silos} colluding) with {', '.join(THRESHOLD_SCHEMES)}, else none",
            f"{plan.threshold} with {plan.scheme}",
            "the charter's threat model decides it: let that assume as many colluding, or this silo's fewer",
        )


def parameters_allow_listed(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """The row is derived, so a weaker or longer one cannot be talked into anyone."""
    try:
        expected = row_of(plan, len(charter.silos))
        got = plan.he
    except Unprocessable as none_fits:
        expected, got = str(none_fits), f"{plan.vector.scale_bits} scale_bits"
    if got != expected:
        yield Finding(
            "he_parameters",
            "the plan's encryption parameters are not the ones that follow from scheme, vector and roster",
            str(expected),
            str(got),
            "the aggregator names the allow-listed row; sign the job with fewer scale_bits if none fits",
        )


def enough_share_servers(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """k servers withstand k − 1 colluders."""
    assumed = spec.assume.share_servers
    if assumed is not None and len(plan.servers) < assumed.count:
        yield Finding(
            "share_server_count",
            "fewer share servers than assumed withstand fewer colluding ones",
            f"at least {assumed.count} share servers",
            str(len(plan.servers)),
            "enrol the missing share servers and seal a new charter",
        )


def operators_differ(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Two servers of one operator are one colluder."""
    assumed = spec.assume.share_servers
    if assumed is None or not assumed.distinct_operators:
        return
    names = [slot.server for slot in plan.servers]
    distinct = distinct_operators(charter, names)
    if distinct != len(names):
        yield Finding(
            "share_server_operators",
            "an operator with more than one share server can put shares together",
            f"{len(names)} distinct operators",
            str(distinct),
            "run each share server under another operator and seal a new charter",
        )


def cohort_within_scheme(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Every silo agrees on a mask, or on a key, with every other; the protocol ends at so many."""
    most = LARGEST_COHORT.get(plan.scheme)
    if most is not None and len(plan.cohort) > most:
        yield Finding(
            "cohort_beyond_scheme",
            f"every silo agrees with every other, so a cohort of {plan.scheme} has a largest size",
            f"at most {most} silos with {plan.scheme}",
            str(len(plan.cohort)),
            "invite fewer silos",
        )
