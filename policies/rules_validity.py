"""Does a plan bring the checks of updates that a threat model requires, and can what it claims be proven?"""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.schema import Spec
from privacy.errors import Unprocessable
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.secagg.validity.terms import terms_of


def validity_as_required(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """An L2 bound keeps both requirements: it proves the norm, and by it every coordinate, and the weight."""
    required = spec.require.validity
    if required == "none":
        return
    most = spec.limits.update_norm_max
    if plan.validity is None:
        yield Finding(
            "validity_missing",
            "the threat model requires that updates are checked inside their shares",
            f"validity with a norm_bound of at most {most:g}",
            "no validity",
            "sign the job with validity",
        )
    elif plan.validity.norm_bound > most:
        yield Finding(
            "validity_bound",
            "silos would prove a looser bound on their updates than the threat model allows",
            f"validity.norm_bound of at most {most:g} (limits.update_norm_max)",
            f"{plan.validity.norm_bound:g}",
            "sign the job with a smaller norm_bound, or less noise",
        )


def validity_terms_sound(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """A bound that wraps around the field, or a vector that passes and cannot be opened, proves nothing."""
    if plan.validity is None:
        return
    try:
        terms_of(plan)
    except Unprocessable as unsound:
        yield Finding(
            "validity_terms",
            "the plan's validity terms are not sound, so what is proven would not be what is claimed",
            "norm_bound · 2^scale_bits + √parameters of at most 2^25, and a coordinate_bound above both",
            str(unsound),
            "sign the job with fewer scale_bits, a smaller norm_bound or a larger coordinate_bound",
        )
