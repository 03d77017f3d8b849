"""Small synthetic images, made by public code from public seeds: what reconstruction attacks are to recover.

Rings and strokes of 8 × 8 pixels. The attacker may draw as many of the same kind as he likes, but not these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from privacy.plan import ModelTerms, VectorTerms
from privacy.update import flatten
from silo_agent.data.records import Records
from silo_agent.models.layouts import model_terms

SIDE: Final = 8
PIXELS: Final = SIDE * SIDE
VECTOR: Final = VectorTerms(coordinate_bound=500.0, scale_bits=20)
_START_SEED: Final = 7
_LARGEST_PSNR: Final = 120.0


@dataclass(frozen=True)
class Images:
    """Pixels in [0, 1], and which of two kinds each is."""

    pixels: NDArray[np.float64] = field(repr=False)
    """float64[n, 64]"""
    labels: NDArray[np.float32] = field(repr=False)
    """float32[n]: 0 a ring, 1 a stroke."""

    def __len__(self) -> int:
        return len(self.labels)


def synthetic_images(count: int, seed: int) -> Images:
    """Rings and strokes by turns, of random place, size, direction and brightness."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1)
    labels = np.arange(count) % 2
    pixels = np.empty((count, PIXELS))
    for number, label in enumerate(labels):
        across, down = generator.uniform(0.25, 0.75, 2)
        width, brightness = generator.uniform(0.12, 0.22), generator.uniform(0.6, 1.0)
        if label == 0:
            distance = np.hypot(columns - across, rows - down) - generator.uniform(0.2, 0.35)
            width *= 0.6
        else:
            angle = generator.uniform(0.0, np.pi)
            distance = (columns - across) * np.cos(angle) + (rows - down) * np.sin(angle)
            width *= 0.8
        pixels[number] = (brightness * np.exp(-((distance / width) ** 2))).ravel()
    return Images(pixels, labels.astype(np.float32))


def features_of(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pixels as a schema scales them: from [0, 1] to [−1, 1]."""
    return 2.0 * pixels - 1.0


def pixels_of(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse, cut to [0, 1]: an attacker knows what a pixel can be."""
    return np.clip((features + 1.0) / 2.0, 0.0, 1.0)


def records_of(images: Images, rows: slice) -> Records:
    """Some of the images as a silo's records."""
    return Records(features_of(images.pixels[rows]).astype(np.float32), images.labels[rows])


def image_model(hidden: int) -> ModelTerms:
    """The built-in ``mlp`` with one tanh layer."""
    return model_terms("mlp", PIXELS, [hidden])


def honest_start(model: ModelTerms) -> NDArray[np.float32]:
    """Weights N(0, 1/fan-in), biases zero: float32[d], public."""
    generator = np.random.default_rng(_START_SEED)
    tensors = {
        spec.name: np.zeros(spec.shape, dtype=np.float32)
        if len(spec.shape) == 1
        else (generator.standard_normal(spec.shape) / np.sqrt(spec.shape[1])).astype(np.float32)
        for spec in model.layout
    }
    return flatten(model, tensors)


def psnr(guess: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Peak signal-to-noise ratio in dB of each guess to each image: float64[guesses, images], at most 120."""
    error = ((guess[:, None, :] - truth[None, :, :]) ** 2).mean(axis=2)
    ratios: NDArray[np.float64] = -10.0 * np.log10(np.maximum(error, 10.0 ** (-_LARGEST_PSNR / 10)))
    return ratios


def matched(guess: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """As many guesses as images, in the images' order, by the assignment of largest mean PSNR; that mean."""
    ratios = psnr(guess, truth)
    guesses, images = linear_sum_assignment(-ratios)
    order = np.empty(len(truth), dtype=np.intp)
    order[images] = guesses
    return guess[order], float(ratios[guesses, images].mean())


def mean_image_psnr(truth: NDArray[np.float64], seed: int) -> float:
    """What is reached without any gradient, by the mean of a thousand other images."""
    public = synthetic_images(1000, seed).pixels.mean(axis=0)
    return float(psnr(public[None, :], truth).mean())


def squares(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[n, 64] as float64[n, 8, 8]."""
    return pixels.reshape(-1, SIDE, SIDE)
