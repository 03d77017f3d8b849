"""Own parts inside a DP-SGD loop exceed the bound that its noise is for: no refusal is folklore.

A record may move a step's sum of clipped gradients by at most C, and what a round releases by what its ledger
charged. Each test takes neighbouring datasets, one record more or less, runs what the refused job would run,
and measures by how much the released sum moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

CLIP = 1.0
SLACK = 1e-6
_FEW, _WIDTH = 24, 4

Rows = NDArray[np.float32]


def neighbours(seed: int) -> tuple[Rows, Rows, Rows, Rows]:
    """Records and labels, and the same with one record more, which lies far out."""
    generator = np.random.default_rng(seed)
    features = generator.uniform(-1, 1, (_FEW, _WIDTH)).astype(np.float32)
    labels = (generator.uniform(size=_FEW) < 0.5).astype(np.float32)
    more = np.vstack([features, np.full((1, _WIDTH), 3, dtype=np.float32)])
    return features, labels, more, np.append(labels, np.float32(1 - round(float(labels.mean()))))


def clipped_sum(module: nn.Module, shared: list[nn.Parameter], features: Rows, labels: Rows) -> Rows:
    """Σ over records of the gradient of the shared part, clipped to C: what a step of DP-SGD noises.

    The forward pass is of all records together, as layers that look across records see them.
    """
    losses = binary_cross_entropy_with_logits(
        module(torch.from_numpy(features)).squeeze(-1), torch.from_numpy(labels), reduction="none"
    )
    total = np.zeros(sum(one.numel() for one in shared))
    for loss in losses:
        gradients = torch.autograd.grad(loss, shared, retain_graph=True)
        flat = torch.cat([one.double().flatten() for one in gradients]).numpy()
        total += flat * min(1.0, CLIP / max(float(np.linalg.norm(flat)), 1e-12))
    return total.astype(np.float32)


def network(seed: int, *, normalised: bool = False) -> nn.Sequential:
    """A body, and a head of one layer; public first weights."""
    torch.manual_seed(seed)
    between: list[nn.Module] = [nn.BatchNorm1d(3)] if normalised else []
    return nn.Sequential(nn.Linear(_WIDTH, 3), *between, nn.Tanh(), nn.Linear(3, 1))


def train_without_noise(module: nn.Module, own: list[nn.Parameter], features: Rows, labels: Rows) -> None:
    """What a silo does with its own part: plain descent on its records."""
    search = torch.optim.SGD(own, lr=2.0)
    for _ in range(40):
        search.zero_grad()
        torch.autograd.backward(
            binary_cross_entropy_with_logits(
                module(torch.from_numpy(features)).squeeze(-1), torch.from_numpy(labels)
            )
        )
        search.step()


def of_shared(seed: int) -> Callable[[Rows, Rows], Rows]:
    """Nothing is the silo's own: the sound case, to show that the measure is right."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        return clipped_sum(module, list(module.parameters()), features, labels)

    return released


def of_fedbn(seed: int) -> Callable[[Rows, Rows], Rows]:
    """Batch statistics of the silo's own: the body's gradient of each record is one of all of them."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed, normalised=True)
        shared = [one for name, one in module.named_parameters() if not name.startswith("1.")]
        return clipped_sum(module, shared, features, labels)

    return released


def of_fedper(seed: int) -> Callable[[Rows, Rows], Rows]:
    """A head of the silo's own, trained without noise, decides every record's gradient of the body."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        own = list(module[-1].parameters())
        train_without_noise(module, own, features, labels)
        shared = [one for one in module.parameters() if all(one is not other for other in own)]
        return clipped_sum(module, shared, features, labels)

    return released


def of_intercept(seed: int) -> Callable[[Rows, Rows], Rows]:
    """So does a single number."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        own = [module[-1].bias]
        train_without_noise(module, own, features, labels)
        shared = [one for one in module.parameters() if one is not own[0]]
        return clipped_sum(module, shared, features, labels)

    return released


def of_per_fedavg(seed: int) -> Callable[[Rows, Rows], Rows]:
    """Gradients are taken where a step along the other records has led."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        search = torch.optim.SGD(module.parameters(), lr=5.0)
        half = len(features) // 2
        torch.autograd.backward(
            binary_cross_entropy_with_logits(
                module(torch.from_numpy(features[half:])).squeeze(-1), torch.from_numpy(labels[half:])
            )
        )
        search.step()
        return clipped_sum(module, list(module.parameters()), features[:half], labels[:half])

    return released


def of_mixed_intervals(seed: int) -> Callable[[Rows, Rows], Rows]:
    """Five clipped steps of unsummed layers, carried into one release that was charged as one step."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        parameters = list(module.parameters())
        start = torch.cat([one.detach().flatten() for one in parameters]).numpy().copy()
        for _ in range(5):
            step, first = clipped_sum(module, parameters, features, labels), 0
            with torch.no_grad():
                for one in parameters:
                    piece = torch.from_numpy(step[first : first + one.numel()]).reshape(one.shape)
                    one.sub_(piece, alpha=1.0)
                    first += one.numel()
        ended: Rows = torch.cat([one.detach().flatten() for one in parameters]).numpy()
        return ended - start

    return released


def of_private_mask(seed: int) -> Callable[[Rows, Rows], Rows]:
    """Each silo sends the coordinates of its largest gradients only: one record more, and others are sent."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        total = clipped_sum(module, list(module.parameters()), features, labels)
        kept = np.argsort(-np.abs(total))[:4]
        masked = np.zeros_like(total)
        masked[kept] = total[kept]
        return masked

    return released


def of_histogram(seed: int) -> Callable[[Rows, Rows], Rows]:
    """Logits adjusted by the silo's own label histogram: its counts are in every record's gradient."""

    def released(features: Rows, labels: Rows) -> Rows:
        module = network(seed)
        share = (labels.sum() + 0.01) / (len(labels) + 0.02)
        with torch.no_grad():
            module[-1].bias.add_(float(np.log(share / (1 - share))))
        return clipped_sum(module, list(module.parameters()), features, labels)

    return released


def moved(make: Callable[[int], Callable[[Rows, Rows], Rows]], enough: float = np.inf) -> float:
    """The furthest that one record more moves the sum, over neighbours and weights; stops at ``enough``."""
    furthest = 0.0
    for seed in range(30):
        if furthest > enough:
            break
        few, told, more, told_more = neighbours(seed)
        if make is of_histogram:
            # A silo all of one class but for the record in question.
            told, told_more = np.zeros_like(told), np.append(np.zeros_like(told), np.float32(1))
        released = make(seed)
        furthest = max(furthest, float(np.linalg.norm(released(more, told_more) - released(few, told))))
    return furthest


def test_without_own_parts_a_record_moves_the_sum_by_no_more_than_the_clip() -> None:
    assert moved(of_shared) <= CLIP * (1 + SLACK)


@pytest.mark.parametrize(
    "make",
    [
        of_fedbn,
        of_fedper,
        of_intercept,
        of_per_fedavg,
        of_mixed_intervals,
        of_private_mask,
        of_histogram,
    ],
)
def test_what_is_refused_with_dp_moves_it_further(
    make: Callable[[int], Callable[[Rows, Rows], Rows]],
) -> None:
    assert moved(make, 1.2 * CLIP) > 1.2 * CLIP
