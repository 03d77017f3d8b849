"""A cohort of ``bfv`` or ``ckks`` in memory, and polynomials as an attacker would write them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from privacy.ids import Digest
from privacy.plan import VectorTerms
from privacy.secagg.he.framing import he_stretches
from privacy.secagg.he.keys import HeKey, KeyUse, make_key
from privacy.secagg.he.packing import pack
from privacy.secagg.he.parameters import PARAMETERS, HeParameters
from privacy.secagg.he.silo_half import HeSiloHalf
from privacy.secagg.he.sum_half import HeSumHalf

JOB = Digest("ab" * 32)
USES = {name: KeyUse("hearts", 1, JOB, parameters) for name, parameters in PARAMETERS.items()}
KEYS: dict[str, HeKey] = {name: make_key(use) for name, use in USES.items()}
SCALE_BITS = {"bfv-2048-40": 15, "bfv-2048-54": 20, "ckks-4096-36": 14}


def terms_for(name: str) -> VectorTerms:
    """Terms that each row carries for up to thirty silos."""
    return VectorTerms(coordinate_bound=1.0, scale_bits=SCALE_BITS[name])


def random_update(name: str, length: int) -> np.ndarray:
    """uint32[length], signed elements uniform over what the terms allow."""
    bound = 1 << SCALE_BITS[name]
    words = np.frombuffer(os.urandom(8 * length), dtype=np.uint64) % (2 * bound + 1)
    return (words.astype(np.int64) - bound).astype(np.int32).view(np.uint32)


def silo_half(name: str, length: int, cohort: int, workers: int = 1) -> HeSiloHalf:
    """A member's half of a round."""
    return HeSiloHalf(KEYS[name], USES[name], terms_for(name), length, cohort, workers)


def upload(name: str, update: np.ndarray, cohort: int) -> list[bytes]:
    """All parts of one silo's upload."""
    half = silo_half(name, len(update), cohort)
    return [
        half.encrypt(piece.index, update[piece.start : piece.start + piece.length])
        for piece in he_stretches(PARAMETERS[name], len(update))
    ]


def add(name: str, uploads: Sequence[Sequence[bytes]], length: int, cohort: int) -> list[bytes]:
    """All parts of the aggregator's sum."""
    half = HeSumHalf(name, cohort)
    return [
        half.total((parts[piece.index] for parts in uploads), piece)
        for piece in he_stretches(PARAMETERS[name], length)
    ]


def open_sum(name: str, parts: Sequence[bytes], length: int, cohort: int, contributors: int) -> np.ndarray:
    """What one silo reads of the sum."""
    half = silo_half(name, length, cohort)
    return np.concatenate([half.open(index, part, contributors) for index, part in enumerate(parts)])


def packed(parameters: HeParameters, coefficients: Sequence[int]) -> bytes:
    """Polynomials as an attacker would write them."""
    return pack(np.array(coefficients, dtype=np.uint64), parameters.modulus.bit_length())
