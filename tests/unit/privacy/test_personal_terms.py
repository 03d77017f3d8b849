"""Which jobs may leave silos parts of their own, and the sentences that refuse the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privacy.errors import MalformedMessage
from privacy.personal_terms import REFUSED_WITH_DP, PersonalTerms, own_tensors
from privacy.plan import JobSpec, ServerTerms, TrainingTerms
from privacy.wire.job_envelope import open_job
from sealsum.algorithms import CATALOGUE, training_of
from silo_agent.models.layouts import model_terms
from tests.federation import Federation

FEDERATION = Federation()
KINDS: dict[str, dict[str, Any]] = {
    "fedbn": {},
    "fedper": {"local_param": ("last",)},
    "mixed_intervals": {"local_param": ("last",), "every": 3},
    "per_fedavg": {"learning_rate": 0.1},
    "ditto": {"regular_weight": 0.1, "learning_rate": 0.1, "steps": 2},
}


def training(kind: str, algorithm: str = "fedavg", **changes: Any) -> dict[str, Any]:
    said = {
        "algorithm": algorithm,
        "local_steps": 1,
        "learning_rate": 1.0,
        "server_learning_rate": 1.0,
        "personal": {"kind": kind, **KINDS[kind]},
    }
    return {**said, **changes}


def job(said: dict[str, Any], **changes: Any) -> JobSpec:
    return FEDERATION.job_spec(training=TrainingTerms(**said), model=model_terms("mlp", 2, (3,)), **changes)


@pytest.mark.parametrize("algorithm", ["dp_fedavg", "dp_fedsgd"])
@pytest.mark.parametrize("kind", sorted(REFUSED_WITH_DP))
def test_with_dp_each_kind_is_refused_with_its_reason_and_what_to_do(kind: str, algorithm: str) -> None:
    with pytest.raises(ValidationError) as refused:
        job(training(kind, algorithm))
    assert REFUSED_WITH_DP[kind] in str(refused.value)  # type: ignore[index]
    assert "personalise after training (sealsum silo personalise), or use ditto" in str(refused.value)


@pytest.mark.parametrize("kind", sorted(REFUSED_WITH_DP))
def test_a_silo_that_is_sent_one_refuses_it_with_the_reason(kind: str) -> None:
    """Whoever signs it, whatever the threat models say: nothing that reads it can hold it."""
    sound = job(training("ditto", "dp_fedavg"))
    personal = PersonalTerms(kind=kind, **KINDS[kind])  # type: ignore[arg-type]
    forged = sound.model_copy(update={"training": sound.training.model_copy(update={"personal": personal})})
    with pytest.raises(MalformedMessage, match=REFUSED_WITH_DP[kind][:60]):  # type: ignore[index]
        open_job(FEDERATION.sign_job(forged), FEDERATION.charter)


@pytest.mark.parametrize("algorithm", ["dp_fedavg", "dp_fedsgd"])
def test_ditto_goes_with_dp(algorithm: str) -> None:
    assert job(training("ditto", algorithm)).training.personal is not None


@pytest.mark.parametrize("kind", ["fedper", "mixed_intervals", "per_fedavg", "ditto"])
def test_without_dp_all_go(kind: str) -> None:
    assert job(training(kind), dp=None).training.personal == PersonalTerms(kind=kind, **KINDS[kind])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"local": {"control": "zero"}}, "expected fedavg, uniform or examples weights, no control"),
        ({"weights": "quality"}, "expected fedavg, uniform or examples weights"),
        ({"algorithm": "mifa", "server": {"silos": 4}}, "expected fedavg, uniform or examples weights"),
        (
            {"personal": {"kind": "fedper", "local_param": ("layer1", "layer2")}},
            "expected some tensors to be shared, got all",
        ),
        ({"personal": {"kind": "fedper", "local_param": ("layer9",)}}, "got 'layer9', which no tensor has"),
        ({"personal": {"kind": "fedper"}}, "expected it with fedper or mixed_intervals"),
        ({"personal": {"kind": "fedbn", "every": 3}}, "expected it only with mixed_intervals"),
    ],
)
def test_what_does_not_go_together_is_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        job(
            training("fedper") | {"personal": {"kind": "fedper", "local_param": ("intercept",)}} | changes,
            dp=None,
        )


def test_momentum_would_move_layers_that_are_not_summed() -> None:
    with pytest.raises(ValidationError, match="would go on moving layers"):
        job(training("mixed_intervals", server=ServerTerms(momentum=0.9).model_dump()), dp=None)


def test_terms_without_own_parts_have_the_digest_they_always_had() -> None:
    assert "personal" not in TrainingTerms(**(training("ditto") | {"personal": None})).model_dump()


def test_names_stand_for_tensors() -> None:
    names = ["body.weight", "body.bias", "head.weight", "head.bias"]
    assert own_tensors(names, ["last"]) == {"head.weight", "head.bias"}
    assert own_tensors(names, ["intercept"]) == {"head.bias"}
    assert own_tensors(names, ["body", "head.weight"]) == {"body.weight", "body.bias", "head.weight"}
    with pytest.raises(ValueError, match="got 'bod'"):
        own_tensors(names, ["bod"])


@pytest.mark.parametrize(
    "name", ["fedbn", "fedper", "local_intercept", "moe", "hypernetwork", "mixed_intervals", "per_fedavg"]
)
def test_a_job_file_uses_the_fields_names_and_is_told_the_same_reason(name: str) -> None:
    said = training_of({"algorithm": name}, private=False)
    assert TrainingTerms(**said).personal is not None
    with pytest.raises(ValueError, match="personalise after training") as refused:
        training_of({"algorithm": name}, private=True)
    assert any(sentence in str(refused.value) for sentence in REFUSED_WITH_DP.values())


def test_a_job_file_may_name_what_stays() -> None:
    said = training_of({"algorithm": "fedper", "local_param": ["layer2"]}, private=False)
    assert TrainingTerms(**said).personal == PersonalTerms(kind="fedper", local_param=("layer2",))
    drawn = training_of({"algorithm": "ditto", "regular_weight": 0.7}, private=True)
    terms = TrainingTerms(**drawn)
    assert terms.algorithm == "dp_fedsgd"
    assert terms.personal is not None
    assert terms.personal.regular_weight == 0.7
    assert CATALOGUE["reptile"].private is not None


def test_masks_are_refused_with_dp_and_go_with_their_terms_only() -> None:
    said = training_of({"algorithm": "sparse_masks", "mask_share": 0.3}, private=False)
    terms = TrainingTerms(**said)
    assert (terms.local.mask_share, terms.server.mask_minimum) == (0.3, 2)
    with pytest.raises(ValueError, match="moves whole coordinates in and out"):
        training_of({"algorithm": "sparse_masks"}, private=True)
    for changes in (
        {"server": {"mask_minimum": 1}},
        {"server": {}},
        {"algorithm": "fedavg"},
        {"weights": "examples"},
    ):
        with pytest.raises(ValidationError, match="sparse_masks"):
            job({**said, **changes}, dp=None)
