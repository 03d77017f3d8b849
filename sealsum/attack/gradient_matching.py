"""Records from a gradient: solved exactly where it is of one record, else by an optimiser (no noise model).

One record through a linear layer with a bias: ∂L/∂W = δ·xᵀ and ∂L/∂b = δ, so any row gives x (Phong et al.
2018). Several: find records whose summed gradients are the one seen (DLG, Zhu et al. 2019; iDLG, Zhao et al.
2020), by L-BFGS, starting from public images of the same kind. Labels are given to the attacker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from privacy.plan import ModelTerms
from privacy.update import split_tensors
from sealsum.attack.images import Images, features_of, pixels_of, synthetic_images

_START_SEED: Final = 555
_STARTS: Final = 2
_GOOD_ENOUGH: Final = 1e-4
"""Squared residual over the squared gradient at which no further start is tried."""
_EDGE: Final = 0.95


@dataclass(frozen=True)
class Target:
    """What the attacker knows, beside the gradient: the model and the clip norm, both public; the labels."""

    model: ModelTerms
    start: NDArray[np.float32]
    clip: float
    labels: NDArray[np.float32]


def from_one_record(target: Target, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pixels of the one record behind a gradient, float64[1, 64], from the row that it moves most."""
    inputs, hidden = target.model.inputs, target.model.hidden[0]
    weights = gradient[: hidden * inputs].reshape(hidden, inputs)
    biases = gradient[hidden * inputs : hidden * (inputs + 1)]
    row = int(np.abs(biases).argmax())
    return pixels_of(weights[row : row + 1] / biases[row])


def from_sum(target: Target, gradient: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Pixels of the records whose clipped gradients add up best to ``gradient``: float64[n, 64]."""
    seen = torch.from_numpy(gradient)
    best, least = np.zeros((len(target.labels), target.model.inputs)), np.inf
    for attempt in range(_STARTS):
        found, residual = _descend(target, seen, _public_start(target, attempt), steps)
        if residual < least:
            best, least = found, residual
        if least < _GOOD_ENOUGH:
            break
    return pixels_of(best)


def _descend(
    target: Target, seen: torch.Tensor, start: torch.Tensor, steps: int
) -> tuple[NDArray[np.float64], float]:
    labels = torch.from_numpy(target.labels).double()
    tensors = [torch.from_numpy(t).double() for t in split_tensors(target.model, target.start).values()]
    scale = 1.0 / float(seen.square().sum())
    free = start.requires_grad_()
    optimiser = torch.optim.LBFGS(
        [free],
        max_iter=steps,
        max_eval=2 * steps,
        history_size=50,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-14,
        tolerance_change=1e-18,
    )

    def residual() -> torch.Tensor:
        # tanh keeps pixels in range without a bound for the optimiser to run into.
        return (
            _summed_gradient(tensors, torch.tanh(free), labels, target.clip) - seen
        ).square().sum() * scale

    def closure() -> float:
        optimiser.zero_grad()
        loss = residual()
        torch.autograd.backward(loss)
        return float(loss.detach())

    optimiser.step(closure)  # type: ignore[no-untyped-call]  # torch does not type L-BFGS
    with torch.no_grad():
        return torch.tanh(free).numpy(), float(residual())


def _summed_gradient(
    tensors: list[torch.Tensor], features: torch.Tensor, labels: torch.Tensor, clip: float
) -> torch.Tensor:
    """Σ clip(g) of an ``mlp`` with one tanh layer, written out so that it can be differentiated again."""
    first, first_bias, second, second_bias = tensors
    active = torch.tanh(features @ first.T + first_bias)
    error = torch.sigmoid((active @ second.T + second_bias).squeeze(-1)) - labels
    back = error[:, None] * second * (1 - active.square())
    squared = back.square().sum(1) * (features.square().sum(1) + 1)
    squared = squared + error.square() * (active.square().sum(1) + 1)
    shrink = clip / squared.sqrt().clamp(min=clip)
    back, error = back * shrink[:, None], error * shrink
    return torch.cat([(back.T @ features).flatten(), back.sum(0), error @ active, error.sum()[None]])


def _public_start(target: Target, attempt: int) -> torch.Tensor:
    """Another image of the right kind for each record."""
    public = synthetic_images(400, _START_SEED + attempt)
    rows = np.array([_row_of(public, label, place) for place, label in enumerate(target.labels)])
    return torch.from_numpy(np.arctanh(np.clip(features_of(public.pixels[rows]), -_EDGE, _EDGE)))


def _row_of(public: Images, label: float, place: int) -> int:
    return int(np.flatnonzero(public.labels == label)[place])
