"""A frozen backbone by plug-in: only the head is trained, summed and noised (docs/recipes.md)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from privacy.ids import PartyId, SiloId
from privacy.plan import DpTerms, ModelTerms, TensorSpec, TrainingTerms, VectorTerms
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from silo_agent.data.records import Records
from silo_agent.models.adapters import find_adapter, predict_scores

HEAD = (TensorSpec(name="head.weight", shape=(1, 16)), TensorSpec(name="head.bias", shape=(1,)))


class OnBackbone(nn.Module):
    """A head on features of a network that is not among its parameters."""

    def __init__(self, backbone: nn.Module, width: int) -> None:
        super().__init__()
        # In a tuple it is no submodule: nothing of it is exported, clipped or noised.
        self._backbone = (backbone.eval().requires_grad_(False),)
        self.head = nn.Linear(width, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self._backbone[0](features))
        return logits


class FrozenAdapter:
    """What a silo's owner installs; real weights come with the adapter's own package."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return HEAD

    def build(self, terms: ModelTerms) -> nn.Module:
        backbone = nn.Sequential(nn.Linear(terms.inputs, 16), nn.Tanh())
        with torch.no_grad():
            weights = torch.randn(16, terms.inputs, generator=torch.Generator().manual_seed(0))
            backbone[0].weight.copy_(weights)  # type: ignore[operator]  # a Linear's
            backbone[0].bias.zero_()  # type: ignore[operator]  # a Linear's
        return OnBackbone(backbone, 16)


def test_a_frozen_backbone_by_plug_in_trains_its_head_alone() -> None:
    adapter = find_adapter("frozen", {"frozen": f"{__name__}:FrozenAdapter"})
    terms = ModelTerms(adapter="frozen", inputs=4, layout=HEAD)
    generator = np.random.default_rng(0)
    features = generator.uniform(-1, 1, (200, 4)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.float32)
    silos = {
        SiloId(PartyId(name)): Records(features[part::2], labels[part::2]) for part, name in enumerate("ab")
    }
    training = TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=4.0
    )
    dp = DpTerms(
        unit="record", sample_rate=1.0, noise_multiplier=0.1, clip_l2=1.0, normaliser=100.0, delta=1e-5
    )
    job = RoundTerms(terms, training, dp, VectorTerms(coordinate_bound=4.0, scale_bits=26))
    model = Federation(job, adapter, silos, rounds=30).train(np.zeros(17, dtype=np.float32))
    assert terms.parameters == 17
    right = (predict_scores(adapter, terms, model, features) > 0) == labels
    assert np.mean(right) > 0.9
