"""Opacus' hooks, on only while an engine computes, and with nothing left behind where a pass ended early.

Its hooks count forward and backward passes in attributes of modules and parameters; a forward pass without
its backward would give the next one the records of this. The only door to its wrappers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from opacus.grad_sample import AbstractGradSampleModule

_LEFT_ON_PARAMETERS = {
    "grad_sample": None,
    "_current_grad_sample": None,
    "_norm_sample": None,
    "_forward_counter": 0,
}


@contextmanager
def hooked(wrapped: AbstractGradSampleModule) -> Iterator[None]:
    """Per-record gradients, or their norms, hang on parameters inside, and are gone after."""
    wrapped.enable_hooks()
    try:
        with no_warning_of_integers():
            yield
    finally:
        forget(wrapped)


@contextmanager
def no_warning_of_integers() -> Iterator[None]:
    """Integers, which an embedding takes, have no gradient; its hook needs none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


def forget(wrapped: AbstractGradSampleModule) -> None:
    """Switch the hooks off and clear all they keep."""
    wrapped.disable_hooks()
    for layer in wrapped.modules():
        vars(layer).pop("activations", None)
        vars(layer).pop("max_batch_len", None)
    for parameter in wrapped.parameters():
        parameter.grad = None
        for name, empty in _LEFT_ON_PARAMETERS.items():
            if hasattr(parameter, name):
                setattr(parameter, name, empty)
