"""A client cache: what is sent again, what it saves, and when a silo trains anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privacy.errors import ConfigurationError
from silo_agent.algorithms import local_steps as descent
from silo_agent.algorithms.fedavg import fedavg
from silo_agent.algorithms.memory import Memory
from tests.algorithms_world import (
    MODEL,
    RATE,
    SILOS,
    STEPS,
    descended,
    federation,
    gradient,
    records_of,
    run,
    task,
    terms,
)
from tests.unit.sealsum.test_algorithms_catalogue import job, signed

ZERO = np.zeros(MODEL.parameters)
CACHED = terms(local={"reuse_below": 0.5, "reuse_rounds": 2})


def test_an_update_that_is_sent_again_is_compensated_to_first_order() -> None:
    first = fedavg(task(CACHED))
    moved = np.full(MODEL.parameters, 0.05)
    again = fedavg(task(CACHED, 0, Memory(first.keep, 1), start=moved.astype(np.float32)))
    records = records_of(0)
    change = gradient(moved, records) - gradient(ZERO, records)
    expected = descended(ZERO, records) - STEPS * RATE * change
    np.testing.assert_allclose(again.values, expected, atol=1e-5)
    assert again.keep["cached_times"] == 1
    stale = np.linalg.norm(first.values - (descended(moved, records) - moved))
    kept = np.linalg.norm(again.values - (descended(moved, records) - moved))
    assert kept < stale, "nearer to what training anew would have sent than the bare update"


def test_a_cached_round_takes_one_pass_and_not_one_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fedavg(task(CACHED))
    monkeypatch.setattr(descent, "descend", lambda *_: pytest.fail("a step was taken"))
    fedavg(task(CACHED, 0, Memory(first.keep, 1)))


def test_a_silo_trains_anew_after_so_many_rounds_or_where_its_gradient_has_changed() -> None:
    first = fedavg(task(CACHED))
    tired = {**first.keep, "cached_times": np.array([2.0], dtype=np.float32)}
    assert fedavg(task(CACHED, 0, Memory(tired, 3))).keep["cached_times"] == 0
    far = np.full(MODEL.parameters, 3.0, dtype=np.float32)
    anew = fedavg(task(CACHED, 0, Memory(first.keep, 1), start=far))
    assert anew.keep["cached_times"] == 0
    np.testing.assert_allclose(anew.values, descended(far.astype(float), records_of(0)) - far, atol=1e-5)


def test_a_federation_with_caches_gets_where_one_without_does() -> None:
    cached = run(federation(CACHED, rounds=18), {4: [SILOS[1]], 5: [SILOS[1]]})
    plain = run(federation(terms(), rounds=18))[-1].model
    assert np.linalg.norm(cached[-1].model - plain) < 0.03 * np.linalg.norm(plain)
    times = [
        int(cached[number].memories[silo].arrays["cached_times"][0]) for number in range(18) for silo in SILOS
    ]
    assert max(times) == 2, "never more often in a row than the plan says"
    assert sum(one > 0 for one in times) > 18, "and often"


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"algorithm": "fedavg", "reuse_below": 0.1}, "both above 0, or neither"),
        ({"algorithm": "client_cache", "batch_size": 8}, "of the same steps"),
        ({"algorithm": "client_cache", "control": "zero"}, "of the same steps"),
        ({"algorithm": "client_cache", "weights": "quality"}, "of the same steps"),
    ],
)
def test_a_cache_is_refused_where_updates_are_of_other_steps(training: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        signed(job(training))
