"""Run a module so that nothing is changed in place: engines of DP must see what each layer gave.

``x += y`` and activations with ``inplace`` make new tensors instead. That is the same as long as a result is
used by the name it was given; where a module relies on another name, ``assert_same`` finds that it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from privacy.errors import ConfigurationError

_NEW: Final[Mapping[Callable[..., Any], Callable[..., Any]]] = MappingProxyType(
    {
        torch.Tensor.add_: torch.add,
        torch.Tensor.sub_: torch.sub,
        torch.Tensor.mul_: torch.mul,
        torch.Tensor.div_: torch.div,
        torch.Tensor.relu_: torch.relu,
        torch.relu_: torch.relu,
    }
)
"""What ``+=``, ``-=``, ``*=``, ``/=`` and ReLU in place are called, and what makes a new tensor instead."""


class OutOfPlace(TorchFunctionMode):
    """While it is entered, the calls of ``_NEW`` and those with ``inplace=True`` change nothing in place."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if named.get("inplace"):
            named["inplace"] = False
        return _NEW.get(func, func)(*args, **named)


def without_inplace_layers(module: nn.Module) -> nn.Module:
    """The same module, its activations no longer in place."""
    for layer in module.modules():
        if getattr(layer, "inplace", False):
            vars(layer)["inplace"] = False
    return module


@torch.no_grad()
def assert_same(where: str, changed: nn.Module, unchanged: nn.Module, inputs: int) -> None:
    """Refuse a module that says something else once nothing is changed in place, on a few public records.

    Raises:
        ConfigurationError: it does.
    """
    records = torch.rand(3, inputs, generator=torch.Generator().manual_seed(0)) * 2 - 1
    expected, got = unchanged.eval()(records.clone()), changed.eval()(records)
    if not torch.allclose(got, expected, rtol=1e-5, atol=1e-6):
        raise ConfigurationError(
            f"{where}.out_of_place: expected the same outputs as in place, got others: the module uses a "
            "tensor under an older name after changing it; rewrite that line in a module of your own"
        )
