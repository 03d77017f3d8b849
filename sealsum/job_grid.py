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
from privacy.plan import HE_SCHEMES, DpTerms, SchemeName, TrainingTerms, VectorTerms
from privacy.secagg.encoding import assert_fits
from privacy.secagg.packing import assert_fields_hold
from privacy.secagg.rows import row_for

COORDINATE_BOUND = 8.0
FINEST_BITS = 20
_MOST_BITS = 30
_MOST_PACKED = 8


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


def coarse_vector(bits: int, bound: float, scheme: SchemeName, silos: int) -> VectorTerms:
    """±bound in steps that a signed integer of so many bits counts, as many to a ring element as the sum of
    all silos fits; one, in shorter ciphertexts, where the scheme encrypts.

    Raises:
        ConfigurationError: no grid of the scheme has such steps.
    """
    scale = math.floor(math.log2((2 ** (bits - 1) - 1) / bound))
    if not 1 <= scale <= _MOST_BITS:
        raise ConfigurationError(
            f"compression: expected steps of 2^-{_MOST_BITS} to 1/2; {bits} bits over ±{bound:g} make "
            f"steps of 2^{-scale}"
        )
    coarse = VectorTerms(coordinate_bound=bound, scale_bits=scale)
    packs = (1,) if scheme in HE_SCHEMES else range(_MOST_PACKED, 0, -1)
    for count in packs:
        vector = coarse.model_copy(update={"per_element": count})
        with suppress(Unprocessable):
            if count > 1:
                assert_fields_hold(vector, silos)
            assert_fits(vector, silos)
            row_for(scheme, vector, silos)
            return vector
    raise ConfigurationError(f"compression: the sum of {silos} silos does not fit {scheme}; lower bits")


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
