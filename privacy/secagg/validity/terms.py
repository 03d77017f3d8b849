"""The public parameters of a validity proof, and the formulas that say what they are worth.

p = 2^64 − 2^32 + 1; B the bound on ‖x‖₂ in encoded units; T = 2^projection_bits; r projections.

*Wraparound* (Rothblum et al. 2023, arXiv 2311.10237 §3.2). If Σx² ≡ v ∈ [0, B²] (mod p) but Σx² ≠ v over the
integers, then Σx² ≥ p for the representatives in (−p/2, p/2). Let z have weights −1, 0, 1 with
probabilities 1/4, 1/2, 1/4. Then ⟨z, x⟩ mod p lies in [−T + 1, T] with probability at most 1/2 if T ≤ √p/8:
(i) some |x_i| ≥ 2T: whatever the other coordinates add, s and s ± x_i are never both in the
    interval of 2T integers, as 2T ≤ |x_i| < p − 2T; so at most one of {z_i = 0}, {z_i ≠ 0} passes, each 1/2.
    With weights ±1 this fails: for x_i = (p − 1)/2, s + x_i and s − x_i differ by 1.
(ii) all |x_i| < 2T: take coordinates until their Σx² is in [p, p + 4T²]; their part of ⟨z, x⟩ is a sum of
    signs with σ² ≥ p/2 and largest weight T, hence by Berry–Esseen (constant 0.56, Shevtsova 2010) it is
    in an interval of length 2T with probability ≤ 2T/(σ√(2π)) + 2 · 0.56 · T/σ ≤ 0.142 + 0.199 < 1/2.
The draft's own condition (draft-chen-cfrg-vdaf-pine-02: T² ≤ 4000 p) is far looser; this one is enforced.

*Soundness error* ≤ 2^−r + 2n/p (squares) + 2N/p (bits) + (r + 2)/p (linear checks, compressed).
*Completeness error* ≤ 2r · exp(−(T/B)²): z_i is a mean of two signs, so ⟨z, x⟩ is sub-Gaussian with variance
proxy ‖x‖²/2. All r projections must pass, as in the reference code of draft -02 (100 of 100): with 8·B ≤ T
the error is below 2^−84, so allowing some to fail would only cost soundness. The same number bounds what a
refusal can tell about an honest vector: the zero-knowledge error.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.errors import Unprocessable
from privacy.ids import Digest
from privacy.plan import Count, RoundPlan
from privacy.secagg.validity.field import MODULUS
from privacy.vector_terms import PositiveReal

LEAST_PROJECTIONS = 48
_WORD_PROJECTIONS = 16
"""Weights that one 32-bit word of keystream gives, two bits each."""
_LARGEST_COLUMNS = 512


class ValidityTerms(Frozen):
    """What every silo of a round proves: ‖x‖₂ ≤ B for d encoded coordinates, and ŵ in [0, S]."""

    dimension: Count
    """d: coordinates under the norm bound. The weight follows as element d and is range-checked."""
    norm_bound: PositiveReal
    """C: largest ‖ŵ·Δ‖₂. If noise is added before sharing, C ≈ σ·clip·√d, and a cheat may spend all of it
    in one direction."""
    scale_bits: Annotated[int, Field(ge=1, le=24)]
    """Fixed-point scale S = 2^scale_bits."""
    projection_bits: Annotated[int, Field(ge=1, le=40)] = 28
    """T = 2^projection_bits."""
    projections: Annotated[int, Field(ge=LEAST_PROJECTIONS, le=128, multiple_of=_WORD_PROJECTIONS)] = (
        LEAST_PROJECTIONS
    )
    """r: random projections, each missed by a wrapped vector with probability 1/2."""

    @model_validator(mode="after")
    def _is_sound_and_complete(self) -> Self:
        edge = 1 << self.projection_bits
        if 64 * edge * edge > MODULUS:
            raise ValueError(
                f"projection_bits: expected T ≤ √p/8, that is at most 28, got {self.projection_bits}"
            )
        if 8 * self.encoded_bound > edge:
            raise ValueError(
                f"norm_bound: expected C·2^scale_bits + √d ≤ {edge // 8}, got {self.encoded_bound}; "
                "lower scale_bits or norm_bound"
            )
        return self

    @cached_property
    def encoded_bound(self) -> int:
        """B = ⌈C·S⌉ + ⌈√d⌉: stochastic rounding moves each coordinate by less than one unit."""
        return encoded_bound_of(self.norm_bound, self.scale_bits, self.dimension)

    @property
    def vector_length(self) -> int:
        """d coordinates and, last, the weight."""
        return self.dimension + 1

    @property
    def weight_scale(self) -> int:
        """S: the largest encoded weight."""
        return 1 << self.scale_bits

    @cached_property
    def columns(self) -> int:
        """n: coordinates in a row of the squares check, a power of two near √d/4.

        The silo's work grows with d·n, the servers' message with d/n.
        """
        return min(_LARGEST_COLUMNS, max(8, 1 << (math.isqrt(self.dimension) // 4).bit_length()))

    @property
    def rows(self) -> int:
        """m = ⌈d/n⌉."""
        return -(-self.dimension // self.columns)

    @property
    def norm_bits(self) -> int:
        """Bits of v, and of B² − v; both are below 2^51, so that their sum cannot wrap around p."""
        return (self.encoded_bound**2).bit_length()

    @property
    def weight_bits(self) -> int:
        """Bits of ŵ, and of S − ŵ."""
        return self.scale_bits + 1

    @property
    def range_bits(self) -> int:
        """Bits of a projection plus T − 1: exactly 2T values."""
        return self.projection_bits + 1

    @property
    def bit_count(self) -> int:
        """All bits of a witness."""
        return 2 * self.norm_bits + 2 * self.weight_bits + self.projections * self.range_bits

    @property
    def domain(self) -> int:
        """N: size of the roots-of-unity domain that the bits are placed on."""
        return 1 << (self.bit_count - 1).bit_length()

    @property
    def soundness_error(self) -> float:
        """Largest probability that a vector or weight out of bounds is accepted."""
        algebra = 2 * self.columns + 2 * self.domain + self.projections + 2
        return float(2.0**-self.projections + algebra / MODULUS)

    @property
    def completeness_error(self) -> float:
        """Largest probability that an honest vector within B cannot be proven."""
        return 2 * self.projections * math.exp(-(((1 << self.projection_bits) / self.encoded_bound) ** 2))

    @cached_property
    def digest(self) -> Digest:
        """What seeds, masks and coins are bound to, beside the round's context."""
        return digest_of("sealsum/validity/terms/v1", self)


def encoded_bound_of(norm_bound: float, scale_bits: int, dimension: int) -> int:
    """B in encoded units for ‖ŵ·Δ‖₂ ≤ norm_bound of so many coordinates, after stochastic rounding."""
    return math.ceil(norm_bound * 2.0**scale_bits) + 1 + math.isqrt(dimension)


def terms_of(plan: RoundPlan) -> ValidityTerms:
    """What the silos of a plan prove: derived, by this one function at every party, never sent.

    (1) The plan claims validity; (2) the terms are sound and complete; (3) coordinate_bound · S ≥ B: then
    no vector that passes is refused as too large when the sum is opened, nor can n of them wrap around
    Z_2^32 (``encoding.assert_fits``).

    Raises:
        Unprocessable: (1) to (3).
    """
    if plan.validity is None:  # (1)
        raise Unprocessable("plan.validity: expected a claim, got none")
    try:  # (2)
        terms = ValidityTerms(
            dimension=plan.parameters,
            norm_bound=plan.validity.norm_bound,
            scale_bits=plan.vector.scale_bits,
        )
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise Unprocessable(f"plan.validity: {where} {fault['msg']}".replace("  ", " ")) from error
    least = terms.encoded_bound / 2.0**terms.scale_bits
    if plan.vector.coordinate_bound < least:  # (3)
        raise Unprocessable(
            f"plan.vector.coordinate_bound: expected at least {least:.9g} (norm_bound and rounding), "
            f"got {plan.vector.coordinate_bound:g}"
        )
    return terms
