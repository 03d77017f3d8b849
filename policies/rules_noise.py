"""Is the noise of a plan what its ε says? Whose noise is in every sum, and on which grid it is drawn.

``dp_fedsgd`` adds signal and noise as integers (``privacy.dp.integer_noise``): outside the bounds checked
here its proof does not hold, or honest silos would have to refuse their own updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from policies.assumption import colluding_silos
from policies.findings import Finding
from policies.schema import Spec
from privacy.dp.integer_noise import (
    LARGEST_BATCH,
    LEAST_DEVIATION,
    MOST_DEVIATION,
    MOST_MARGIN,
    TAIL,
    integer_mechanism,
    least_coordinate_bound,
)
from privacy.plan import ONE_MECHANISM, RoundPlan
from privacy.roster import Charter


def shares_of_honest_silos(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """In every sum that may be opened, so many silos' noise must be left once colluders take theirs out.

    The gate of an opening guarantees ``min_survivors``; t of them may know, or leave out, their own noise.
    """
    if plan.dp is None or plan.dp.noise_shares is None:
        return
    colluding = colluding_silos(spec)
    most = plan.min_survivors - colluding
    if plan.dp.noise_shares > most:
        yield Finding(
            "noise_shares",
            "the smallest sum allowed, without the noise of colluding silos, has less noise than is claimed",
            f"dp.noise_shares of at most {most} (min_survivors {plan.min_survivors} − {colluding} colluding)",
            str(plan.dp.noise_shares),
            "sign the job with fewer noise_shares or a larger min_silos, or with model: local",
        )


def noise_on_a_sound_grid(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Rounding takes little of the clip norm, noise spans some steps, and an honest update fits its bound."""
    if plan.dp is None or plan.training.algorithm not in ONE_MECHANISM:
        return
    mechanism = integer_mechanism(plan.dp, plan.training, plan.vector, plan.parameters)
    if not mechanism.margin <= MOST_MARGIN:
        yield Finding(
            "noise_grid",
            "the grid is so coarse that rounding could move a sum by too much of what one unit may",
            f"√parameters · normaliser / (2^scale_bits · learning_rate) of at most {MOST_MARGIN:g} · clip_l2",
            f"{mechanism.margin:.3g} · clip_l2",
            "sign the job with more scale_bits, or a larger learning_rate and a smaller server_learning_rate",
        )
    if not LEAST_DEVIATION <= mechanism.deviation <= MOST_DEVIATION:
        yield Finding(
            "noise_deviation",
            "a silo's noise is too narrow on the grid to pass for Gaussian, or too wide to draw so finely",
            f"a standard deviation of {LEAST_DEVIATION:g} to 2^{math.log2(MOST_DEVIATION):g} steps",
            f"{mechanism.deviation:.3g} steps",
            "sign the job with more scale_bits, or fewer where it is too wide",
        )
    least = least_coordinate_bound(plan.dp, plan.training, plan.vector)
    if not plan.vector.coordinate_bound >= least:
        yield Finding(
            "noise_headroom",
            "a silo would have to refuse honest updates: they are never clipped or wrapped to fit",
            f"vector.coordinate_bound of at least {least:.6g} ({LARGEST_BATCH:g} · normaliser units at "
            f"clip_l2 and {TAIL:g} standard deviations of noise)",
            f"{plan.vector.coordinate_bound:g}",
            "sign the job with a larger coordinate_bound or a smaller learning_rate",
        )
