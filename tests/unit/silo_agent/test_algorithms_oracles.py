"""Each algorithm is the one that its paper writes down, by plain computations that share no code."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.server_step import STEPS as SERVER_STEPS
from aggregator.server_step import Moment, Opened
from privacy.errors import Unprocessable
from privacy.ids import SiloId
from privacy.plan import DpTerms
from privacy.secagg.vectors import VectorName
from privacy.vector_terms import HESSIAN
from silo_agent.algorithms.dp_fedavg import dp_fedavg
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.memory import Memory
from silo_agent.algorithms.own_weights import cosine, projected
from silo_agent.problems import Diverged
from silo_agent.refusals import finding_of
from tests.algorithms_world import (
    MODEL,
    RATE,
    SILOS,
    STEPS,
    Reals,
    descended,
    federation,
    gradient,
    loss,
    records_of,
    run,
    task,
    terms,
)

RECORDS = [records_of(number) for number in range(4)]
ZERO = np.zeros(MODEL.parameters)
SCAFFOLD = {"local": {"control": "zero"}}


def _scaffold(
    rounds: int, server_rate: float = 1.0, start: list[Reals] | None = None
) -> tuple[Reals, list[Reals]]:
    """Karimireddy et al. 2020, Algorithm 1, option II, everybody in every round: both sums, x and c."""
    x, controls = ZERO, start or [ZERO] * 4
    c = np.mean(controls, axis=0)
    for _ in range(rounds):
        ends, fresh = [], []
        for records, control in zip(RECORDS, controls, strict=True):
            y = x
            for _ in range(STEPS):
                y = y - RATE * (gradient(y, records) - control + c)
            ends.append(y)
            fresh.append(control - c + (x - y) / (STEPS * RATE))
        x = x + server_rate * (np.mean(ends, axis=0) - x)
        c, controls = (
            c + np.mean([new - old for new, old in zip(fresh, controls, strict=True)], axis=0),
            fresh,
        )
    return x, [c - control for control in controls]


@pytest.mark.parametrize("server_rate", [1.0, 0.5])
def test_scaffold_in_one_sum_is_scaffold_in_two(server_rate: float) -> None:
    last = run(federation(terms(server_learning_rate=server_rate, **SCAFFOLD), rounds=6))[-1]
    model, corrections = _scaffold(6, server_rate)
    np.testing.assert_allclose(last.model, model, atol=2e-5)
    for silo, expected in zip(SILOS, corrections, strict=True):
        np.testing.assert_allclose(last.memories[silo].arrays["control"], expected, atol=2e-5)


def test_a_warm_start_begins_with_the_gradients_at_the_first_model() -> None:
    gradients = [gradient(ZERO, records) for records in RECORDS]
    first = run(federation(terms(local={"control": "warm"})))[0]
    for silo, own in zip(SILOS, gradients, strict=True):
        correction = first.memories[silo].arrays["control"]
        np.testing.assert_allclose(correction, np.mean(gradients, axis=0) - own, atol=1e-5)
    np.testing.assert_allclose(first.model, -STEPS * RATE * np.mean(gradients, axis=0), atol=1e-5)


def test_corrections_sum_to_zero_under_the_weights_of_the_sum_whoever_drops_out() -> None:
    training = terms(weights="examples", weight_cap=50, **SCAFFOLD)
    dropped = {2: [SILOS[1]], 3: [SILOS[0], SILOS[3]]}
    standings = run(federation(training, rounds=5), dropped)
    weights = [min(len(records), 50) / 50 for records in RECORDS]
    for standing in standings:
        held = [standing.memories[silo].arrays["control"] for silo in SILOS]
        np.testing.assert_allclose(np.dot(weights, held), 0, atol=1e-5)
    kept = [standing.memories[SILOS[1]].arrays["control"] for standing in standings[:3]]
    assert np.array_equal(kept[0], kept[1]), "a silo that dropped out keeps its own"
    assert not np.array_equal(kept[1], kept[2])


def test_scaffold_comes_to_rest_where_all_records_together_do_and_fedavg_does_not() -> None:
    pooled = ZERO
    for _ in range(1500):
        pooled = pooled - RATE * np.mean([gradient(pooled, records) for records in RECORDS], axis=0)
    scaffold = run(federation(terms(**SCAFFOLD), rounds=60))[-1].model
    plain = run(federation(terms(), rounds=60))[-1].model
    assert np.linalg.norm(scaffold - pooled) < 0.3 * np.linalg.norm(plain - pooled)


def test_fedprox_pulls_after_each_step() -> None:
    start = np.linspace(-1, 1, MODEL.parameters)
    expected = start
    for _ in range(STEPS):
        stepped = expected - RATE * gradient(expected, RECORDS[0])
        expected = stepped - RATE * 0.3 * (stepped - start)
    asked = task(terms(local={"proximal_mu": 0.3}), start=start.astype(np.float32))
    np.testing.assert_allclose(fedavg(asked).values, expected - start, atol=1e-5)


def test_under_dp_the_pull_reads_no_record() -> None:
    """With nobody sampled and next to no noise, nothing moves the model, so nothing pulls it back either."""
    dp = DpTerms(
        unit="record", sample_rate=1e-12, noise_multiplier=1e-9, clip_l2=1.0, normaliser=10.0, delta=1e-5
    )
    asked = task(terms("dp_fedavg", local={"proximal_mu": 1.0}), dp=dp)
    assert np.abs(dp_fedavg(asked).values).max() < 1e-6


def test_a_gradient_is_clipped_as_a_whole() -> None:
    long = gradient(ZERO, RECORDS[3])
    clip = 0.1 * float(np.linalg.norm(long))
    update = fedavg(task(terms(local_steps=1, local={"gradient_clip": clip}), 3)).values
    np.testing.assert_allclose(update, -RATE * clip * long / np.linalg.norm(long), atol=1e-6)
    loose = fedavg(task(terms(local={"gradient_clip": 1e3}), 3)).values
    np.testing.assert_allclose(loose, descended(ZERO, RECORDS[3]), atol=1e-5)


def test_a_projected_update_is_orthogonal_to_the_global_one_it_went_against() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        update, other = random.normal(size=(2, 6))
        cut = projected(update.astype(np.float32), other).astype(np.float64)
        if update @ other < 0:
            assert abs(cosine(cut, other)) < 1e-6
        else:
            np.testing.assert_allclose(cut, update, atol=1e-6)


def test_projection_takes_the_last_global_update_from_two_models() -> None:
    standings = run(federation(terms(local={"projection": True}), rounds=3))
    for silo in SILOS:
        assert np.array_equal(standings[2].memories[silo].arrays["before"], standings[1].model)


def test_weights_by_divergence_are_root_n_over_one_plus_one_minus_cosine() -> None:
    training = terms(weights="sqrt_n_over_divergence", weight_cap=40)
    start = np.full(MODEL.parameters, 0.2, dtype=np.float32)
    before = np.linspace(0.5, -0.5, MODEL.parameters).astype(np.float32)
    update = fedavg(task(training, 1, Memory({"before": before}, 1), start=start))
    along = cosine(update.values.astype(np.float64), start.astype(np.float64) - before)
    assert update.weight == pytest.approx(np.sqrt(30 / 40) / (1 + 1 - along), rel=1e-6)
    assert fedavg(task(training, 1)).weight == pytest.approx(np.sqrt(30 / 40)), "none in the first round"


def test_agnostic_weights_tilt_the_mean_towards_the_silo_that_does_worst() -> None:
    training = terms(weights="agnostic", local={"gamma": 4.0, "loss_cap": 1.0})
    losses = [loss(ZERO, records) for records in RECORDS]
    updates = [fedavg(task(training, number)) for number in range(4)]
    for update, own in zip(updates, losses, strict=True):
        assert update.weight == pytest.approx(np.exp(4.0 * (own - 1.0)), rel=1e-5)
    tilted = run(federation(terms(weights="agnostic", local={"gamma": 20.0, "loss_cap": 0.7}), rounds=25))[
        -1
    ].model
    plain = run(federation(terms(), rounds=25))[-1].model
    worst = [max(loss(model.astype(np.float64), one) for one in RECORDS) for model in (tilted, plain)]
    assert worst[0] < worst[1]


def test_qfedavg_is_the_step_of_its_paper() -> None:
    """Li et al. 2020, Algorithm 2 with L = 1 / learning rate, before any scaling."""
    q, lipschitz = 0.7, 1 / RATE
    world = federation(terms("qfedavg", weights="fair", local={"q": q, "loss_cap": 3.0}), rounds=3)
    x = ZERO
    for standing in run(world):
        deltas, divisors = [], []
        for records in RECORDS:
            own = loss(x, records)
            step = lipschitz * (x - descended(x, records))
            deltas.append(own**q * step)
            divisors.append(q * own ** (q - 1) * float(step @ step) + lipschitz * own**q)
        x = x - np.sum(deltas, axis=0) / np.sum(divisors)
        np.testing.assert_allclose(standing.model, x, atol=3e-5)


def test_mifa_averages_everybodys_last_update_absent_or_not() -> None:
    dropped: dict[int, list[SiloId]] = {2: [SILOS[0]], 3: [SILOS[0], SILOS[2]], 5: [SILOS[3]]}
    world = federation(terms("mifa", server={"silos": 4}), rounds=6)
    x, last = ZERO, [ZERO] * 4
    for number, standing in enumerate(
        run(world, {name: tuple(who) for name, who in dropped.items()}), start=1
    ):
        for silo, records in enumerate(RECORDS):
            if SILOS[silo] not in dropped.get(number, []):
                last[silo] = descended(x, records) - x
        x = x + np.mean(last, axis=0)
        np.testing.assert_allclose(standing.model, x, atol=3e-5)


def test_a_few_newton_steps_equal_training_on_all_records_together() -> None:
    training = terms("newton", local_steps=1, weights="examples", weight_cap=100, server={"ridge": 1e-6})
    model = run(federation(training, rounds=7))[-1].model.astype(np.float64)
    counts = [len(records) for records in RECORDS]
    pooled = np.average([gradient(model, records) for records in RECORDS], axis=0, weights=counts)
    assert np.linalg.norm(pooled) < 1e-5, "the gradient over all records is gone"


def test_a_hessian_that_is_not_positive_ends_the_round_by_name() -> None:
    # [[1, 2], [2, 1]] has the eigenvalues 3 and −1.
    further = {VectorName(HESSIAN): np.array([1.0, 2.0, 1.0])}
    opened = Opened(np.zeros(2, dtype=np.float32), np.array([1.0, 1.0]), 1.0, further)
    with pytest.raises(Unprocessable, match=r"raise training\.server\.ridge"):
        SERVER_STEPS["newton"](opened, {}, terms("newton", local_steps=1), Moment(1, 2, 0))
    ridged = terms("newton", local_steps=1, server={"ridge": 2.0})
    assert SERVER_STEPS["newton"](opened, {}, ridged, Moment(1, 2, 0)).model == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_silo_whose_training_diverged_says_so_and_tells_no_number(poison: float) -> None:
    records = records_of(0)
    records.features[3, 1] = poison
    with pytest.raises(Diverged) as refusal:
        fedavg(task(terms(), records=records))
    words = finding_of(refusal.value)
    assert words.rule == "training.diverged"
    assert not any(character.isdigit() for character in words.sentence + words.got)


def test_steps_that_blow_the_loss_up_are_a_divergence_even_while_finite() -> None:
    records = records_of(2)
    records.features[:] *= 30
    with pytest.raises(Diverged, match="the loss grew"):
        fedavg(task(terms(learning_rate=1e3, local_steps=5), records=records))


def test_batches_go_through_all_records_before_one_comes_again() -> None:
    """One step a record, at a rate so small that order does not matter, is one epoch."""
    count = len(RECORDS[0])
    training = terms(local_steps=count, learning_rate=1e-4, local={"batch_size": 1})
    update = fedavg(task(training)).values
    np.testing.assert_allclose(update, -1e-4 * count * gradient(ZERO, RECORDS[0]), rtol=0.02)
