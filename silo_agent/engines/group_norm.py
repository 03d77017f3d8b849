"""GroupNorm in the place of BatchNorm, for adapters that ask for it: no model is changed unasked."""

from __future__ import annotations

import math

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

GROUPS = 32
"""Most groups of a layer (Wu, He 2018, §4.1)."""


def with_group_norm(module: nn.Module) -> nn.Module:
    """The same module, each BatchNorm in it replaced by a GroupNorm of the same channels and weights.

    Names and shapes of the parameters stay, so a layout does; running statistics go.
    """
    if isinstance(module, _BatchNorm):
        return _group_norm(module)
    for name, child in module.named_children():
        module.add_module(name, with_group_norm(child))
    return module


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    groups = math.gcd(GROUPS, layer.num_features)
    replacement = nn.GroupNorm(groups, layer.num_features, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        replacement.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    return replacement
