"""Rounds whose cohort is large enough, and in which one silo is all of what is opened nevertheless."""

from __future__ import annotations

import numpy as np
import pytest

from policies.rules_weights import weights_reveal_nothing
from privacy.plan import AlgorithmName
from privacy.secagg.vectors import VectorName
from privacy.vector_terms import MASK
from silo_agent.algorithms.memory import Memory
from silo_agent.algorithms.mifa import mifa
from silo_agent.algorithms.sparse_masks import sparse_masks
from silo_agent.update import FloatUpdate
from tests.algorithms_world import MODEL, task, terms
from tests.unit.policies.policies_terms import altered, bent_policy, honest_round


def test_under_mifa_a_newcomer_is_opened_alone_where_the_model_stands_still() -> None:
    """What a researcher with a tiny ``server_learning_rate`` reads off the second round of four silos."""
    training = terms("mifa", server={"silos": 4}, server_learning_rate=1e-30)
    first = {number: mifa(task(training, number)) for number in (0, 1, 2)}
    again = [mifa(task(training, number, Memory(first[number].keep, 1))).values for number in (0, 1, 2)]
    newcomer = mifa(task(training, 3)).values
    opened = np.sum([*again, newcomer], axis=0)
    step = 2.0 ** -task(training).vector.scale_bits
    assert np.abs(newcomer).max() > 1000 * step
    np.testing.assert_allclose(opened, newcomer, atol=8 * step)


def test_under_sparse_masks_what_one_silo_alone_sent_is_opened_as_it_is() -> None:
    training = terms("sparse_masks", local={"mask_share": 0.2}, server={"mask_minimum": 2})
    updates: list[FloatUpdate] = [sparse_masks(task(training, number)) for number in range(4)]
    masks = [one.further[VectorName(MASK)] for one in updates]
    sent = np.sum([one.values for one in masks if isinstance(one, FloatUpdate)], axis=0)
    alone = np.flatnonzero(sent == 1)
    assert len(alone) > 0
    assert len(sent) == MODEL.parameters
    opened = np.sum([one.values for one in updates], axis=0)[alone]
    assert all(
        any(value == one.values[place] for one in updates) for place, value in zip(alone, opened, strict=True)
    )


@pytest.mark.parametrize("algorithm", ["mifa", "sparse_masks"])
def test_a_threat_model_that_bounds_a_silos_share_refuses_them(algorithm: AlgorithmName) -> None:
    honest = honest_round()
    training = honest.plan.training.model_copy(update={"algorithm": algorithm})
    plan = altered(honest.plan, training=training, dp=None)

    def found(changes: dict[str, object]) -> list[str]:
        spec = bent_policy(changes).model.spec
        return [one.rule for one in weights_reveal_nothing(spec, plan, honest.charter)]

    assert found({}) == ["weight_share"]
    assert found({"limits.max_weight_share": 1}) == []
