"""Forgetting over all silos: from charged evaluations only, with their error, and what they cost together."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from privacy.dp.accountant import epsilon
from privacy.dp.events import round_event
from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from privacy.query_terms import AccuracyMetric, ConfusionMetric, Metric
from sealsum.cli import cli
from sealsum.queries import forgetting_command
from sealsum.queries.answer import read_answer
from sealsum.queries.file import EvaluationRequest, NoiseRequest
from sealsum.queries.forgetting import charged_in_all, forgetting
from sealsum.queries.metrics import read_metric
from silo_agent.algorithms import dp_query
from silo_agent.data.records import Records
from tests.federation import Federation
from tests.query_cohort import SMALL, answered, asked, opened

FEDERATION = Federation()
SLOPES = (2.0, 1.0, -0.5)
"""Of the first feature, under three models, the last of which has it the wrong way round."""
BIASES = (0.0, -0.4, 0.0)


def weights_of(place: int) -> NDArray[np.float32]:
    """A logistic model of the first feature."""
    weights = np.zeros(SMALL.width + 1, dtype=np.float32)
    weights[0], weights[-1] = SLOPES[place], BIASES[place]
    return weights


def cohort() -> list[Records]:
    """Four silos whose label goes with the first feature."""
    random, silos = np.random.default_rng(8), []
    for _ in range(4):
        features = np.zeros((300, SMALL.width), dtype=np.float32)
        features[:, 0] = random.uniform(-1, 1, 300)
        labels = features[:, 0] + random.normal(0, 0.3, 300) > 0
        silos.append(Records(features, labels.astype(np.float32)))
    return silos


def evaluation(place: int, metric: Metric | None = None, noise: float = 4.0, **changes: Any) -> JobSpec:
    """Of the model at this place."""
    request = EvaluationRequest(adapter="logistic", metrics=(metric or ConfusionMetric(),))
    terms = NoiseRequest(unit="patient", noise_multiplier=noise, delta=1e-5)
    named = {"job": f"evaluation-{place}", "dp": terms, **changes}
    return asked(FEDERATION, request, weights=weights_of(place), **named)


def answer(job: JobSpec, place: int) -> dict[str, Any]:
    """As it is opened."""
    silos = cohort()
    return read_answer(job, opened(job, [answered(job, one, weights_of(place)) for one in silos]), len(silos))


def recall(place: int, label: int) -> float:
    """Counted by hand."""
    features = np.concatenate([one.features[:, 0] for one in cohort()])
    labels = np.concatenate([one.labels for one in cohort()])
    found = SLOPES[place] * features + BIASES[place] > 0
    return float((found[labels == label] == label).mean())


def test_what_is_forgotten_is_the_best_recall_before_less_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_query, "gaussian", lambda count, deviation: np.zeros(count))
    told = forgetting([answer(evaluation(place), place) for place in range(3)])
    for label, one in enumerate(told):
        before = [recall(0, label), recall(1, label)]
        assert one["best"]["estimate"] == pytest.approx(max(before), abs=1e-3)
        assert one["best_in"] == f"evaluation-{int(np.argmax(before))}"
        assert one["forgetting"]["estimate"] == pytest.approx(max(before) - recall(2, label), abs=2e-3)
    assert {one["best_in"] for one in told} == {"evaluation-0", "evaluation-1"}


def test_intervals_of_what_was_forgotten_hold() -> None:
    random, error, held = np.random.default_rng(3), 12.0, 0
    counts = np.array([[[500, 100], [60, 540]], [[520, 80], [240, 360]]], dtype=np.float64)
    for _ in range(2000):
        noisy = counts + random.normal(0, error, counts.shape)
        answers = [
            {
                "job": f"j{place}",
                "model": place,
                "metrics": [read_metric(ConfusionMetric(), SMALL, one, error)],
            }
            for place, one in enumerate(noisy)
        ]
        low, high = forgetting(answers)[1]["forgetting"]["interval_95"]
        held += low <= 0.9 - 0.6 <= high
    assert 0.935 <= held / 2000 <= 0.965


def test_what_all_evaluations_cost_is_composed_not_the_last_ones() -> None:
    jobs = [evaluation(place) for place in range(3)]
    charged = charged_in_all(jobs)
    assert jobs[0].dp is not None
    one = round_event(jobs[0].dp, jobs[0].training)
    assert charged["epsilon"] == pytest.approx(epsilon([one] * 3, 1e-5), rel=1e-5)
    assert charged["epsilon"] > epsilon([one], 1e-5)


def test_noise_that_hides_a_class_leaves_it_untold() -> None:
    told = forgetting([answer(evaluation(place, noise=400.0), place) for place in (0, 2)])
    assert [one["forgetting"] for one in told] == [None, None]


def test_evaluations_that_cannot_be_compared_are_refused() -> None:
    whole, other = answer(evaluation(0), 0), answer(evaluation(2), 2)
    with pytest.raises(ConfigurationError, match="each of another model, got two of one"):
        forgetting([whole, whole])
    with pytest.raises(ConfigurationError, match="evaluation-1: expected the labels and the threshold"):
        forgetting([whole, answer(evaluation(1, ConfusionMetric(threshold=0.3)), 1)])
    with pytest.raises(ConfigurationError, match="which tells recall by class, got accuracy"):
        forgetting([answer(evaluation(1, AccuracyMetric()), 1), other])
    with pytest.raises(ConfigurationError, match="two evaluations or more"):
        charged_in_all([evaluation(0)])
    with pytest.raises(ConfigurationError, match="dataset: expected one"):
        charged_in_all([evaluation(0), evaluation(1, dataset="another")])


class Asked:
    """A researcher's evaluations that were answered, in the place of a connection."""

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def job(self, name: str) -> SimpleNamespace:
        """What was signed, and which of the models it is of."""
        place = int(name.removeprefix("evaluation-"))
        return SimpleNamespace(spec=evaluation(place), place=place)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_tells_each_class_and_what_all_of_it_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(forgetting_command.Federation, "connect", lambda *_, **__: Asked())
    monkeypatch.setattr(forgetting_command, "answer_of", lambda handle: answer(handle.spec, handle.place))
    arguments = ["query", "forgetting", "evaluation-0", "evaluation-2", "--state", str(tmp_path), *options]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    cost = charged_in_all([evaluation(0), evaluation(2)])["epsilon"]
    if options:
        told = json.loads(result.stdout)
        assert told["charged"]["epsilon"] == cost
        assert [one["label"] for one in told["classes"]] == ["num ≤ 0", "num > 0"]
    else:
        assert f"{cost:g}" in result.stdout
        assert "num > 0" in result.stdout
        assert "evaluation-0" in result.stdout
        assert "too high by chance" in result.stdout


def test_the_command_names_a_job_that_is_not_known(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["query", "forgetting", "a", "b", "--state", str(tmp_path / "none")])
    assert result.exit_code != 0
    assert "none" in result.output
