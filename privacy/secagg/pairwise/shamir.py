"""Shamir's secret sharing (1979) of 32-byte secrets over GF(p), p = 2^256 + 297, the least such prime.

Every 32-byte string is a field element, so no secret is ever reduced or rejected. A share is 33 bytes,
big-endian. Shares carry no checksum: callers authenticate each one against its dealer's commitment.
Python integers are not constant-time; the arithmetic runs once a round, on fresh secrets.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

from privacy.secagg.pairwise.faults import BadShare, BelowThreshold

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def deal(secret: bytes, threshold: int, indices: Iterable[int]) -> dict[int, bytes]:
    """Split ``secret`` so that any ``threshold`` shares rebuild it and fewer say nothing about it.

    Raises:
        ValueError: the secret is not 32 bytes, or the threshold is below 2.
    """
    if len(secret) != SECRET_BYTES or threshold < 2:
        raise ValueError("shamir: expected a 32-byte secret and a threshold of at least 2")
    higher = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return evaluate([int.from_bytes(secret, "big"), *higher], indices)


def evaluate(coefficients: Sequence[int], indices: Iterable[int]) -> dict[int, bytes]:
    """The polynomial's value at each index, by Horner's rule.

    Raises:
        BadShare: an index is zero (its share would be the secret), or occurs twice.
    """
    shares: dict[int, bytes] = {}
    for index in indices:
        if not 0 < index < PRIME or index in shares:
            raise BadShare(f"share index: expected distinct indices from 1, got {index}")
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * index + coefficient) % PRIME
        shares[index] = value.to_bytes(SHARE_BYTES, "big")
    return shares


def weights_at_zero(indices: Sequence[int]) -> list[int]:
    """Lagrange's coefficients λ_i = Π_{j≠i} x_j / (x_j − x_i), which carry values at ``indices`` to zero.

    Raises:
        BadShare: an index is zero, or occurs twice.
    """
    if len(set(indices)) != len(indices) or not all(0 < index < PRIME for index in indices):
        raise BadShare("share index: expected distinct indices from 1")
    weights: list[int] = []
    for own in indices:
        above, below = 1, 1
        for other in indices:
            if other != own:
                above = above * other % PRIME
                below = below * (other - own) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def rebuild(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The 32-byte secret behind ``threshold`` of the given shares.

    A wrong share gives a wrong secret: the caller compares with what the dealer committed to.

    Raises:
        BelowThreshold: fewer shares than that. BadShare: a share is not an element of the field, an index
            is zero, or the value at zero is not 32 bytes.
    """
    if len(shares) < threshold:
        raise BelowThreshold(f"shares: expected {threshold}, got {len(shares)}")
    used = sorted(shares)[:threshold]
    secret = 0
    for index, weight in zip(used, weights_at_zero(used), strict=True):
        secret = (secret + weight * _element(shares[index])) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise BadShare("shares: what they rebuild is longer than any secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def _element(share: bytes) -> int:
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise BadShare(f"share: expected {SHARE_BYTES} bytes that are an element of the field")
    return value
