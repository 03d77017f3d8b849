"""Every transform a job may name, and the function behind it: public, deterministic, one record at a time."""

from __future__ import annotations

import math
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from privacy.fixed_features import FixedFeatures, OrientedGradients, Scattering
from silo_agent.features.oriented import oriented_gradients
from silo_agent.features.scattering import scattering

CENTRE: Final = 0.9
"""Of a vector of unit length without negative coordinates, about the part that all records have in common."""
_LEAST = 1e-9


def fixed_features(terms: FixedFeatures, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a model is given of images: float32[n, outputs] of float32[n, inputs] in [−1, 1], black at −1.

    Each record's coordinates are scaled to unit length, block by block, and moved by a public constant toward
    zero: what all images share would spend most of the clipped gradient on the bias.
    """
    images = ((pixels + 1) / 2).astype(np.float32).reshape(-1, terms.rows, terms.columns)
    if isinstance(terms, OrientedGradients):
        return _balanced([oriented_gradients(images, terms.orientations, terms.cells)])
    if isinstance(terms, Scattering):
        maps = scattering(images, terms.orientations)
        orders = np.split(maps, [1, 1 + terms.orientations, 1 + 2 * terms.orientations], axis=1)
        return _balanced(orders)
    assert_never(terms)


def _balanced(blocks: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Blocks side by side, each of length 1/√blocks before it is centred: float32[n, outputs]."""
    balanced = []
    for block in blocks:
        flat = block.reshape(len(block), math.prod(block.shape[1:])).astype(np.float64)
        lengths = np.linalg.norm(flat, axis=1, keepdims=True)
        balanced.append(flat / np.maximum(lengths, _LEAST) - CENTRE / math.sqrt(flat.shape[1]))
    return (np.concatenate(balanced, axis=1) / math.sqrt(len(blocks))).astype(np.float32)
