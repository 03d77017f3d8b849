"""The made-up updates that every party of the benchmarks sums, and their exact sum. Needs NumPy alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def updates_of(params: int, silos: int) -> dict[str, NDArray[np.float32]]:
    """Uniform in [−1, 1), by silo: the same in every run."""
    rng = np.random.default_rng(2024)
    return {name: rng.uniform(-1.0, 1.0, params).astype(np.float32) for name in names_of(silos)}


def names_of(silos: int) -> list[str]:
    """Names of the cohort, in order."""
    return [f"silo-{index:03}" for index in range(silos)]


def computed(silo: str, start: int, length: int) -> NDArray[np.float32]:
    """Coordinates [start, start + length) of an update that is computed as it is read: a hash of its place.

    In [−1, 1); takes the memory of what it returns, three times over.
    """
    places = np.arange(start, start + length, dtype=np.uint32)
    places += np.uint32(sum(silo.encode()) * 2_654_435)
    places *= np.uint32(2_654_435_761)  # Knuth's multiplicative hash
    return places.view(np.int32).astype(np.float32) * np.float32(2.0**-31 * (1 - 2.0**-20))


def exact(updates: Iterable[NDArray[np.float32]]) -> NDArray[np.float64]:
    """The oracle: the float64 sum."""
    rows = iter(updates)
    total = next(rows).astype(np.float64)
    for update in rows:
        total += update
    return total
