"""Whoever has every mean update has every model: such rounds are refused where models are kept back."""

from __future__ import annotations

import pytest

from policies.rules_release import mean_updates_stay_with_models
from privacy.plan import FurtherVector
from privacy.vector_terms import CONTROL
from tests.unit.policies.policies_terms import altered, bent_policy, honest_round

GIVEN = {"release.model.to": "researchers", "release.model.when": "every_round"}


def _refused(changes: dict[str, object], vector: str = CONTROL) -> list[str]:
    here = honest_round()
    beside = FurtherVector(name=vector, coordinates=3, opens_to="mean", terms=here.plan.vector)
    plan = altered(here.plan, further=(beside,))
    spec = bent_policy(changes).model.spec
    return [one.rule for one in mean_updates_stay_with_models(spec, plan, here.charter)]


@pytest.mark.parametrize(
    "kept",
    [{}, GIVEN | {"release.model.when": "job_end"}, GIVEN | {"release.model.to": "silos"}],
    ids=["the default", "until the end", "to silos"],
)
def test_mean_updates_are_not_published_where_models_are_kept_back(kept: dict[str, object]) -> None:
    assert _refused(kept) == ["mean_updates_published"]


def test_nor_where_models_are_attacked_first() -> None:
    assert _refused(GIVEN | {"require.attack_suite": "quick"}) == ["mean_updates_published"]


def test_where_researchers_may_have_each_model_they_may_have_its_updates() -> None:
    assert _refused(GIVEN) == []
    assert _refused({}, "hessian") == []
