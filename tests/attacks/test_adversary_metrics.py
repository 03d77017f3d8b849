"""A crafted model whose logits are but rounding: one patient more must not change another's metrics."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.vector_terms import MetricTerms
from silo_agent.algorithms.metrics import unit_metrics
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, build_model
from silo_agent.models.layouts import model_terms

ACCURACY = MetricTerms(names=("accuracy",), noise_multiplier=8.0)
PATIENTS = 103


def cancelling(width: int, seed: int) -> NDArray[np.float32]:
    """Weights that add up to about zero: the sign of a logit depends on the order in which they are added."""
    weights = np.zeros(width + 1, dtype=np.float32)
    weights[: width - 1] = np.random.default_rng(seed).normal(size=width - 1)
    weights[width - 1] = -weights[: width - 1].astype(np.float64).sum()
    return weights


@pytest.mark.parametrize("width", [13, 16, 30, 50])
def test_a_patients_metrics_do_not_depend_on_who_else_is_sampled(width: int) -> None:
    """In a batch, a matrix product adds in another order for the last rows of some batch sizes."""
    terms = model_terms("logistic", width)
    alike = Records(np.ones((PATIENTS, width), dtype=np.float32), np.ones(PATIENTS, dtype=np.float32))
    everybody = np.arange(PATIENTS)
    for seed in range(20):
        module = build_model(ADAPTERS["logistic"], terms, cancelling(width, seed)).eval()
        whole = unit_metrics(module, alike, everybody, ACCURACY)
        for left_out in (1, 2, 3, 50):
            np.testing.assert_array_equal(
                unit_metrics(module, alike, everybody[left_out:], ACCURACY), whole[left_out:]
            )
