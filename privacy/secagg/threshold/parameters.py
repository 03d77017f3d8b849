"""Which parameters of threshold encryption exist: three rows at 128 bits, each prime pinned, no others.

A peer names a row and never sends parameters. Knows no OpenFHE; the worker refuses a row unless OpenFHE,
asked to insist on 128 bits, comes to exactly these primes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from privacy.errors import Unprocessable
from privacy.plan import SchemeName, VectorTerms
from privacy.secagg.he.parameters import largest_element

JOINT_KEY_SCHEMES: tuple[SchemeName, ...] = ("threshold_bfv", "threshold_ckks")
"""Schemes whose silos make a joint key each round; these need OpenFHE at every silo and at the server."""
MAX_SILOS = 80
"""Every silo reads every other's key share in one answer, of at most 24 MiB, and every other's ciphertexts:
beyond this, another scheme is the better tool."""
SMUDGING = 2.0**20
"""σ of what OpenFHE 1.6 adds to a CKKS partial decryption (``NoiseFlooding::MP_SD``)."""
_FRESH_NOISE = 1 << 40
"""Far above the error of a fresh ciphertext under a joint key of 100 silos, worst case:
N·6σ·(2·100 + 1) < 2^25 for N = 8192, σ = 3.19."""
_TAIL = 10.0
"""CKKS rounds correctly up to this many standard deviations: one coordinate in 10^22 lies beyond it."""


@dataclass(frozen=True)
class ThresholdParameters:
    """One row: R = Z[X]/(X^degree + 1), ciphertext primes ``moduli``, ternary secrets, error of σ = 3.19."""

    name: str
    scheme: Literal["bfv", "ckks"]
    degree: int
    moduli: tuple[int, ...]
    """Towers, in OpenFHE's order. BFV's flooding is uniform over the product of all but the first."""
    plain_modulus: int
    """t of BFV, a prime ≡ 1 (mod 2·degree) so that slots add up independently; 0 for CKKS."""
    scaling_bits: int
    """BFV: bits of the primes that OpenFHE sizes by t. CKKS: log2 of an integer's encoding."""

    @property
    def payload(self) -> int:
        """Elements in one ciphertext. Slot 0 is not among them: it counts contributors."""
        return self.degree - 1

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bytes in which a coefficient of each tower travels."""
        return tuple(-(-modulus.bit_length() // 8) for modulus in self.moduli)

    @property
    def polynomial_bytes(self) -> int:
        """Bytes in which one polynomial travels."""
        return self.degree * sum(self.widths)

    @property
    def as_request(self) -> dict[str, Any]:
        """What the worker builds its context from; primes as strings, for JSON has no such integers."""
        return {
            "scheme": self.scheme,
            "degree": self.degree,
            "moduli": [str(modulus) for modulus in self.moduli],
            "plain_modulus": self.plain_modulus,
            "scaling_bits": self.scaling_bits,
        }

    def largest_sum(self, contributors: int) -> int:
        """Largest |Σ| of one element over that many ciphertexts that surely opens.

        BFV: Σ stays within ±(t − 1)/2 while contributors · (flooding + fresh noise) < q/(2t), whatever the
        coins. CKKS: half a grid step is ten standard deviations of the smudging noise, whose component in
        a slot has variance contributors · degree/2 · σ²; a coefficient, at most √2·Σ·scale, stays below q/2.

        Raises:
            Unprocessable: too many contributors.
        """
        if not 1 <= contributors <= MAX_SILOS:
            raise Unprocessable(f"cohort: expected 1 to {MAX_SILOS} silos, got {contributors}")
        modulus = math.prod(self.moduli)
        if self.scheme == "bfv":
            noise = math.prod(self.moduli[1:]) + _FRESH_NOISE  # uniform in an interval of that length
            if contributors * noise * 2 * self.plain_modulus >= modulus:
                raise Unprocessable(f"cohort: {contributors} silos add more noise than {self.name} carries")
            return (self.plain_modulus - 1) // 2
        deviation = math.sqrt(contributors * self.degree / 2) * SMUDGING
        if 2 * _TAIL * deviation > 2.0**self.scaling_bits:
            raise Unprocessable(f"cohort: {contributors} silos add more noise than {self.name} rounds away")
        return math.floor((modulus / 2 - _FRESH_NOISE) / (math.sqrt(2) * 2.0**self.scaling_bits))


_Q60 = (1152921504606830593, 1152921504606748673)
"""The two primes of 60 bits that OpenFHE's NOISE_FLOODING_MULTIPARTY adds at degree 8192."""

PARAMETERS: dict[str, ThresholdParameters] = {
    # t: the largest 23-bit batching prime.
    "tbfv-8192-168": ThresholdParameters("tbfv-8192-168", "bfv", 8192, (281474976694273, *_Q60), 8273921, 48),
    # t: the largest 32-bit batching prime. Sums are as wide as those of additive sharing.
    "tbfv-8192-200": ThresholdParameters(
        "tbfv-8192-200", "bfv", 8192, (1099511480321, *_Q60, 1099510890497), 4294475777, 40
    ),
    "tckks-4096-60": ThresholdParameters("tckks-4096-60", "ckks", 4096, (1152921504606830593,), 0, 34),
}
"""128 bits against classical attacks: log2 q stays within the bounds for ternary secrets of the
HomomorphicEncryption.org standard (2018, table 1: 218 for degree 8192, 109 for 4096)."""


def threshold_parameters_named(name: str) -> ThresholdParameters:
    """The allow-listed row of that name.

    Raises:
        Unprocessable: there is none; parameters are never taken from a peer.
    """
    if name not in PARAMETERS:
        raise Unprocessable(
            f"threshold_he.parameters: expected one of {', '.join(PARAMETERS)}, got {name[:64]!r}"
        )
    return PARAMETERS[name]


def threshold_row_for(scheme: str, terms: VectorTerms, contributors: int) -> str:
    """The row of a scheme with the shortest ciphertexts that carries the worst sum of the cohort.

    Raises:
        Unprocessable: no row of the scheme does.
    """
    rows = sorted(
        (row for row in PARAMETERS.values() if f"threshold_{row.scheme}" == scheme),
        key=lambda row: row.polynomial_bytes / row.payload,
    )
    worst = contributors * largest_element(terms)
    for row in rows:
        if worst <= row.largest_sum(contributors):
            return row.name
    raise Unprocessable(
        f"vector: {contributors} silos × bound {terms.coordinate_bound:g} × 2^{terms.scale_bits} exceeds the "
        f"largest sum of every row of {scheme}; lower scale_bits or coordinate_bound"
    )


def assert_fits(parameters: ThresholdParameters, terms: VectorTerms, contributors: int) -> None:
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
