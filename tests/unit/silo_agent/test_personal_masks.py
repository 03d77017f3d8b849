"""Sparse masks: a coordinate is the mean of silos that sent it, if enough did; against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from aggregator.server_step import STEPS, Moment, Opened
from privacy.errors import Unprocessable
from privacy.ids import PartyId, SiloId
from privacy.plan import LocalTerms, ServerTerms, TrainingTerms, VectorTerms
from privacy.secagg.vectors import VectorName
from privacy.vector_terms import MASK, FurtherVector
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.sums import secure_ring_sum
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from silo_agent.update import FloatUpdate

MODEL = model_terms("logistic", 4)
VECTOR = VectorTerms(coordinate_bound=16.0, scale_bits=24)
TRAINING = TrainingTerms(
    algorithm="sparse_masks",
    local_steps=3,
    learning_rate=0.3,
    server_learning_rate=1.0,
    local=LocalTerms(mask_share=0.4),
    server=ServerTerms(mask_minimum=3),
)


def federation() -> Federation:
    silos: dict[SiloId, Records] = {}
    for number in range(4):
        generator = np.random.default_rng(number)
        features = generator.uniform(-1, 1, (30, 4)).astype(np.float32)
        labels = (features[:, min(number, 1)] > 0).astype(np.float32)
        silos[SiloId(PartyId(f"silo-{number}"))] = Records(features, labels)
    mask = FurtherVector(name=MASK, coordinates=MODEL.parameters, terms=VECTOR, opens_to="sum")
    return Federation(
        RoundTerms(MODEL, TRAINING, None, VECTOR, (mask,)), ADAPTERS["logistic"], silos, 1, secure_ring_sum
    )


def test_a_coordinate_is_divided_by_how_many_sent_it_and_stays_below_the_minimum() -> None:
    run, start = federation(), np.zeros(MODEL.parameters, dtype=np.float32)
    updates = [run.update_of(silo, start) for silo in run.silos]
    values: list[NDArray[np.float32]] = []
    masks: list[NDArray[np.float32]] = []
    for update in updates:
        assert isinstance(update, FloatUpdate)
        mask = update.further[VectorName(MASK)]
        assert isinstance(mask, FloatUpdate)
        assert mask.values.sum() == 2, "two of five coordinates"
        assert not update.values[mask.values == 0].any()
        values.append(update.values)
        masks.append(mask.values)
    sent = np.sum(masks, axis=0)
    assert 2 in sent, "the case of too few is in this test"
    expected = np.where(sent >= 3, np.sum(values, axis=0) / np.maximum(sent, 1), 0)
    model = run.after_round(run.at(start)).model
    np.testing.assert_allclose(model, expected, atol=1e-6)


def test_a_step_without_a_count_for_each_coordinate_is_refused() -> None:
    opened = Opened(np.zeros(5, dtype=np.float32), np.zeros(5), 4.0, {VectorName(MASK): (1.0,)})
    with pytest.raises(Unprocessable, match="expected 5 numbers, got 1"):
        STEPS["sparse_masks"](opened, {}, TRAINING, Moment(1, 1, 0))
