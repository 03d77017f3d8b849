"""How much may a silo weigh in a sum, and what may be told of it? Uniform weights tell nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from policies.findings import Finding
from policies.schema import Spec
from privacy.plan import AlgorithmName, RoundPlan
from privacy.roster import Charter

_UNCHARGED = {
    True: "weights by example count open the number of records in the federation, which no noise covers",
    False: "weights that silos compute from their records open a sum that no noise covers",
}
_HIDDEN = {
    True: "weights by example count are hidden in the sum, so nobody can see that one silo dominates it",
    False: "weights of the silos' own are hidden in the sum, so nobody can see that one silo dominates it",
}
"""By whether weights are by example count."""
_ALONE: Mapping[AlgorithmName, str] = MappingProxyType(
    {
        "mifa": "differences are summed, so a silo that is in a round for the first time is opened nearly "
        "alone beside silos that hardly change",
        "sparse_masks": "each coordinate is a sum over whoever sent it, and one that a single silo sent is "
        "opened as it is",
    }
)
"""Algorithms whose uniform weights do not keep one silo from being all of what is opened."""


def weights_reveal_nothing(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Weights of the silos' own open a sum over records, which no noise covers, and hide who dominates."""
    by_examples = plan.training.weights == "examples"
    if plan.training.weights == "uniform":
        largest = 1 / plan.min_survivors
        if largest > spec.limits.max_weight_share:
            yield Finding(
                "weight_share",
                "in the smallest sum allowed, one silo would hold too much of the weight",
                f"at most {spec.limits.max_weight_share:g}",
                f"{largest:.3g} (one of {plan.min_survivors})",
                "raise min_survivors",
            )
        alone = _ALONE.get(plan.training.algorithm)
        if alone is not None and spec.limits.max_weight_share < 1:
            yield Finding(
                "weight_share",
                alone,
                f"an algorithm in which the largest share is {spec.limits.max_weight_share:g}",
                plan.training.algorithm,
                "use fedavg, or agree on a threat model with max_weight_share 1, which says what it gives up",
            )
        return
    if spec.require.dp is not None or plan.dp is not None:
        yield Finding(
            "weights_uncharged",
            _UNCHARGED[by_examples],
            "training.weights: uniform",
            plan.training.weights,
            "sign the job with uniform weights",
        )
    if spec.limits.max_weight_share < 1:
        yield Finding(
            "weight_share",
            _HIDDEN[by_examples],
            f"uniform weights, for a largest share of {spec.limits.max_weight_share:g}",
            plan.training.weights,
            "sign the job with uniform weights",
        )
