"""Server steps: each optimiser is the one its paper writes down, and a crash changes nothing of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from aggregator.blobs import Directory
from aggregator.server_memory import ServerMemory
from aggregator.server_step import STEPS, Moment, Opened, Reals, first_slots, learning_rate
from privacy.errors import Unprocessable
from privacy.ids import Digest
from privacy.plan import RoundPlan, ServerTerms, TrainingTerms
from tests.federation import Federation

D, ROUNDS = 7, 12
FEDERATION = Federation()


def _training(rate: float = 0.5, **server: object) -> TrainingTerms:
    return TrainingTerms(
        algorithm="dp_fedavg",
        local_steps=2,
        learning_rate=0.5,
        server_learning_rate=rate,
        server=ServerTerms(**server),  # type: ignore[arg-type]  # each case names fields of its own
    )


def _means() -> list[NDArray[np.float64]]:
    generator = np.random.default_rng(5)
    return [generator.normal(0, 0.3, D) for _ in range(ROUNDS)]


def _iterates(training: TrainingTerms) -> list[NDArray[np.float32]]:
    """All models of a job whose sums are three times ``_means``, in memory."""
    model = np.linspace(-1, 1, D).astype(np.float32)
    slots: dict[str, Reals] = first_slots(model, training.server)
    models = []
    averaged = 0
    for number, mean in enumerate(_means(), start=1):
        moment = Moment(number, ROUNDS, averaged)
        stepped = STEPS["dp_fedavg"](Opened(model, 3.0 * mean, 3.0), slots, training, moment)
        model, slots = stepped.model, stepped.slots
        averaged += moment.in_tail(training.server)
        models.append(model)
    return models


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_sgd_on_the_negative_mean(momentum: float) -> None:
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, D, dtype=torch.float64))
    oracle = torch.optim.SGD([parameter], lr=0.5, momentum=momentum)
    for mean in _means():
        parameter.grad = torch.from_numpy(-mean)
        oracle.step()
    expected = parameter.detach().numpy()
    np.testing.assert_allclose(_iterates(_training(momentum=momentum))[-1], expected, atol=1e-6)


def test_adam_with_a_zero_start_of_its_moments_is_the_papers_recurrence() -> None:
    """Reddi et al. 2021, Algorithm 2 (no bias correction, v₋₁ = τ²), written out for one coordinate."""
    training = _training(0.1, optimizer="adam", beta_1=0.8, beta_2=0.95, tau=0.01)
    x, m, v = -1.0, 0.0, 0.01**2
    for mean in _means():
        delta = float(mean[0])
        m = 0.8 * m + 0.2 * delta
        v = 0.95 * v + 0.05 * delta**2
        x += 0.1 * m / (v**0.5 + 0.01)
    assert _iterates(training)[-1][0] == pytest.approx(x, abs=1e-5)


def test_yogi_moves_its_second_moment_by_the_square_at_most() -> None:
    training = _training(0.1, optimizer="yogi", beta_1=0.0, beta_2=0.9, tau=0.01)
    x, v = -1.0, 0.01**2
    for mean in _means():
        square = float(mean[0]) ** 2
        v = v - 0.1 * square * np.sign(v - square)
        x += 0.1 * float(mean[0]) / (v**0.5 + 0.01)
    assert _iterates(training)[-1][0] == pytest.approx(x, abs=1e-5)


def test_a_schedule_falls_from_the_whole_rate_to_nothing_after_the_last_round() -> None:
    for schedule, middle in (("linear", 0.25), ("cosine", 0.25)):
        training = _training(0.5, schedule=schedule)
        rates = [learning_rate(training, Moment(number, 10, 0)) for number in range(1, 11)]
        assert rates[0] == 0.5
        assert rates == sorted(rates, reverse=True)
        assert rates[5] == pytest.approx(middle)
        assert rates[-1] > 0


def test_the_final_model_is_the_mean_of_the_tail_and_rounds_start_from_the_iterate() -> None:
    plain, averaged = _iterates(_training()), _iterates(_training(tail_rounds=4))
    for number in range(ROUNDS - 1):
        assert np.array_equal(plain[number], averaged[number])
    np.testing.assert_allclose(averaged[-1], np.mean(plain[-4:], axis=0), atol=1e-6)


def test_a_moving_average_starts_at_the_first_model() -> None:
    plain, moving = _iterates(_training()), _iterates(_training(ema_decay=0.7))
    expected = np.linspace(-1, 1, D)
    for model in plain:
        expected = 0.7 * expected + 0.3 * model
    np.testing.assert_allclose(moving[-1], expected, atol=1e-6)


@pytest.mark.parametrize(
    "server", [{"optimizer": "adam", "momentum": 0.9}, {"tail_rounds": 2, "ema_decay": 0.5}]
)
def test_terms_that_would_have_no_effect_are_refused(server: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="expected 0 with"):
        _training(**server)  # type: ignore[arg-type]  # as in _training


def test_a_longer_tail_than_the_job_is_refused() -> None:
    with pytest.raises(ValidationError, match="tail_rounds: expected at most 2"):
        FEDERATION.job_spec(training=_training(tail_rounds=3))


# --- between rounds, on disk ---


def _plan(number: int, model: str) -> RoundPlan:
    spec = FEDERATION.job_spec(training=_training(momentum=0.9, tail_rounds=2), rounds=3)
    return FEDERATION.plan(spec, number, model=model)


def _digest(letter: str) -> Digest:
    return Digest(letter * 64)


def _round(memories: ServerMemory, number: int, model: str, out: str) -> dict[str, Reals]:
    """Go through one round's memory; returns what it began with."""
    plan = _plan(number, _digest(model))
    vector = np.zeros(3, dtype=np.float32)
    with memories.of_round(plan, _digest("a")) as memory:
        before = memory.read(0, vector)
        memory.write({name: values + number for name, values in before.items()})
        memory.keep(_digest(out))
    return before


def test_a_round_finds_what_the_round_before_it_kept_in_stretches(tmp_path: Path) -> None:
    memories = ServerMemory(Directory(tmp_path))
    assert all(np.all(values == 0) for values in _round(memories, 1, "a", "b").values())
    with memories.of_round(_plan(2, _digest("b")), _digest("a")) as memory:
        assert memory.moment == Moment(2, 3, 0)
        for start, length in ((0, 2), (2, 1)):
            stretch = memory.read(start, np.zeros(length, dtype=np.float32))
            assert {name: values.tolist() for name, values in stretch.items()} == {
                "momentum": [1.0] * length,
                "average": [1.0] * length,
            }


def test_a_round_that_runs_again_after_a_crash_starts_from_the_same_memory(tmp_path: Path) -> None:
    memories = ServerMemory(Directory(tmp_path))
    _round(memories, 1, "a", "b")
    first = _round(memories, 2, "b", "c")
    again = _round(ServerMemory(Directory(tmp_path)), 2, "b", "c")
    assert {name: values.tolist() for name, values in first.items()} == {
        name: values.tolist() for name, values in again.items()
    }


def test_a_lost_memory_is_refused_not_begun_anew(tmp_path: Path) -> None:
    memories = ServerMemory(Directory(tmp_path))
    _round(memories, 1, "a", "b")
    memories.forget(_plan(1, _digest("a")).job_digest, _digest("b"))
    with (
        pytest.raises(Unprocessable, match="optimiser remembers"),
        memories.of_round(_plan(2, _digest("b")), _digest("a")),
    ):
        pass


def test_an_ended_job_leaves_nothing(tmp_path: Path) -> None:
    memories = ServerMemory(Directory(tmp_path))
    _round(memories, 1, "a", "b")
    (job,) = memories.jobs()
    memories.forget_job(job)
    assert memories.jobs() == []
