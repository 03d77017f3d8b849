"""Histograms of oriented gradients (Dalal, Triggs 2005) for small images, without block normalisation.

What a stroke looks like nearly anywhere in a cell: enough for a linear model to read digits from, and few
enough coordinates that noise in each of them is bearable. Each record's depend on that record alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def oriented_gradients(images: NDArray[np.float32], orientations: int, cells: int) -> NDArray[np.float32]:
    """float32[n, orientations, cells, cells] of float32[n, height, width].

    Central differences, black beyond the border; each gradient's length is shared between the two directions
    of the full circle next to it, and between the cells next to it, in straight lines.
    """
    count, height, width = images.shape
    bordered = np.pad(images.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    along = (bordered[:, 1:-1, 2:] - bordered[:, 1:-1, :-2]) / 2
    down = (bordered[:, 2:, 1:-1] - bordered[:, :-2, 1:-1]) / 2
    length = np.hypot(along, down)
    turn = (np.arctan2(down, along) / (2 * np.pi) % 1.0) * orientations
    maps = np.empty((count, orientations, height, width))
    for direction in range(orientations):
        apart = np.abs((turn - direction + orientations / 2) % orientations - orientations / 2)
        maps[:, direction] = length * np.maximum(0.0, 1.0 - apart)
    pooled: NDArray[np.float64] = _windows(height, cells) @ maps @ _windows(width, cells).T
    return pooled.astype(np.float32)


def _windows(extent: int, cells: int) -> NDArray[np.float64]:
    """Triangles around the centres of ``cells`` equal cells, as wide as two: float64[cells, extent]."""
    size = extent / cells
    centres = (np.arange(cells)[:, None] + 0.5) * size - 0.5
    windows: NDArray[np.float64] = np.maximum(0.0, 1.0 - np.abs(np.arange(extent) - centres) / size)
    return windows
