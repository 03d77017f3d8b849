"""``newton`` on survival times: pooled fits of the stratified Cox and the Poisson model by computations that
share no code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from privacy.labels import LabelKind
from privacy.plan import VectorTerms
from sealsum.job_further import algorithm_further
from sealsum.simulator.federation import Federation
from sealsum.simulator.gathered import joined
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.scored import score
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from tests.algorithms_world import SILOS, Reals, terms

WIDTH = 3
VECTOR = VectorTerms(coordinate_bound=8.0, scale_bits=24)
BY_RECORDS: dict[str, Any] = {"local_steps": 1, "weights": "examples", "weight_cap": 100}


def _records(number: int, kind: LabelKind = "cox", events: bool = True) -> Records:
    """Of silo ``number``: its own baseline hazard, its own size, and times with ties."""
    random = np.random.default_rng(40 + number)
    features = random.normal(0.2 * number, 0.7, (25 + 10 * number, WIDTH)).clip(-2, 2).astype(np.float32)
    hazard = np.exp(features @ np.array([0.8, -0.5, 0.3]) + number - 1.0)
    times = np.ceil(10 * random.exponential(1 / hazard)).clip(1, 10) / 10
    observed = (random.uniform(size=len(times)) < 0.7) & events
    labels = np.stack([times, observed], axis=1).astype(np.float32)
    return Records(features, labels, kind=kind)


def _fitted(silos: Sequence[Records], adapter: str, rounds: int = 8, ridge: float = 1e-9) -> Reals:
    model = model_terms(adapter, WIDTH)
    training = terms("newton", **BY_RECORDS, server={"ridge": ridge})
    further = algorithm_further(training, model, "additive", len(silos))
    held = dict(zip(SILOS, silos, strict=True))
    world = Federation(RoundTerms(model, training, None, VECTOR, further), ADAPTERS[adapter], held, rounds)
    return world.train(np.zeros(model.parameters, dtype=np.float32)).astype(np.float64)


def _stratified_cox(beta: Reals, silos: Sequence[Records]) -> float:
    """−log of the product of the silos' partial likelihoods (Breslow's ties), event by event."""
    value = 0.0
    for records in silos:
        scores = records.features.astype(np.float64) @ beta
        for at, event in enumerate(records.labels[:, 1]):
            if event:
                at_risk = records.labels[:, 0] >= records.labels[at, 0]
                value += float(np.log(np.exp(scores[at_risk]).sum()) - scores[at])
    return value


def _minimum(objective: Any, silos: Sequence[Records], size: int) -> NDArray[np.float64]:
    found = minimize(objective, np.zeros(size), args=(silos,), method="BFGS", options={"gtol": 1e-7})
    return np.asarray(found.x)


def test_newton_is_the_pooled_cox_fit_stratified_by_silo() -> None:
    silos = [_records(number) for number in range(4)]
    expected = _minimum(_stratified_cox, silos, WIDTH)
    np.testing.assert_allclose(_fitted(silos, "cox"), expected, atol=2e-5)
    one_stratum = _minimum(_stratified_cox, [joined(silos)], WIDTH)
    assert np.abs(one_stratum - expected).max() > 0.05, "baselines differ, so that strata matter here"


def test_a_silo_without_an_event_changes_nothing_of_a_cox_fit() -> None:
    silos = [_records(0), _records(1), _records(2), _records(3, events=False)]
    np.testing.assert_allclose(_fitted(silos, "cox"), _minimum(_stratified_cox, silos[:3], WIDTH), atol=2e-5)


def _poisson(beta: Reals, silos: Sequence[Records]) -> float:
    """−log-likelihood of counts 0 or 1 with mean time · exp(η), up to a constant; log time is an offset."""
    value = 0.0
    for records in silos:
        mean = np.exp(
            records.features.astype(np.float64) @ beta[:WIDTH] + beta[WIDTH] + np.log(records.labels[:, 0])
        )
        value += float((mean - records.labels[:, 1] * np.log(mean)).sum())
    return value


def test_newton_on_exponential_times_is_the_pooled_poisson_fit_with_time_at_risk() -> None:
    silos = [_records(number, "exponential") for number in range(4)]
    expected = _minimum(_poisson, silos, WIDTH + 1)
    np.testing.assert_allclose(_fitted(silos, "linear"), expected, atol=2e-5)


def test_under_uniform_weights_each_silo_counts_once_whatever_its_size() -> None:
    """Not the pooled fit: the docs tell a job to weigh by records for that."""
    silos = [_records(number, "exponential") for number in range(4)]
    training = terms("newton", local_steps=1, server={"ridge": 1e-9})
    model = model_terms("linear", WIDTH)
    further = algorithm_further(training, model, "additive", 4)
    world = Federation(
        RoundTerms(model, training, None, VECTOR, further),
        ADAPTERS["linear"],
        dict(zip(SILOS, silos, strict=True)),
        8,
    )
    fitted = world.train(np.zeros(WIDTH + 1, dtype=np.float32))

    def even(beta: Reals, held: Sequence[Records]) -> float:
        return sum(_poisson(beta, [records]) / len(records) for records in held)

    np.testing.assert_allclose(fitted, _minimum(even, silos, WIDTH + 1), atol=2e-5)
    assert np.abs(fitted - _minimum(_poisson, silos, WIDTH + 1)).max() > 1e-3


@pytest.mark.parametrize("kind", ["cox", "exponential"])
def test_simulations_score_survival_times_by_concordance_within_silos(kind: LabelKind) -> None:
    adapter = "cox" if kind == "cox" else "linear"
    silos = {silo: _records(number, kind) for number, silo in enumerate(SILOS)}
    fitted = _fitted(list(silos.values()), adapter).astype(np.float32)
    model = model_terms(adapter, WIDTH)
    found = score(ADAPTERS[adapter], model, dict.fromkeys(silos, fitted), silos)
    assert list(found) == ["C-index"]
    pairs = right = 0.0
    for records in silos.values():
        scores = records.features @ fitted[:WIDTH]
        times, events = records.labels.T
        for one in np.flatnonzero(events):
            later = (times > times[one]) | ((times == times[one]) & (events == 0))
            for other in np.flatnonzero(later):
                pairs += 1
                right += 0.5 + 0.5 * np.sign(scores[one] - scores[other])
    assert found["C-index"].together == pytest.approx(right / pairs)
    assert found["C-index"].together > 0.6
