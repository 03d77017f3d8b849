"""Which engine a model is trained with."""

from __future__ import annotations

from torch import nn

from silo_agent.engines.engine import StepEngine
from silo_agent.engines.opacus_hooks import OpacusHooks


def engine_for(module: nn.Module) -> StepEngine:
    """The fastest engine that knows all of the module's layers.

    Raises:
        ConfigurationError: none does, or the model cannot be trained privately at all.
    """
    return OpacusHooks(module)
