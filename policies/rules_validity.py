"""Can the validity that a plan claims be proven? If its terms are not sound, nobody starts."""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.schema import Spec
from privacy.errors import Unprocessable
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.secagg.validity.terms import terms_of


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
