"""Personal models after training: the fits against plain computations, the split, and the intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import nn

from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import ModelTerms, TensorSpec
from silo_agent.data.holdout import folds, held_out, trained_on
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from silo_agent.personal.fitting import Pull, descended, fitted
from silo_agent.personal.layers import tensors_of
from silo_agent.personal.measures import Board, Outcome, losses_of, outcome_of
from silo_agent.personal.methods import (
    Choices,
    best_width,
    ditto,
    fine_tune,
    local_only,
    maximum_a_posteriori,
    nearest_of_the_best,
)
from silo_agent.personal.workplace import Workplace, first_weights

WIDTH = 3
TERMS = model_terms("logistic", WIDTH)
LOGISTIC = ADAPTERS["logistic"]


def patients(count: int, weights: Any = (2.0, -1.0, 0.5), seed: int = 0) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.uniform(-1, 1, (count, WIDTH)).astype(np.float32)
    chance = 1 / (1 + np.exp(-features @ np.array(weights)))
    labels = (generator.uniform(size=count) < chance).astype(np.float32)
    return Records(features, labels, tuple(f"p{number}" for number in range(count)))


def place(records: Records, **changes: Any) -> Workplace:
    return Workplace(LOGISTIC, TERMS, records, **changes)


def penalised(records: Records, centre: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """The minimum by another optimiser, on a loss written out."""
    rows = np.column_stack([records.features.astype(np.float64), np.ones(len(records))])
    signs = 2.0 * records.labels - 1.0

    def objective(weights: NDArray[np.float64]) -> float:
        loss = np.logaddexp(0, -signs * (rows @ weights)).mean()
        return float(loss + strength / 2 * np.square(weights - centre).sum())

    found: NDArray[np.float64] = minimize(objective, np.zeros(WIDTH + 1), method="BFGS", tol=1e-10).x
    return found


def test_a_fit_is_the_minimum_that_another_optimiser_finds() -> None:
    records, centre = patients(60), np.array([0.5, 0.5, -0.5, 0.2])
    for strength in (0.01, 0.3):
        ours = fitted(place(records), Pull(centre.astype(np.float32), strength))
        np.testing.assert_allclose(ours, penalised(records, centre, strength), atol=2e-4)


def test_map_with_a_width_is_ditto_with_the_weight_that_the_width_stands_for() -> None:
    records, shared = patients(50), np.array([1, 0, 0, 0], dtype=np.float32)
    one = maximum_a_posteriori(place(records), shared, Choices(prior_width=0.5))
    other = ditto(place(records), shared, Choices(regular_weight=1 / (50 * 0.25)))
    np.testing.assert_allclose(one.vector, other.vector, atol=1e-5)


def test_a_narrow_prior_gives_the_jobs_model_and_a_wide_one_the_silos_own() -> None:
    records, shared = patients(200), np.array([-3, 2, 0, 1], dtype=np.float32)
    narrow = maximum_a_posteriori(place(records), shared, Choices(prior_width=1e-4)).vector
    wide = maximum_a_posteriori(place(records), shared, Choices(prior_width=1e3)).vector
    np.testing.assert_allclose(narrow, shared, atol=1e-3)
    np.testing.assert_allclose(wide, penalised(records, np.zeros(4), 1e-9), atol=2e-2)


@pytest.mark.slow
def test_cross_validation_keeps_a_right_model_and_leaves_a_wrong_one() -> None:
    records = patients(150)
    right, wrong = np.array([2, -1, 0.5, 0], dtype=np.float32), np.array([-4, 4, 4, 4], dtype=np.float32)
    assert best_width(place(records), right) < best_width(place(records), wrong)
    assert fine_tune(place(records), right, Choices()).chosen["steps"] < 50
    assert fine_tune(place(records), wrong, Choices()).chosen["steps"] >= 50


@pytest.mark.slow
def test_a_personal_model_beats_a_wrong_shared_one_and_a_starved_local_one() -> None:
    few, asked = patients(20, seed=1), patients(2000, seed=2)
    near = np.array([1.8, -0.8, 0.6, 0.1], dtype=np.float32)
    made = maximum_a_posteriori(place(few), near, Choices()).vector
    own = local_only(place(few)).vector
    assert losses_of(place(few), made, asked).mean() < losses_of(place(few), own, asked).mean()
    wrong = -4 * near
    mended = maximum_a_posteriori(place(few), wrong, Choices()).vector
    assert losses_of(place(few), mended, asked).mean() < losses_of(place(few), wrong, asked).mean()


def test_descent_is_the_plain_gradient_step() -> None:
    records, start = patients(30), np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32)
    rows = np.column_stack([records.features.astype(np.float64), np.ones(30)])
    chance = 1 / (1 + np.exp(-rows @ start.astype(np.float64)))
    expected = start - 0.7 * rows.T @ (chance - records.labels) / 30
    [after] = descended(place(records), start, 0.7, 1)
    np.testing.assert_allclose(after, expected, atol=1e-6)


def test_layers_that_may_not_move_stay_to_the_bit() -> None:
    terms = model_terms("mlp", WIDTH, (4,))
    start = first_weights(LOGISTIC, terms)
    last = tensors_of("last", terms)
    assert last == {"layer2.weight", "layer2.bias"}
    bench = Workplace(LOGISTIC, terms, patients(40), last)
    for made in (
        fine_tune(bench, start, Choices(steps=5)),
        ditto(bench, start, Choices()),
        maximum_a_posteriori(bench, start, Choices(prior_width=1.0)),
    ):
        assert np.array_equal(made.vector[:16], start[:16])
        assert not np.array_equal(made.vector[16:], start[16:])


def test_layers_are_named_by_beginnings_and_an_unknown_one_is_told() -> None:
    terms = model_terms("mlp", WIDTH, (4,))
    assert tensors_of("layer1, layer2.bias", terms) == {"layer1.weight", "layer1.bias", "layer2.bias"}
    with pytest.raises(
        ConfigurationError, match=r"expected last, intercept or beginnings of layer1.weight.*got 'layer'"
    ):
        tensors_of("layer", terms)


def test_a_diverging_descent_is_named_and_never_chosen() -> None:
    records, start = patients(40), np.zeros(4, dtype=np.float32)
    huge = Records(records.features * np.float32(1e30), records.labels, records.patients)
    with pytest.raises(Unprocessable, match="diverged"):
        list(descended(place(huge), start, 1e30, 5))
    assert fine_tune(place(huge), start, Choices(learning_rate=1e30)).chosen["steps"] == 0


def test_too_few_patients_to_choose_by_are_told_what_to_name() -> None:
    with pytest.raises(ConfigurationError, match=r"at least 10 patients.*--prior-width"):
        maximum_a_posteriori(place(patients(9)), np.zeros(4, dtype=np.float32), Choices())


def test_a_choice_further_out_must_be_better_by_more_than_chance() -> None:
    generator = np.random.default_rng(0)
    base = generator.exponential(size=50)
    noise = generator.normal(scale=0.2, size=50)
    by_chance = np.stack([base, base + noise - noise.mean() - 0.01])
    for_sure = np.stack([base, base - 0.05, base - 0.06 + noise - noise.mean()])
    assert nearest_of_the_best(by_chance) == 0
    assert nearest_of_the_best(for_sure) == 1


# --- who is held out ---


def test_who_is_held_out_depends_on_the_patient_alone_and_grows_with_the_share() -> None:
    ids = [f"p{number}" for number in range(4000)]
    fifth = held_out(ids, 0.2)
    assert abs(fifth.mean() - 0.2) < 0.02
    assert np.array_equal(held_out(ids[::-1], 0.2)[::-1], fifth)
    assert np.array_equal(held_out(["p7", *ids], 0.2)[1:], fifth)
    assert not np.any(fifth & ~held_out(ids, 0.4))


def test_all_records_of_a_patient_are_on_one_side_and_in_one_fold() -> None:
    owners = tuple(f"p{number // 3}" for number in range(300))
    for marks in (held_out(owners, 0.3), folds(owners, 5)):
        assert np.array_equal(marks[0::3], marks[1::3])
        assert np.array_equal(marks[0::3], marks[2::3])


def test_what_a_job_trains_on_lacks_exactly_those_held_out_and_numbers_units_anew() -> None:
    base = patients(60)
    owners = tuple(f"p{number // 2}" for number in range(60))
    units = np.arange(60) // 2
    records = Records(base.features, base.labels, owners, units=units)
    kept = trained_on(records, 0.3)
    assert set(kept.patients) == {one for one in owners if not held_out([one], 0.3)[0]}
    assert kept.unit_count == len(set(kept.patients))
    assert trained_on(records, 0.0) is records


# --- how well they do ---


def test_the_area_is_the_chance_that_a_sick_patient_scores_higher() -> None:
    scores = np.array([0.1, 0.4, 0.4, 0.9, -1.0])
    labels = np.array([0, 1, 0, 1, 1], dtype=np.float32)
    outcome = Outcome(np.ones(5), np.ones(5), scores)
    records = Records(np.zeros((5, 1), dtype=np.float32), labels, tuple("abcde"))
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[labels == 1] for b in scores[labels == 0]]
    assert Board(records, {"m": outcome}).figure("m", "auc").value == pytest.approx(np.mean(pairs))


def test_intervals_hold_as_often_as_they_say() -> None:
    generator, inside = np.random.default_rng(5), 0
    for _ in range(100):
        right = (generator.uniform(size=80) < 0.7).astype(np.float64)
        records = Records(np.zeros((80, 1), dtype=np.float32), right.astype(np.float32), _names(80))
        figure = Board(records, {"m": Outcome(right, right, right)}).figure("m", "accuracy")
        inside += figure.low <= 0.7 <= figure.high
    assert 88 <= inside <= 100  # 95 are expected; the bootstrap is a little short at 80 patients


def test_a_difference_is_taken_on_the_same_patients() -> None:
    """A model that is right once more, on everybody, is better for sure, however hard the patients are."""
    generator = np.random.default_rng(6)
    loss = generator.exponential(size=40)
    records = Records(np.zeros((40, 1), dtype=np.float32), np.ones(40, dtype=np.float32), _names(40))
    outcomes = {"a": Outcome(loss, loss, None), "b": Outcome(loss - 0.01, loss, None)}
    better = Board(records, outcomes).difference("b", "a", "loss")
    assert better.low > 0
    assert better.value == pytest.approx(0.01)


def test_a_patient_of_many_records_is_drawn_as_one() -> None:
    generator = np.random.default_rng(7)
    loss = np.repeat(generator.exponential(size=20), 10)
    records = Records(np.zeros((200, 1), dtype=np.float32), np.ones(200, dtype=np.float32), _names(20) * 10)
    records = Records(records.features, records.labels, tuple(np.repeat(_names(20), 10).tolist()))
    apart = Records(records.features, records.labels, _names(200))
    outcomes = {"m": Outcome(loss, loss, None)}
    one, other = (Board(given, outcomes).figure("m", "loss") for given in (records, apart))
    assert one.high - one.low > 2 * (other.high - other.low)


def test_no_area_is_made_up_where_one_class_is_absent() -> None:
    records = patients(12)
    sick = Records(records.features, np.ones(12, dtype=np.float32), records.patients)
    assert Board(sick, {}).metrics == ("accuracy", "loss")


# --- batch statistics ---


class Normalised:
    """A layer behind a batch normalisation: what a silo's own adapter may be."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return terms.layout

    def build(self, terms: ModelTerms) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(terms.inputs), nn.Linear(terms.inputs, 1))


def test_batch_statistics_are_those_of_the_silos_training_patients() -> None:
    layout = (
        TensorSpec(name="0.weight", shape=(WIDTH,)),
        TensorSpec(name="0.bias", shape=(WIDTH,)),
        TensorSpec(name="1.weight", shape=(1, WIDTH)),
        TensorSpec(name="1.bias", shape=(1,)),
    )
    terms = ModelTerms(adapter="normalised", inputs=WIDTH, layout=layout)
    records = patients(64)
    vector = first_weights(Normalised(), terms)
    assert np.array_equal(vector[:WIDTH], np.ones(WIDTH))
    module = Workplace(Normalised(), terms, records).scored(vector)
    layer = next(iter(module.children()))
    assert isinstance(layer, nn.BatchNorm1d)
    assert layer.running_mean is not None
    np.testing.assert_allclose(layer.running_mean.numpy(), records.features.mean(axis=0), atol=1e-6)
    one = outcome_of(module, records.only(np.array([3])))
    many = outcome_of(module, records)
    np.testing.assert_allclose(one.loss[0], many.loss[3])


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"p{number}" for number in range(count))
