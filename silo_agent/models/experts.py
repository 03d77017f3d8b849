"""``experts``: a mixture of shared experts behind a gate that may stay at each silo (Jacobs et al. 1991).

A record's logits are Σ_e softmax(gate(x))_e · expert_e(x). With ``personal: {kind: fedper, local_param:
[gate]}`` silos train the experts together, and each learns for itself which to listen to.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from privacy.model_terms import ModelTerms, TensorSpec
from silo_agent.models.personal_layouts import experts_layout, experts_sizes


class Mixture(nn.Module):
    """A gate and its experts."""

    def __init__(self, inputs: int, experts: int, units: int, outputs: int) -> None:
        super().__init__()
        self.gate = nn.Linear(inputs, experts)
        for number in range(1, experts + 1):
            self.add_module(f"expert{number}", _expert(inputs, units, outputs))
        self._count = experts

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """float[n, inputs] → float[n, outputs]."""
        shares = self.gate(features).softmax(dim=-1)
        said = [self.get_submodule(f"expert{number}")(features) for number in range(1, self._count + 1)]
        mixed: torch.Tensor = (shares.unsqueeze(-1) * torch.stack(said, dim=1)).sum(dim=1)
        return mixed


class Experts:
    """``experts``; ``hidden`` is how many there are and, of experts with a tanh layer, its units."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return experts_layout(terms.inputs, terms.hidden, terms.layout[-1].size)

    def build(self, terms: ModelTerms) -> nn.Module:
        experts, units = experts_sizes(terms.hidden)
        return Mixture(terms.inputs, experts, units, terms.layout[-1].size)


def _expert(inputs: int, units: int, outputs: int) -> nn.Module:
    if units == 0:
        return nn.Sequential(OrderedDict[str, nn.Module](layer1=nn.Linear(inputs, outputs)))
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            layer1=nn.Linear(inputs, units), tanh1=nn.Tanh(), layer2=nn.Linear(units, outputs)
        )
    )
