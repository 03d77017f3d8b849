"""A model that behaves on the few public records of the probe, and not on a silo's."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

from privacy.errors import ConfigurationError
from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.opacus_hooks import OpacusHooks

MANY = 37


class _ApartWhileFew(nn.Module):
    """Halves each record once there are more than the probe shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        if len(records) <= 3:
            return torch.as_tensor(self.layer(records[:, :2]))
        return torch.as_tensor(
            self.layer(records.reshape(-1, 2)).reshape(len(records), 2).sum(1, keepdim=True)
        )


@pytest.mark.parametrize("engine", [BookKeeping, OpacusHooks])
def test_a_refusal_on_a_silos_own_records_does_not_say_how_many_were_sampled(
    engine: type[BookKeeping] | type[OpacusHooks],
) -> None:
    held = Records(np.ones((MANY, 4), dtype=np.float32), np.ones(MANY, dtype=np.float32))
    with pytest.raises(ConfigurationError) as refused:
        engine(_ApartWhileFew().train()).clipped_sum(held, np.arange(MANY), 1.0)
    assert not re.search(r"\d", str(refused.value))
