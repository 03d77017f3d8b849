"""Advice follows from the numbers, says them, and changes where they pass a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privacy.errors import ConfigurationError
from sealsum.diagnosis.advice import advise
from sealsum.diagnosis.rounds import mean_pairwise_cosine
from sealsum.diagnosis.thresholds import LABEL_SKEW, level_of


def _one(value: float | None, reach: float = 0.0) -> dict[str, Any]:
    return (
        {"estimate": None}
        if value is None
        else {"estimate": value, "interval_95": [value - reach, value + reach]}
    )


def _data(skew: float, reach: float = 0.0, **column: float) -> dict[str, Any]:
    named = {"between": 0.01, "missing": 0.0, "missing_between": 0.0, "at_ends": 0.0} | column
    return {
        "label_skew": {"divergence": _one(skew, reach)},
        "size_skew": {"variation": _one(0.2)},
        "columns": [{"column": "age"} | {name: _one(value) for name, value in named.items()}],
    }


def _rounds(
    local: float, federated: float, personal: float, pooled: float, cosine: float = 0.5
) -> dict[str, Any]:
    means = {"local": local, "federated": federated, "personal": personal, "pooled": pooled}
    figure: dict[str, Any] = {
        name: {
            "mean_over_silos": {"mean": mean},
            "worst_silo": {"mean": mean - 0.1},
            "variance_between_silos": {"mean": 0.01},
        }
        for name, mean in means.items()
    }
    for one, other in (
        ("federated", "local"),
        ("personal", "local"),
        ("personal", "federated"),
        ("pooled", "local"),
    ):
        figure[f"{one}_over_{other}"] = {"mean": means[one] - means[other], "standard_error": 0.001}
    return {
        "local_steps": 10,
        "cosine": {"mean": {"mean": cosine}, "by_round": [cosine] * 5},
        "figures": {"accuracy": figure},
        "served_below": {"threshold": 0.7, "share_of_silos": {"mean": 0.25}},
    }


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (_data(0.02), "stay_with_fedavg"),
        (_data(0.2), "correct_drift"),
        (_data(0.6), "correct_drift"),
        (_data(0.2, reach=0.4), "too_noisy"),
        (_data(0.02, missing_between=0.6, missing=0.2), "mend_data"),
        (_data(0.02, at_ends=0.4), "mend_data"),
    ],
)
def test_before_training_the_data_decide(data: dict[str, Any], verdict: str) -> None:
    assert advise(data).verdict == verdict


@pytest.mark.parametrize(
    ("rounds", "verdict"),
    [
        (_rounds(0.70, 0.80, 0.80, 0.81), "stay_with_fedavg"),
        (_rounds(0.70, 0.80, 0.80, 0.81, cosine=0.1), "correct_drift"),
        (_rounds(0.70, 0.80, 0.85, 0.81), "personalise"),
        (_rounds(0.80, 0.70, 0.82, 0.81), "personalise"),
        (_rounds(0.80, 0.79, 0.801, 0.80), "do_not_federate"),
        (_rounds(0.80, 0.802, 0.802, 0.803), "do_not_federate"),
        (_rounds(0.80, 0.70, 0.70, 0.85), "correct_drift"),
    ],
)
def test_after_rounds_the_figures_decide(rounds: dict[str, Any], verdict: str) -> None:
    assert advise(_data(0.02), rounds).verdict == verdict


def test_a_gain_within_two_standard_errors_is_none() -> None:
    rounds = _rounds(0.70, 0.72, 0.72, 0.72)
    for of in ("federated_over_local", "personal_over_local", "pooled_over_local"):
        rounds["figures"]["accuracy"][of]["standard_error"] = 0.02
    assert advise(_data(0.02), rounds).verdict == "do_not_federate"


def test_sentences_carry_their_numbers() -> None:
    advice = advise(_data(0.2, reach=0.05, missing_between=0.6, missing=0.12), _rounds(0.7, 0.8, 0.8, 0.81))
    text = " ".join(advice.reasons)
    for number in (
        "0.20 (0.15 to 0.25",
        "60 %",
        "12 %",
        "0.800 against 0.700",
        "+0.100 ± 0.001",
        "25 %",
        "10 local steps",
    ):
        assert number in text
    assert "beats training alone" in text


@pytest.mark.parametrize(
    ("one", "level"),
    [
        (_one(0.05), "low"),
        (_one(0.1), "moderate"),
        (_one(0.31), "strong"),
        (_one(0.2, 0.2), "unknown"),
        (_one(0.35, 0.15), "strong"),
        (_one(-0.1, 0.28), "unknown"),
        (_one(0.05, 0.04), "low"),
        (_one(None), "unknown"),
    ],
)
def test_levels_by_both_thresholds(one: dict[str, Any], level: str) -> None:
    assert level_of(one, LABEL_SKEW) == level


def test_the_cosine_from_the_sum_is_the_mean_over_pairs() -> None:
    random = np.random.default_rng(1)
    units = random.normal(size=(5, 30))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    pairs = [units[one] @ units[other] for one in range(5) for other in range(one)]
    assert mean_pairwise_cosine(units.sum(axis=0), 5) == pytest.approx(np.mean(pairs))
    with pytest.raises(ConfigurationError, match="two silos"):
        mean_pairwise_cosine(units[0], 1)
