"""Which homomorphic-encryption parameters exist: three rows at 128 bits, each prime pinned, no others.

A peer names a row and never sends parameters, so a weak set cannot be talked into anyone: the row *is*
the context that each side builds. Knows no TenSEAL; the arithmetic of what fits is here, the cipher is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import SchemeName, VectorTerms

ONE_KEY_SCHEMES: tuple[SchemeName, ...] = ("bfv", "ckks")
"""Schemes whose silos share one key of the job; these need TenSEAL."""
MAX_CONTRIBUTORS = 1000
"""Largest cohort of a plan."""
_NOISE_MAX = 21.5
"""Largest |error| of one coefficient of a fresh symmetric ciphertext: SEAL 4 draws a centred binomial of
21 + 21 bits (|e| ≤ 21, variance 10.5), and rounding while encoding adds at most 1/2."""
_NOISE_VARIANCE = 10.5 + 1 / 12
_TAIL = 10.0
"""CKKS rounds correctly up to this many standard deviations: one coordinate in 10^22 lies beyond it."""


@dataclass(frozen=True)
class HeParameters:
    """One row: R = Z[X]/(X^degree + 1), one ciphertext prime, ternary secret, error of σ ≈ 3.24."""

    name: str
    scheme: Literal["bfv", "ckks"]
    degree: int
    modulus: int
    plain_modulus: int
    """t of BFV, a prime ≡ 1 (mod 2·degree) so that slots add up independently; 0 for CKKS."""

    @property
    def payload(self) -> int:
        """Elements in one ciphertext. Slot 0 is not among them: it counts contributors.

        BFV has ``degree`` slots (batching). CKKS has degree/2 complex ones; real and imaginary parts add
        up independently too, so that each carries an element.
        """
        return self.degree - 1

    def scale_bits(self, contributors: int) -> int:
        """CKKS: log2 of the factor between an integer and its encoding, so that the sum rounds exactly.

        The error of one component of a slot is Σ_j e_j·cos(…) over ``degree`` coefficients and all
        contributors: its variance is contributors · degree/2 · σ². Half a grid step is made at least ten
        of its standard deviations.
        """
        deviation = math.sqrt(contributors * self.degree / 2 * _NOISE_VARIANCE)
        return math.ceil(math.log2(2 * _TAIL * deviation))

    def largest_sum(self, contributors: int) -> int:
        """Largest |Σ| of one element over ``contributors`` ciphertexts that surely decrypts.

        BFV: Σ stays within ±(t − 1)/2, as long as the noise stays below q/(2t) (Fan–Vercauteren 2012,
        eprint 2012/144, §4), whatever the coins. CKKS: a coefficient of the encoding is at most
        √2·Σ·scale and must stay, noise included, below q/2.
        """
        if not 1 <= contributors <= MAX_CONTRIBUTORS:
            raise Unprocessable(f"cohort: expected 1 to {MAX_CONTRIBUTORS} silos, got {contributors}")
        if self.scheme == "bfv":
            if contributors * _NOISE_MAX >= self.modulus / (2 * self.plain_modulus):
                raise Unprocessable(f"cohort: {contributors} silos add more noise than {self.name} carries")
            return (self.plain_modulus - 1) // 2
        room = self.modulus / 2 - contributors * _NOISE_MAX
        return math.floor(room / (math.sqrt(2) * 2.0 ** self.scale_bits(contributors)))


PARAMETERS: dict[str, HeParameters] = {
    # q: CoeffModulus.Create(2048, [40]); t: the largest 24-bit batching prime. t = 2^24 costs no byte
    # over a smaller t and still leaves room for the noise of 1000 silos.
    "bfv-2048-40": HeParameters("bfv-2048-40", "bfv", 2048, 1099511590913, 16760833),
    # q: CoeffModulus.Create(2048, [54]), the most that 2048 admits; t: the largest 32-bit batching prime.
    # Sums are as wide as those of additive sharing.
    "bfv-2048-54": HeParameters("bfv-2048-54", "bfv", 2048, 18014398509404161, 4294955009),
    # q: CoeffModulus.Create(4096, [36]).
    "ckks-4096-36": HeParameters("ckks-4096-36", "ckks", 4096, 68719403009, 0),
}
"""128 bits against classical attacks: log2 q stays within the bounds for ternary secrets of the
HomomorphicEncryption.org standard (2018, table 1: 54 for degree 2048, 109 for 4096)."""


def parameters_named(name: str) -> HeParameters:
    """The allow-listed row of that name.

    Raises:
        Unprocessable: there is none; parameters are never taken from a peer.
    """
    if name not in PARAMETERS:
        raise Unprocessable(f"he.parameters: expected one of {', '.join(PARAMETERS)}, got {name[:64]!r}")
    return PARAMETERS[name]


def row_for(scheme: str, terms: VectorTerms, contributors: int) -> str:
    """The row of a scheme with the shortest ciphertexts that carries the worst sum of the cohort.

    Raises:
        Unprocessable: no row of the scheme does.
    """
    rows = sorted(
        (row for row in PARAMETERS.values() if row.scheme == scheme), key=lambda row: row.modulus.bit_length()
    )
    worst = contributors * largest_element(terms)
    for row in rows:
        if worst <= row.largest_sum(contributors):
            return row.name
    raise Unprocessable(
        f"vector: {contributors} silos × bound {terms.coordinate_bound:g} × 2^{terms.scale_bits} exceeds the "
        f"largest sum of every row of {scheme}; lower scale_bits or coordinate_bound"
    )


def assert_fits(parameters: HeParameters, terms: VectorTerms, contributors: int) -> None:
    """Refuse terms under which the sum of ``contributors`` honest updates could leave the plaintext space.

    Raises:
        Unprocessable: the worst sum exceeds what the row carries exactly.
    """
    worst = contributors * largest_element(terms)
    room = parameters.largest_sum(contributors)
    if worst > room:
        raise Unprocessable(
            f"vector: {contributors} silos × bound {terms.coordinate_bound:g} × 2^{terms.scale_bits} exceeds "
            f"{room}, the largest sum of {parameters.name}; lower scale_bits or coordinate_bound"
        )


def largest_element(terms: VectorTerms) -> int:
    """Largest |x| of an encoded element, dither included."""
    return math.floor(max(terms.coordinate_bound, 1.0) * 2.0**terms.scale_bits) + 1


def assert_available() -> None:
    """Refuse a mode that this installation cannot run; ask when a policy is loaded, not in a round.

    Raises:
        ConfigurationError: TenSEAL is not installed.
    """
    if find_spec("tenseal") is None:
        raise ConfigurationError(
            "scheme: bfv and ckks need TenSEAL, which is not installed; pip install 'sealsum[he]'"
        )
