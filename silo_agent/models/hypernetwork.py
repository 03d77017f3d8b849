"""``hypernetwork``: a shared network writes each silo's linear model from an embedding that may stay there.

After pFedHN (Shamsian et al. 2021, arXiv 2103.04628), whose server knows every silo's embedding and gradient;
here the generator is what silos train together, and with ``personal: {kind: fedper, local_param:
[embedding]}`` nobody else ever sees an embedding.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import linear

from privacy.model_terms import ModelTerms, TensorSpec
from silo_agent.models.personal_layouts import embedding_size, hypernetwork_layout


class Written(nn.Module):
    """A linear model, weights and bias of which are a linear function of the embedding."""

    def __init__(self, inputs: int, size: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(size))
        self.generator = nn.Linear(size, outputs * (inputs + 1))
        self._inputs, self._outputs = inputs, outputs

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """float[n, inputs] → float[n, outputs]."""
        written = self.generator(self.embedding).reshape(self._outputs, self._inputs + 1)
        return linear(features, written[:, :-1], written[:, -1])


class Hypernetwork:
    """``hypernetwork``; ``hidden`` is the embedding's length."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return hypernetwork_layout(terms.inputs, terms.hidden, _outputs(terms))

    def build(self, terms: ModelTerms) -> nn.Module:
        return Written(terms.inputs, embedding_size(terms.hidden), _outputs(terms))


def _outputs(terms: ModelTerms) -> int:
    return terms.layout[-1].size // (terms.inputs + 1)
