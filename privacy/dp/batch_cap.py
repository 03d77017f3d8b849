"""How often a cap on the batch bites: the part of a capped step that is charged at twice the sensitivity.

Given how many *other* units the sample holds, which says nothing of ours, either there is room for all, and
the step is the plain one, or the batch is full, and our unit enters it by pushing another out. The second
moves the sum by up to two clip norms, with probability q·B/(m+1) < q at m ≥ B others ("Tighter privacy
analysis for truncated Poisson sampling", arXiv 2508.15089). dp-accounting has an event for it that asks for
the number of units N and uses the lower probability. Ours may not depend on N, which is secret, and holds for
every N up to a public bound: the probability that the cap bites grows with N and is taken at the bound, the
one of entering is taken as q.
"""

from __future__ import annotations

import math

from privacy.dp.events import CappedEvent

_ROUNDING = 1 + 1e-6
"""More than the error of ``lgamma`` at a billion units."""


def cap_bites(event: CappedEvent) -> float:
    """Upper bound of P[Bin(units_at_most − 1, q) ≥ batch_cap], 1 for a cap at or below the mean.

    Beyond the mean the terms of a binomial tail fall at least as fast as a geometric series with the ratio
    of its first two (Feller 1968, VI.3).
    """
    others, cap, rate = event.units_at_most - 1, event.batch_cap, event.sample_rate
    if cap > others:
        return 0.0
    if cap <= others * rate or rate == 1:
        return 1.0
    ratio = (others - cap) / (cap + 1) * rate / (1 - rate)
    choose = math.lgamma(others + 1) - math.lgamma(cap + 1) - math.lgamma(others - cap + 1)
    first = math.exp(choose + cap * math.log(rate) + (others - cap) * math.log1p(-rate))
    return min(1.0, first / (1 - ratio) * _ROUNDING)
