"""The grid on which a job's updates travel where its file names none: as fine as the scheme's sums allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

from privacy.dp.integer_noise import (
    MOST_DEVIATION,
    MOST_MARGIN,
    integer_mechanism,
    least_coordinate_bound,
)
from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import DpTerms, SchemeName, TrainingTerms, VectorTerms
from privacy.secagg.encoding import assert_fits
from privacy.secagg.rows import row_for

COORDINATE_BOUND = 8.0
FINEST_BITS = 20
_MOST_BITS = 30


def finest_vector(scheme: SchemeName, silos: int) -> VectorTerms:
    """±8 in the finest steps, down to 2⁻²⁰, in which the sum of all silos is sure to fit.

    Raises:
        ConfigurationError: it does not fit in steps of one half.
    """
    for bits in range(FINEST_BITS, 0, -1):
        vector = VectorTerms(coordinate_bound=COORDINATE_BOUND, scale_bits=bits)
        with suppress(Unprocessable):
            assert_fits(vector, silos)
            row_for(scheme, vector, silos)
            return vector
    raise ConfigurationError(f"vector: the sum of {silos} silos does not fit {scheme}; write your own vector")


def noise_vector(
    dp: DpTerms, training: TrainingTerms, parameters: int, scheme: SchemeName, silos: int
) -> VectorTerms:
    """The grid of ``dp_fedsgd``: room for an honest update, in the finest steps that the scheme's shortest
    ciphertexts carry, or longer ones where rounding would take too much of the clip norm.

    Raises:
        ConfigurationError: no grid of the scheme is fine enough.
    """
    fitting = list(_fitting(dp, training, parameters, scheme, silos))
    for row in dict.fromkeys(name for _, name in reversed(fitting)):
        vector = next(vector for vector, name in fitting if name == row)
        if integer_mechanism(dp, training, vector, parameters).margin <= MOST_MARGIN:
            return vector
    raise ConfigurationError(
        f"vector: {scheme} with {silos} silos has no grid on which rounding takes at most {MOST_MARGIN:g} "
        "of clip_l2; use another scheme, a smaller model or a larger clip_l2, or write your own vector"
    )


def _fitting(
    dp: DpTerms, training: TrainingTerms, parameters: int, scheme: SchemeName, silos: int
) -> Iterator[tuple[VectorTerms, str | None]]:
    """Grids on which the worst sum fits, with the row that carries it, finest first."""
    for bits in range(_MOST_BITS, 0, -1):
        coarse = VectorTerms(coordinate_bound=1.0, scale_bits=bits)
        bound = _rounded_up(least_coordinate_bound(dp, training, coarse))
        vector = VectorTerms(coordinate_bound=bound, scale_bits=bits)
        if integer_mechanism(dp, training, vector, parameters).deviation <= MOST_DEVIATION:
            with suppress(Unprocessable):
                assert_fits(vector, silos)
                yield vector, row_for(scheme, vector, silos)


def _rounded_up(bound: float) -> float:
    """To three digits."""
    digit = 10.0 ** (math.floor(math.log10(bound)) - 2)
    return float(f"{math.ceil(bound / digit) * digit:.6g}")
