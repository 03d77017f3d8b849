"""Views of an image that say the same as it: the shifts and mirrors of a job, one image at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.fixed_features import Views

BLACK = -1.0


def views_of(terms: Views, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each image's views, itself first: float32[n, count, pixels] of float32[n, pixels] in [−1, 1].

    What a shift uncovers is black.
    """
    images = pixels.reshape(-1, terms.rows, terms.columns)
    side = terms.shift
    bordered = np.pad(images, ((0, 0), (side, side), (side, side)), constant_values=BLACK)
    made: list[NDArray[np.float32]] = []
    for down, along in terms.moves:
        moved = bordered[:, side + down :, side + along :][:, : terms.rows, : terms.columns]
        made += [moved, moved[:, :, ::-1]] if terms.mirror else [moved]
    return np.stack(made, axis=1).reshape(len(images), terms.count, terms.rows * terms.columns)
