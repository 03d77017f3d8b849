"""Local DP-SGD (Abadi et al. 2016, Algorithm 1), and the only door to Opacus.

Each step is the mechanism that the ledger charged: a secret Poisson sample, gradients clipped record by
record, N(0, (σC)²) added to their sum, a public constant as divisor. No second optimiser, regulariser,
momentum or batch statistic touches the weights. Knows no ledger and no network.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from privacy.errors import ConfigurationError
from privacy.plan import DpTerms, ModelTerms, TrainingTerms
from silo_agent.data.records import Records
from silo_agent.models.adapters import ModelAdapter, build_model, export_vector
from silo_agent.problems import Stopped
from silo_agent.randomness import gaussian, poisson_sample

_CLIP_MARGIN: Final = 1.0 - 1e-12
"""float64 norms and products round by far less; clipping this much tighter keeps each record within C."""
_GRADIENTS_IN_MEMORY: Final = 1 << 25
"""Per-record gradient coordinates held at once (384 MiB); larger samples are clipped in several goes."""


class _Descent:
    """Plain gradient descent, the whole of what moves the weights: w ← w − learning rate · gradient.

    Stands where Opacus and torch expect an optimizer; torch's own would load its compiler (1.5 s).
    """

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        self.param_groups = [{"params": list(module.parameters()), "lr": learning_rate}]
        self._parameters = list(module.parameters())
        self._learning_rate = learning_rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the last step's gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step along the gradients at hand."""
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=self._learning_rate)


class _NoisyClippedSum(DPOptimizer):  # type: ignore[misc]  # Opacus ships no types
    """Clips and sums in float64, adds our noise, divides by our constant; a record without gradient adds 0.

    Opacus clips by float32 norms. Their sums of squares lose small terms: over 10^7 equal coordinates the
    norm comes out 0.8 % too short, so a record could reach 1.008 · C while C is charged.
    """

    def __init__(self, inner: _Descent, dp: DpTerms) -> None:
        super().__init__(
            inner,
            noise_multiplier=dp.noise_multiplier,
            max_grad_norm=dp.clip_l2,
            expected_batch_size=None,
            loss_reduction="sum",
        )
        self._clip = dp.clip_l2 * _CLIP_MARGIN
        self._deviation = dp.noise_multiplier * dp.clip_l2
        self._normaliser = dp.normaliser

    def clip_and_accumulate(self) -> None:
        """Add the sample's gradients to the sum, each scaled down to C over all parameters together.

        A record whose gradient is NaN or Inf adds zero: otherwise one such record turns every parameter
        into NaN, which shows that it is there.
        """
        finite = torch.stack([sample.flatten(1).isfinite().all(1) for sample in self.grad_samples]).all(0)
        for parameter in self.params:
            parameter.grad_sample[~finite] = 0.0
        # A plain sum of squares, pairwise in float64, neither overflows nor loses a float32 gradient.
        squares = [sample.flatten(1).double().square().sum(1) for sample in self.grad_samples]
        norms = torch.stack(squares).sum(0).sqrt()
        scales = self._clip / norms.clamp(min=self._clip)
        for parameter in self.params:
            clipped = (scales @ parameter.grad_sample.flatten(1).double()).reshape(parameter.shape)
            before = parameter.summed_grad
            parameter.summed_grad = clipped if before is None else before + clipped

    def add_noise(self) -> None:
        """Noise from the operating system's generator, not from torch's, which anybody could seed."""
        for parameter in self.params:
            noise = gaussian(parameter.numel(), self._deviation).reshape(parameter.shape)
            total = parameter.summed_grad + torch.from_numpy(noise)
            parameter.grad = total.to(parameter.dtype)

    def scale_grad(self) -> None:
        """Divide by the public normaliser: dividing by what was sampled, or held, would reveal it."""
        for parameter in self.params:
            parameter.grad /= self._normaliser


def train_privately(
    adapter: ModelAdapter,
    terms: ModelTerms,
    start: NDArray[np.float32],
    records: Records,
    training: TrainingTerms,
    dp: DpTerms,
    stopping: threading.Event | None = None,
) -> NDArray[np.float32]:
    """Train ``training.local_steps`` steps from ``start`` (float32[d]).

    Returns:
        The update, end minus start: float32[d].

    Raises:
        ConfigurationError: the model has layers (such as BatchNorm) without per-record gradients.
        Stopped: ``stopping`` was set between two steps.
    """
    torch.set_num_threads(1)
    module = build_model(adapter, terms, start).train()
    faults = ModuleValidator.validate(module, strict=False)
    if faults:
        raise ConfigurationError(f"model {terms.adapter}: it cannot be trained privately: {faults[0]}")
    wrapped = GradSampleModule(module, loss_reduction="sum")
    optimizer = _NoisyClippedSum(_Descent(wrapped, training.learning_rate), dp)
    for _ in range(training.local_steps):
        _refuse_if(stopping)
        sample = poisson_sample(len(records), dp.sample_rate)
        optimizer.zero_grad()
        for chunk in _chunks(sample, terms.parameters):
            _clip_chunk(wrapped, optimizer, records, chunk)
        # An empty sample is a step like any other: noise is added and the step is taken.
        optimizer.add_noise()
        optimizer.scale_grad()
        optimizer.original_optimizer.step()
    return export_vector(terms, module) - start


def _clip_chunk(
    wrapped: GradSampleModule, optimizer: _NoisyClippedSum, records: Records, chunk: NDArray[np.intp]
) -> None:
    if len(chunk) == 0:
        for parameter in optimizer.params:
            parameter.grad_sample = torch.zeros((0, *parameter.shape), dtype=parameter.dtype)
    else:
        torch.autograd.backward(_loss(wrapped, records, chunk))
    optimizer.clip_and_accumulate()
    for parameter in optimizer.params:
        parameter.grad_sample = None


def _chunks(sample: NDArray[np.intp], parameters: int) -> Iterator[NDArray[np.intp]]:
    """The sample in pieces that fit in memory; an empty sample is one empty piece."""
    size = max(1, _GRADIENTS_IN_MEMORY // parameters)
    for start in range(0, max(1, len(sample)), size):
        yield sample[start : start + size]


def train_plainly(
    adapter: ModelAdapter,
    terms: ModelTerms,
    start: NDArray[np.float32],
    records: Records,
    training: TrainingTerms,
    stopping: threading.Event | None = None,
) -> NDArray[np.float32]:
    """Gradient descent on the mean loss of all records, for plans that a threat model admits without DP.

    Returns:
        The update, end minus start: float32[d].

    Raises:
        Stopped: as ``train_privately``.
    """
    torch.set_num_threads(1)
    module = build_model(adapter, terms, start).train()
    optimizer = _Descent(module, training.learning_rate)
    everything = np.arange(len(records))
    for _ in range(training.local_steps):
        _refuse_if(stopping)
        optimizer.zero_grad()
        torch.autograd.backward(_loss(module, records, everything) / len(records))
        optimizer.step()
    return export_vector(terms, module) - start


def _loss(module: nn.Module, records: Records, chosen: NDArray[np.intp]) -> torch.Tensor:
    """Sum over records of the cross-entropy. A mean, or class weights, would couple the records."""
    # Opacus' hooks ask that some input has a gradient.
    features = torch.from_numpy(records.features[chosen]).requires_grad_()
    labels = torch.from_numpy(records.labels[chosen])
    return binary_cross_entropy_with_logits(module(features).squeeze(-1), labels, reduction="sum")


def _refuse_if(stopping: threading.Event | None) -> None:
    if stopping is not None and stopping.is_set():
        raise Stopped("training: the agent was told to end; the round stays charged")
