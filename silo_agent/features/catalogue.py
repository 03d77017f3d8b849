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
GRADIENTS_LENGTH: Final = 4.0
SCATTERING_LENGTH: Final = 8.0
"""Lengths of records. A bias counts as one more coordinate of 1: beside shorter records it takes a large part
of each clipped gradient, and of what noise may cover."""
_MAPS_A_GROUP: Final = 3
_LEAST: Final = 1e-5
"""Of what is divided by: a blank group stays near zero."""


def fixed_features(terms: FixedFeatures, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a model is given of images: float32[n, outputs] of float32[n, inputs] in [−1, 1], black at −1.

    Each record is brought to the same length by public constants and what it holds itself. Gradients are
    scaled as a whole and moved toward zero; maps of scattering are standardised, three neighbours together
    (Tramèr, Boneh 2021, arXiv 2011.11660, Section 2.3).
    """
    images = ((pixels + 1) / 2).astype(np.float32).reshape(-1, terms.rows, terms.columns)
    if isinstance(terms, OrientedGradients):
        return _centred(oriented_gradients(images, terms.orientations, terms.cells))
    if isinstance(terms, Scattering):
        return _standardised(scattering(images, terms.orientations))
    assert_never(terms)


def _centred(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    flat = maps.reshape(len(maps), math.prod(maps.shape[1:])).astype(np.float64)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    centred = flat / np.maximum(lengths, _LEAST) - CENTRE / math.sqrt(flat.shape[1])
    scaled: NDArray[np.float32] = (GRADIENTS_LENGTH * centred).astype(np.float32)
    return scaled


def _standardised(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    groups = np.array_split(maps, -(-maps.shape[1] // _MAPS_A_GROUP), axis=1)
    flat = [group.reshape(len(group), math.prod(group.shape[1:])) for group in groups]
    standard = [
        (group - group.mean(1, keepdims=True)) / (group.std(1, keepdims=True) + _LEAST) for group in flat
    ]
    length = SCATTERING_LENGTH / math.sqrt(sum(group.shape[1] for group in flat))
    joined: NDArray[np.float32] = np.concatenate(standard, axis=1) * np.float32(length)
    return joined
