"""Training metrics of a job: the vector that carries them, and the curve that its opened sums draw."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from privacy.dp.metrics import least_metrics_bound, read_metrics
from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import DpTerms, JobSpec, SchemeName, VectorTerms
from privacy.secagg.encoding import assert_fits
from privacy.secagg.rows import row_for
from privacy.vector_terms import METRICS, FurtherVector, MetricTerms
from sealsum.job_view import RoundView

_FINEST_BITS = 16


@dataclass(frozen=True)
class CurvePoint:
    """One round's training metrics, of its own noisy sample on the model that it started from."""

    round: int
    metrics: dict[str, float]
    """Name → mean per unit; empty where noise left no count to divide by."""


def metrics_further(dp: DpTerms | None, scheme: SchemeName, silos: int) -> tuple[FurtherVector, ...]:
    """The vector that a job's metrics need, if it asks for any.

    Raises:
        ConfigurationError: the sums of so many silos do not fit.
    """
    if dp is None or dp.metrics is None:
        return ()
    terms = _finest(dp, dp.metrics, scheme, silos)
    return (FurtherVector(name=METRICS, coordinates=dp.metrics.coordinates, terms=terms, opens_to="sum"),)


def training_curve(spec: JobSpec, history: Iterable[RoundView]) -> tuple[CurvePoint, ...]:
    """The metrics of every opened round of a job, in order; none for a job that asks for none.

    Raises:
        Unprocessable: a round shows another number of sums than the job asks for.
    """
    vector = next((one.terms for one in spec.further if one.name == METRICS), None)
    if vector is None or spec.dp is None:
        return ()
    points = []
    for ended in history:
        sums = ended.further.get(METRICS)
        if sums is not None:
            found = read_metrics(spec.dp, vector, sums, len(ended.survivors))
            points.append(CurvePoint(ended.round, found or {}))
    return tuple(points)


def sentence(point: CurvePoint) -> str:
    """One point in words."""
    values = (f"{name} {value:.3f}" for name, value in point.metrics.items())
    return ", ".join(values) or "metrics: below the noise"


def _finest(dp: DpTerms, metrics: MetricTerms, scheme: SchemeName, silos: int) -> VectorTerms:
    """The least bound, rounded up to a power of two, in the finest steps in which all silos' sum fits."""
    coarsest = VectorTerms(coordinate_bound=1.0, scale_bits=1)
    bound = 2.0 ** math.ceil(math.log2(least_metrics_bound(dp, metrics, coarsest)))
    for bits in range(_FINEST_BITS, 0, -1):
        vector = VectorTerms(coordinate_bound=bound, scale_bits=bits)
        with suppress(Unprocessable):
            assert_fits(vector, silos)
            row_for(scheme, vector, silos)
            return vector
    raise ConfigurationError(
        f"dp.metrics: sums of {silos} silos of up to {bound:g} do not fit {scheme}; lower normaliser or noise"
    )
