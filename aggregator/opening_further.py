"""What the further vectors of a round open to: a few published numbers each, from the same one opening.

Runs beside ``aggregator.opening`` on the same cleared evidence and the same survivors; each vector is read by
its own weight and scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggregator.opening import SumImplausible
from aggregator.schemes.flow import StretchOfSum
from policies.gates import ClearedCohort
from privacy.plan import RoundPlan
from privacy.secagg.additive import Ring
from privacy.secagg.encoding import decode
from privacy.secagg.parts import stretches
from privacy.secagg.vectors import (
    NamedVector,
    VectorName,
    WeightImplausible,
    mean,
    total_weight,
    vectors_of,
)


async def open_further(cleared: ClearedCohort, total_of: StretchOfSum) -> dict[VectorName, tuple[float, ...]]:
    """The sums, or weighted means, of the plan's vectors beside the model's, by name.

    Raises:
        SumImplausible: one is none that so many honest silos can add up to. PeerFault: what ``total_of``
            refuses.
    """
    plan, survivors = cleared.admitted.plan, len(cleared.survivors)
    opened: dict[VectorName, tuple[float, ...]] = {}
    for vector in vectors_of(plan).vectors[1:]:
        pieces = [await total_of(piece, vector.name) for piece in stretches(vector.length)]
        opened[vector.name] = tuple(_read(plan, vector, np.concatenate(pieces), survivors).tolist())
    return opened


def _read(plan: RoundPlan, vector: NamedVector, total: Ring, survivors: int) -> NDArray[np.float64]:
    """Judge one opened vector, in this order:

    (1) no coordinate is beyond what bounded vectors add up to; (2) a weight is one that the survivors can
    have, and exactly their number where weights are uniform; only then is anything divided by it.
    """
    coordinates = total[: vector.coordinates]
    # (1) Stochastic rounding moves each addend by less than one step of the scale.
    reach = survivors * (vector.terms.coordinate_bound + 2.0**-vector.terms.scale_bits)
    sums = decode(coordinates, vector.terms)
    if np.any(np.abs(sums) > reach):
        raise SumImplausible(f"sum of {vector.name}: a coordinate is beyond what {survivors} silos can reach")
    if not vector.weighted:
        return sums
    # (2)
    try:
        weight = total_weight(vector, total, survivors)
    except WeightImplausible as fault:
        raise SumImplausible(f"sum of {vector.name}: {fault}") from fault
    if plan.training.weights == "uniform" and weight.value != survivors:
        raise SumImplausible(f"sum of {vector.name}: its weight is not the number of survivors")
    return mean(vector, coordinates, weight)
