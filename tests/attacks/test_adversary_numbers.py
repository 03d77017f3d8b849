"""A researcher's signed job with numbers at the ends of float64: refused as a message, never a dead process.

What an agent cannot parse, or a gate refuses, it answers and goes on; an arithmetic error in a gate would end
every silo that the job is offered to.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, ValidationError

from privacy.plan import DpTerms, TrainingTerms
from privacy.query_terms import CountStatistic
from privacy.vector_terms import LEAST_REAL, MOST_REAL
from tests.attacks.test_fedsgd_attacks import SHARED, STEP, VECTOR, judged, shared_round
from tests.vectors_world import METRICS, METRICS_VECTOR

M = TypeVar("M", bound=BaseModel)
BEYOND = ("5e-324", "1e-308", "1e-31", "1e31", "1.7e308")
ENDS = {
    "sample_rate": (1e-12, 1.0),
    "noise_multiplier": (LEAST_REAL, 1e6),
    "clip_l2": (LEAST_REAL, MOST_REAL),
    "normaliser": (LEAST_REAL, MOST_REAL),
    "delta": (LEAST_REAL, 0.999),
}


def _with(terms: M, **changes: Any) -> M:
    """Other terms, judged as those that come over the wire are."""
    return type(terms).model_validate(terms.model_dump() | changes)


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("field", ENDS)
def test_terms_beyond_what_arithmetic_carries_are_no_terms(field: str, value: str) -> None:
    with pytest.raises(ValidationError, match=field):
        _with(SHARED, **{field: value})


@pytest.mark.parametrize("value", BEYOND)
def test_the_same_holds_of_grids_metrics_and_steps(value: str) -> None:
    with pytest.raises(ValidationError, match="coordinate_bound"):
        _with(VECTOR, coordinate_bound=value)
    for field in ("noise_multiplier", "loss_cap"):
        with pytest.raises(ValidationError, match=field):
            _with(METRICS, **{field: value})
    with pytest.raises(ValidationError, match="learning_rate"):
        _with(STEP, learning_rate=value)


@pytest.mark.parametrize("share", ["5e-324", "1e-12"])
def test_a_share_so_small_that_an_answer_is_divided_by_nothing_is_none(share: str) -> None:
    with pytest.raises(ValidationError, match="share"):
        CountStatistic.model_validate({"share": share})


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(ENDS, 2)))
def test_no_two_terms_at_their_ends_raise_anything_but_findings(one: str, other: str) -> None:
    for first, second in itertools.product(ENDS[one], ENDS[other]):
        dp = _with(SHARED, **{one: first, other: second})
        for noise in ENDS["noise_multiplier"]:
            measured = _with(dp, metrics=_with(METRICS, noise_multiplier=noise))
            assert judged(shared_round(dp=measured, further=(METRICS_VECTOR,)))
        assert judged(shared_round(dp=dp)) is not None


@pytest.mark.parametrize(("rate", "most"), [(LEAST_REAL, MOST_REAL), (1e6, LEAST_REAL), (LEAST_REAL, 1.0)])
@pytest.mark.parametrize("bound", [LEAST_REAL, MOST_REAL])
def test_nor_do_step_sizes_and_bounds_at_theirs(rate: float, most: float, bound: float) -> None:
    training = TrainingTerms.model_validate(STEP.model_dump() | {"learning_rate": rate})
    dp = DpTerms.model_validate(SHARED.model_dump() | {"normaliser": most, "clip_l2": bound})
    vector = _with(VECTOR, coordinate_bound=bound)
    assert judged(shared_round(training=training, dp=dp, vector=vector))
