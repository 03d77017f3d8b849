"""May a round sum more than the model's update? Under DP, only training metrics on a sound grid of their own.

They are charged with the gradient (``privacy.dp.metrics``); nothing charges any other vector. Which metrics a
threat model releases is ``rules_queries``' to judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from policies.findings import Finding
from policies.schema import Spec
from privacy.dp.integer_noise import LARGEST_BATCH, LEAST_DEVIATION, MOST_DEVIATION, MOST_MARGIN, TAIL
from privacy.dp.metrics import least_metrics_bound, metrics_mechanism
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.vector_terms import METRICS, FurtherVector, MetricTerms


def further_vectors_are_charged(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Under DP the claim is about everything that a round opens."""
    uncharged = [vector.name for vector in plan.further if vector.name != METRICS]
    if uncharged and (plan.dp is not None or spec.require.dp is not None):
        yield Finding(
            "further_uncharged",
            "the round would open vectors that no mechanism of the plan charges to the budget",
            f"no vectors beside the update but {METRICS}",
            ", ".join(uncharged),
            "sign the job without them",
        )


def metrics_on_a_sound_grid(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """As for the gradient: rounding takes little, noise spans some steps, and honest sums fit their bound."""
    if plan.dp is None or plan.dp.metrics is None:
        return
    for vector in plan.further:
        if vector.name == METRICS:
            yield from _on_a_sound_grid(plan, plan.dp.metrics, vector)


def _on_a_sound_grid(plan: RoundPlan, metrics: MetricTerms, vector: FurtherVector) -> Iterator[Finding]:
    if plan.dp is None:
        return
    mechanism = metrics_mechanism(plan.dp, metrics, vector.terms)
    if not mechanism.margin <= MOST_MARGIN:
        yield Finding(
            "metrics_grid",
            "the grid of the metrics is so coarse that rounding could move their sum by too much",
            f"√{metrics.coordinates} / 2^scale_bits of at most {MOST_MARGIN:g}",
            f"{mechanism.margin:.3g}",
            f"sign the job with more scale_bits for the vector {METRICS}",
        )
    if not LEAST_DEVIATION <= mechanism.deviation <= MOST_DEVIATION:
        yield Finding(
            "metrics_deviation",
            "a silo's noise on the metrics is too narrow on their grid to pass for Gaussian, or too wide",
            f"a standard deviation of {LEAST_DEVIATION:g} to 2^{math.log2(MOST_DEVIATION):g} steps",
            f"{mechanism.deviation:.3g} steps",
            f"sign the job with more scale_bits for the vector {METRICS}, or fewer where it is too wide",
        )
    least = least_metrics_bound(plan.dp, metrics, vector.terms)
    if not vector.terms.coordinate_bound >= least:
        yield Finding(
            "metrics_headroom",
            "a silo would have to refuse honest sums of metrics: they are never clipped or wrapped to fit",
            f"coordinate_bound of at least {least:.6g} ({LARGEST_BATCH:g} · normaliser units and "
            f"{TAIL:g} standard deviations of noise)",
            f"{vector.terms.coordinate_bound:g}",
            f"sign the job with a larger coordinate_bound for the vector {METRICS}",
        )
