"""Scattering coefficients of small images: averages of wavelet moduli, first and second order (J = 2).

Bruna, Mallat 2013 (arXiv 1203.1513): |…||x ⋆ ψ_j1,θ1| ⋆ ψ_j2,θ2| ⋆ φ, with Morlet wavelets of two scales and
L orientations. Filters are a formula, so the features are public, fixed before any record is seen, and each
record's depend on that record alone. Convolutions are products of spectra, folded where a map is subsampled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

SCALES: Final = 2
_STRIDE: Final = 1 << SCALES
_WIDTH: Final = 0.8
"""Deviation of the finest wavelet, in pixels; doubles with each scale."""
_FREQUENCY: Final = 3 * math.pi / 4
"""Its centre frequency; halves with each scale."""
_PERIODS: Final = 2
"""Copies on each side that make a filter periodic; beyond them it is below 1e-12."""
_IMAGES_AT_ONCE: Final = 16
"""Few enough that what is computed of them stays in a core's cache."""


def padded(extent: int) -> int:
    """Pixels a side once mirrored at the borders to a whole number of strides, with a stride to spare."""
    return -(-(extent + _STRIDE) // _STRIDE) * _STRIDE


def positions(extent: int) -> int:
    """Coefficients along a side: one a stride, over the image alone."""
    return -(-extent // _STRIDE)


def channels(orientations: int) -> int:
    """Maps of an image: its average, moduli of two scales, each finer modulus in each orientation again."""
    return 1 + SCALES * orientations + orientations * orientations


def scattering(images: NDArray[np.float32], orientations: int) -> NDArray[np.float32]:
    """float32[n, channels, positions, positions] of float32[n, height, width]."""
    torch.set_num_threads(1)
    count, height, width = images.shape
    filters = _filters(height, width, orientations)
    shape = (count, channels(orientations), positions(height), positions(width))
    out = np.empty(shape, dtype=np.float32)
    for start in range(0, count, _IMAGES_AT_ONCE):
        chunk = images[start : start + _IMAGES_AT_ONCE]
        out[start : start + len(chunk)] = _scatter(torch.from_numpy(_mirrored(chunk)), filters).numpy()
    return out


@dataclass(frozen=True)
class _Filters:
    """What an extent of images is filtered with."""

    wavelets: torch.Tensor
    """Real spectra, [scales, L, H, W]."""
    down: tuple[torch.Tensor, torch.Tensor]
    """Averages of columns of pixels: [positions, H] and, of every second pixel, [positions, H/2]."""
    across: tuple[torch.Tensor, torch.Tensor]
    """The same of rows, transposed: [W, positions] and [W/2, positions]."""


@torch.no_grad()
def _scatter(images: torch.Tensor, filters: _Filters) -> torch.Tensor:
    fine, coarse = filters.wavelets
    spectrum = torch.fft.fft2(images)[:, None]
    # First order: the finer moduli at full resolution, the coarser at half of it.
    first_fine = torch.fft.ifft2(spectrum * fine).abs()
    first_coarse = torch.fft.ifft2(_halved(spectrum * coarse)).abs()
    # Second order: of each finer modulus, in every orientation.
    paths = _halved(torch.fft.fft2(first_fine)[:, :, None] * coarse).flatten(1, 2)
    second = torch.fft.ifft2(paths).abs()
    maps = [
        filters.down[0] @ torch.cat([images[:, None], first_fine], 1) @ filters.across[0],
        filters.down[1] @ torch.cat([first_coarse, second], 1) @ filters.across[1],
    ]
    return torch.cat(maps, dim=1)


def _halved(spectrum: torch.Tensor) -> torch.Tensor:
    """The spectrum of every second pixel: the mean of its four aliases."""
    height, width = spectrum.shape[-2] // 2, spectrum.shape[-1] // 2
    above, below = spectrum[..., :height, :], spectrum[..., height:, :]
    # A general mean over both axes takes nine times as long.
    total = above[..., :width] + above[..., width:] + below[..., :width] + below[..., width:]
    return total.mul_(0.25)


def _mirrored(images: NDArray[np.float32]) -> NDArray[np.float32]:
    _, height, width = images.shape
    below, right = padded(height) - height, padded(width) - width
    return np.pad(images, ((0, 0), (0, below), (0, right)), mode="symmetric")


@lru_cache(maxsize=4)
def _filters(height: int, width: int, orientations: int) -> _Filters:
    wavelets = [
        [
            _morlet(padded(height), padded(width), scale, math.pi * number / orientations, 4 / orientations)
            for number in range(orientations)
        ]
        for scale in range(SCALES)
    ]
    return _Filters(
        wavelets=torch.from_numpy(np.array(wavelets, dtype=np.float32)),
        down=(_average(height, 1), _average(height, 2)),
        across=(_average(width, 1).T, _average(width, 2).T),
    )


def _average(extent: int, step: int) -> torch.Tensor:
    """Gaussians as wide as the coarser wavelet around each position, of every ``step``-th pixel; sums 1."""
    centres = _STRIDE * np.arange(positions(extent))[:, None]
    pixels = step * np.arange(padded(extent) // step)[None]
    deviation = _WIDTH * 2 ** (SCALES - 1)
    # Around the border, as the convolutions go.
    copies = padded(extent) * np.arange(-_PERIODS, _PERIODS + 1)[:, None, None]
    window = np.exp(-((pixels - centres + copies) ** 2) / (2 * deviation**2)).sum(0)
    return torch.from_numpy((window / window.sum(1, keepdims=True)).astype(np.float32))


def _morlet(height: int, width: int, scale: int, angle: float, slant: float) -> NDArray[np.float64]:
    """A Gabor wave less the multiple of its envelope that makes its mean zero: its spectrum."""
    deviation, frequency = _WIDTH * 2**scale, _FREQUENCY / 2**scale
    wave = _gabor(height, width, deviation, angle, frequency, slant)
    envelope = _gabor(height, width, deviation, angle, 0.0, slant)
    return _spectrum(wave - wave.sum() / envelope.sum() * envelope)


def _gabor(
    height: int, width: int, deviation: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """exp(−(u² + slant² v²) / 2 deviation² + i · frequency · u), u along ``angle``; periodic, integral 1."""
    rows = np.arange(-_PERIODS * height, (_PERIODS + 1) * height)
    columns = np.arange(-_PERIODS * width, (_PERIODS + 1) * width)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle) - x * math.sin(angle)
    exponent = -(along**2 + (slant * across) ** 2) / (2 * deviation**2) + 1j * frequency * along
    copies = 2 * _PERIODS + 1
    periodic = np.exp(exponent).reshape(copies, height, copies, width).sum((0, 2))
    normalised: NDArray[np.complex128] = periodic * slant / (2 * math.pi * deviation**2)
    return normalised


def _spectrum(kernel: NDArray[np.complex128]) -> NDArray[np.float64]:
    # Hermitian kernels have real spectra.
    real: NDArray[np.float64] = np.fft.fft2(kernel).real
    return real
