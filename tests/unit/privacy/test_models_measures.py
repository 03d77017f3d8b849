"""Measures against scikit-learn, and against their definitions pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from privacy.measures import (
    MeasureUndefined,
    accuracy,
    at_threshold,
    auc,
    calibration_error,
    concordance,
    dice,
    f1,
    macro_f1,
    mae,
    precision,
    recall,
    rmse,
)

BINARY = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({sick for _, sick in rows}) == 2
)
CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(BINARY)
def test_the_area_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, bool]]) -> None:
    sick = [score for score, ill in rows if ill]
    healthy = [score for score, ill in rows if not ill]
    pairs = [(a > b) + 0.5 * (a == b) for a in sick for b in healthy]
    scores = np.array([score for score, _ in rows], dtype=np.float32)
    labels = np.array([ill for _, ill in rows], dtype=np.float32)
    assert auc(scores, labels) == pytest.approx(sum(pairs) / len(pairs))


@settings(max_examples=20, deadline=None)
@given(BINARY)
def test_binary_measures_agree_with_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    probabilities = np.array([(score + 3) / 6 for score, _ in rows])
    labels = np.array([int(ill) for _, ill in rows])
    predicted = at_threshold(probabilities, 0.5)
    assert auc(probabilities, labels) == pytest.approx(oracle.roc_auc_score(labels, probabilities))
    assert accuracy(predicted, labels) == pytest.approx(oracle.accuracy_score(labels, predicted))
    assert recall(predicted, labels) == pytest.approx(oracle.recall_score(labels, predicted))
    assert f1(predicted, labels) == pytest.approx(oracle.f1_score(labels, predicted))
    if predicted.any():
        assert precision(predicted, labels) == pytest.approx(oracle.precision_score(labels, predicted))


@settings(max_examples=20, deadline=None)
@given(CLASSES)
def test_the_macro_f1_agrees_with_scikit_learn(rows: list[tuple[int, int]]) -> None:
    predicted, labels = np.array(rows).T
    expected = oracle.f1_score(labels, predicted, average="macro")
    assert macro_f1(predicted, labels) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=30))
def test_errors_agree_with_scikit_learn(rows: list[tuple[float, float]]) -> None:
    predicted, truth = np.array(rows).T
    assert rmse(predicted, truth) == pytest.approx(oracle.root_mean_squared_error(truth, predicted))
    assert mae(predicted, truth) == pytest.approx(oracle.mean_absolute_error(truth, predicted))


def test_dice_is_the_f1_of_each_records_pixels_and_1_where_nothing_is_to_be_found() -> None:
    drawn = np.random.default_rng(0)
    predicted, masks = drawn.integers(0, 2, (2, 8, 30))
    expected = [oracle.f1_score(mask, one) for mask, one in zip(masks, predicted, strict=True)]
    assert dice(predicted, masks) == pytest.approx(expected)
    assert dice(np.zeros((1, 4)), np.zeros((1, 4))).tolist() == [1.0]
    assert dice(np.ones((1, 4)), np.zeros((1, 4))).tolist() == [0.0]


PATIENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.integers(0, 1)), min_size=2, max_size=15
)


@given(PATIENTS, st.booleans())
def test_concordance_is_counted_pair_by_pair(
    rows: list[tuple[int, int, bool, int]], stratified: bool
) -> None:
    good = pairs = 0.0
    for risk, time, event, stratum in rows:
        for other, later, happened, place in rows:
            comparable = event and (time < later or (time == later and not happened))
            if comparable and (not stratified or stratum == place):
                pairs += 1
                good += (risk > other) + 0.5 * (risk == other)
    risks, times, events, strata = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    if pairs == 0:
        with pytest.raises(MeasureUndefined, match="concordance: expected an event"):
            concordance(risks, times, events, strata if stratified else None)
        return
    assert concordance(risks, times, events, strata if stratified else None) == pytest.approx(good / pairs)


def test_concordance_of_an_event_at_the_end_is_the_area_under_the_roc_curve() -> None:
    """All events at one time, all others censored at it: who had one is who is sick."""
    drawn = np.random.default_rng(1)
    risks, sick = drawn.standard_normal(50), drawn.integers(0, 2, 50)
    assert concordance(risks, np.ones(50), sick) == pytest.approx(oracle.roc_auc_score(sick, risks))


def test_calibration_is_perfect_where_frequencies_are_what_was_predicted() -> None:
    probabilities = np.repeat([0.25, 0.75], 4)
    labels = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    assert calibration_error(probabilities, labels) == pytest.approx(0.0)
    assert calibration_error(probabilities, 1 - labels) == pytest.approx(0.5)
    assert calibration_error(np.array([1.0]), np.array([0])) == pytest.approx(1.0)


def test_figures_that_do_not_exist_are_refused() -> None:
    ones, zeros = np.ones(3), np.zeros(3)
    with pytest.raises(MeasureUndefined, match="AUC: expected records of both classes"):
        auc(ones, ones)
    with pytest.raises(MeasureUndefined, match="recall: expected records of class 1"):
        recall(ones, zeros)
    with pytest.raises(MeasureUndefined, match="precision: expected records predicted"):
        precision(zeros, ones)
    with pytest.raises(MeasureUndefined, match="F1"):
        f1(zeros, zeros)
    with pytest.raises(MeasureUndefined, match="accuracy: expected two vectors of one length"):
        accuracy(ones, np.ones(2))
    with pytest.raises(MeasureUndefined, match="Dice: expected masks"):
        dice(ones, ones)
