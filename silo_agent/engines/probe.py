"""Run an engine on a few public records and compare it with plain autograd, one record at a time.

Finds what a module does not show by its layers: losses of one record that depend on another, buffers that
training changes, parameters that a layer's hooks do not see. It looks at two points, and is no proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.engine import StepEngine
from silo_agent.engines.loss import summed_loss

_RECORDS, _RECORDS_OF_LARGE, _LARGE = 9, 3, 1 << 20
"""A model with more parameters than the last is looked at with fewer records, whose gradients are held."""
_SPREAD: Final = 0.3
"""Of what is added to weights: far from zero, where gradients vanish, and not so far that they overflow."""
_TOLERANCE: Final = {torch.float32: 1e-3, torch.float64: 1e-7}


def public_records(module: nn.Module, inputs: int) -> Records:
    """Some records of the width a model takes, drawn from a public seed, with labels that fit its outputs.

    Raises:
        ConfigurationError: the model does not take them, or has no output for each.
    """
    drawn = np.random.default_rng(0)
    size = sum(parameter.numel() for parameter in module.parameters())
    count = _RECORDS if size <= _LARGE else _RECORDS_OF_LARGE
    features = drawn.uniform(-1, 1, (count, inputs)).astype(np.float32)
    try:
        with torch.no_grad():
            first = next(module.parameters())
            outputs = module(torch.from_numpy(features).to(first.device, first.dtype))
    except (RuntimeError, IndexError, ValueError) as error:
        raise ConfigurationError(f"model: it does not take {inputs} numbers a record: {error}") from error
    if outputs.ndim != 2 or len(outputs) != count:
        raise ConfigurationError(
            f"model: expected [{count}, outputs] for {count} records, got {list(outputs.shape)}"
        )
    labels = (np.arange(count) % 2).astype(np.float32)
    return Records(features, labels, classes=max(2, outputs.shape[1]))


@contextmanager
def at_other_weights(module: nn.Module) -> Iterator[None]:
    """The module with public noise on its weights, and as it was afterwards, bit for bit.

    At its own weights nothing may show: behind a last layer of zeros no gradient reaches the others.
    """
    drawn = np.random.default_rng(1)
    kept = [parameter.detach().clone() for parameter in module.parameters()]
    with torch.no_grad():
        for parameter in module.parameters():
            noise = drawn.standard_normal(tuple(parameter.shape), dtype=np.float32)
            parameter.add_(torch.from_numpy(noise).to(parameter), alpha=_SPREAD)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, before in zip(module.parameters(), kept, strict=True):
                parameter.copy_(before)


def assert_outputs(module: nn.Module, inputs: int, logits: int) -> None:
    """Refuse a model whose outputs are not what the label of a job takes, before a record is looked at.

    Raises:
        ConfigurationError: it has another number of outputs a record.
    """
    with torch.no_grad():
        first = next(module.parameters())
        outputs = module(torch.zeros(1, inputs, dtype=first.dtype, device=first.device))
    if outputs.shape != (1, logits):
        raise ConfigurationError(
            f"model: expected {logits} outputs a record for the job's label, got "
            f"{list(outputs.shape[1:])}; let the job's model fit its label"
        )


def assert_records_apart(module: nn.Module, records: Records) -> None:
    """Refuse a model in which a record's gradient depends on who else is in the batch.

    (1) The gradients of all records together are the sum of what each gives alone; (2) training changes no
    buffer.

    Raises:
        ConfigurationError: one of them fails.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with _without_dropout(module):
        together = _gradient(module, records, np.arange(len(records)))
        alone = [_gradient(module, records, np.array([row])) for row in range(len(records))]
    # (1)
    if not _close(module, together, np.sum(alone, axis=0), _lengths(alone)):
        raise ConfigurationError(
            "model: records are not apart: what one gives depends on the others in its batch, or changes "
            "from call to call; use no statistic over the batch, and nn.Dropout rather than its function"
        )
    # (2)
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise ConfigurationError(
                f"model.{name}: training changes this buffer, which no noise covers; keep it constant"
            )


def assert_right(engine: StepEngine, records: Records, tolerance: float | None = None) -> None:
    """Refuse an engine whose clipped sum is not that of gradients computed one by one.

    Args:
        tolerance: part of the clip that it may be off by; by the parameters' precision if left out.

    Raises:
        ConfigurationError: it is not, or the engine refuses.
    """
    module = engine.module
    try:
        with _without_dropout(module):
            alone = [_gradient(module, records, np.array([row])) for row in range(len(records))]
            norms = [float(np.linalg.norm(one)) for one in alone]
            clip = sorted(norms)[len(norms) // 2] or 1.0
            scales = [min(1.0, clip / (norm or 1.0)) for norm in norms]
            expected = np.sum([one * scale for one, scale in zip(alone, scales, strict=True)], axis=0)
            got = engine.clipped_sum(records, np.arange(len(records)), clip)
    except RuntimeError as error:  # torch's and Opacus' word for a model that their hooks cannot run
        raise ConfigurationError(f"model: {engine.name} cannot run it: {error}") from error
    if not _close(module, got, expected, clip, tolerance):
        raise ConfigurationError(
            f"model: {engine.name} does not see all of its gradients; let every parameter belong to a layer "
            "that is called as a module, once, on records in its first dimension"
        )


def _gradient(module: nn.Module, records: Records, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """By plain autograd: float64[d]."""
    parameters = list(module.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    found = torch.autograd.grad(summed_loss(module, records, rows), trained, allow_unused=True)
    by_parameter = dict(zip(trained, found, strict=True))
    flat = []
    for parameter in parameters:
        gradient = by_parameter.get(parameter)
        flat.append((torch.zeros_like(parameter) if gradient is None else gradient).double().flatten())
    joined: NDArray[np.float64] = torch.cat(flat).detach().cpu().numpy()
    return joined


def _lengths(gradients: list[NDArray[np.float64]]) -> float:
    return sum(float(np.linalg.norm(one)) for one in gradients)


def _close(
    module: nn.Module,
    got: NDArray[np.float64],
    expected: NDArray[np.float64],
    scale: float,
    tolerance: float | None = None,
) -> bool:
    if tolerance is None:
        tolerance = _TOLERANCE[next(module.parameters()).dtype]
    return bool(np.linalg.norm(got - expected) <= tolerance * scale)


@contextmanager
def _without_dropout(module: nn.Module) -> Iterator[None]:
    """Two runs are compared: what is drawn anew in each is left out, and only that."""
    dropouts = [layer for layer in module.modules() if isinstance(layer, _DropoutNd) and layer.training]
    for layer in dropouts:
        layer.eval()
    try:
        yield
    finally:
        for layer in dropouts:
            layer.train()
