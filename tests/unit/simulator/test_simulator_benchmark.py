"""benchmarks/utility.py compares like with like."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from benchmarks.utility import gaps, table
from benchmarks.utility_methods import DELTA, POOLED, SHARED, noise
from benchmarks.utility_problems import SILOS, digits, documented_ranges, heart
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent


def test_every_training_record_is_in_one_silo_of_each_split() -> None:
    for problem in (digits(0), heart(0)):
        for chosen in problem.splits.values():
            assert len(chosen) == SILOS
            assert np.array_equal(np.sort(np.concatenate(chosen)), np.arange(len(problem.train)))


def test_skewed_silos_hold_few_labels_and_even_ones_all() -> None:
    problem = digits(0)
    kinds = {
        split: [len(set(records.labels)) for records in problem.silos(split).values()]
        for split in problem.splits
    }
    assert max(kinds["label skew"]) <= 4
    assert min(kinds["IID"]) == 10


def test_ranges_are_those_of_the_public_description() -> None:
    bunch = load_breast_cancer()
    low, high = documented_ranges(bunch.DESCR)
    assert len(low) == bunch.data.shape[1]
    assert np.all(low < high)
    assert (low[0], high[0]) == (6.981, 28.11)


def test_all_private_methods_spend_the_same_epsilon() -> None:
    sigma = noise(3.0, 0.5, 40)
    spent = epsilon([DpEvent(sample_rate=0.5, noise_multiplier=sigma, steps=40)], DELTA)
    assert 2.99 < spent <= 3.0


@pytest.mark.slow
def test_shared_noise_on_skewed_silos_learns_as_well_as_pooled_dp() -> None:
    problem = digits(0)
    central = POOLED["pooled DP-SGD"](problem, "pooled", 8.0)
    shared = SHARED["dp_fedsgd, t = 0"](problem, "label skew", 8.0)
    assert central > 94
    assert shared > central - 3


def test_the_gap_is_pooled_minus_federated_at_the_same_epsilon() -> None:
    row = {"dataset": "d", "metric": "accuracy", "spread": 0.0, "scores": []}
    rows = [
        {**row, "method": "pooled DP-SGD", "split": "pooled", "epsilon": 1.0, "mean": 95.0},
        {**row, "method": "dp_fedsgd, t = 0", "split": "IID", "epsilon": 1.0, "mean": 94.6},
    ]
    assert gaps(rows)[0]["gap"] == pytest.approx(0.4)
    assert "94.6" in table(rows)
