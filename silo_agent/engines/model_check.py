"""What a model must not have, for one record's gradient to be that record's alone; refused with the fix.

Read off the module before it runs; what only shows when it runs is found by ``probe``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from privacy.errors import ConfigurationError

_PRECISIONS = (torch.float32, torch.float64)


def assert_private(module: nn.Module) -> None:
    """Refuse, by name:

    (1) batch statistics, (2) running statistics, (3) one parameter in two places, (4) frozen parameters that
    are sent and noised all the same, (5) coarse numbers, in which norms come out short, (6) activations that
    overwrite what a layer's gradients are computed from.

    Raises:
        ConfigurationError: with every layer that was found.
    """
    faults = list(_faults(module))
    if faults:
        raise ConfigurationError(f"model: it cannot be trained privately: {'; '.join(faults)}")


def _faults(module: nn.Module) -> Iterator[str]:
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        # (1)
        if isinstance(layer, _BatchNorm):
            yield (
                f"{name}: {kind} mixes the records of a batch; use GroupNorm (convert_batchnorm: true under "
                "model_adapters in silo.yaml, or engines.group_norm.with_group_norm in the adapter's build)"
            )
        # (2)
        if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
            yield f"{name}: {kind} keeps statistics of records; write track_running_stats=False"
        # (6)
        if getattr(layer, "inplace", False):
            yield (
                f"{name}: {kind} changes its input in place; write inplace=False (out_of_place: true under "
                "model_adapters in silo.yaml)"
            )
    owners: dict[nn.Parameter, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        # (3)
        if parameter in owners:
            yield f"{name}: it is the parameter {owners[parameter]} as well; give each layer its own"
            continue
        owners[parameter] = name
        # (4)
        if not parameter.requires_grad:
            yield f"{name}: it is frozen; make it a buffer, which is neither sent nor noised"
        # (5)
        if parameter.dtype not in _PRECISIONS:
            yield f"{name}: expected float32 or float64, got {parameter.dtype}; build the model in float32"
