"""A name of the catalogue makes a job by itself, and is refused with its reason where it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from privacy.errors import ConfigurationError
from privacy.plan import JobSpec, LocalTerms, SchemeName
from sealsum.algorithms import CATALOGUE, GRADIENT_CLIP
from sealsum.algorithms_personal import PERSONAL_ROWS
from sealsum.cli import cli
from sealsum.job_file import JobFile
from tests.federation import Federation

ROOT = Path(__file__).parents[3]
FEDERATION = Federation()
SHARED = {name: row for name, row in CATALOGUE.items() if name not in PERSONAL_ROWS}
"""What leaves a silo no model of its own; the others ask for models that have such a part."""
WITHOUT = [name for name, row in SHARED.items() if row.terms is not None]
PRIVATE = [name for name, row in SHARED.items() if row.private is not None]
DP: dict[str, Any] = {
    "unit": "patient",
    "sample_rate": "0.2",
    "noise_multiplier": "2.0",
    "clip_l2": "1.0",
    "normaliser": "40",
    "delta": "1e-5",
}


def job(training: dict[str, Any], dp: Any = "none", **changes: Any) -> JobFile:
    """A job file that says of its training only this."""
    return JobFile.model_validate(
        {
            "job": "heart",
            "purpose": "test",
            "dataset": "cardio",
            "data": {
                "features": [{"kind": "numeric", "column": "age", "low": "20", "high": "90", "impute": "55"}],
                "label": {"column": "num", "threshold": "0"},
                "patient_id": "patient",
            },
            "model": {"adapter": "logistic"},
            "training": training,
            "dp": dp,
            "rounds": 5,
            "min_silos": 3,
            **changes,
        }
    )


def signed(asked: JobFile) -> JobSpec:
    """The job that is signed."""
    return asked.spec(FEDERATION.charter, asked.first_model())


@pytest.mark.parametrize("name", WITHOUT)
def test_a_name_alone_makes_a_job_without_dp(name: str) -> None:
    row, spec = CATALOGUE[name], signed(job({"algorithm": name}))
    assert row.terms is not None
    assert spec.training.algorithm == row.terms["algorithm"]
    assert tuple(vector.name for vector in spec.further) == row.further
    clip = None if name == "newton" else GRADIENT_CLIP
    assert spec.training.local.gradient_clip == clip, "gradients are clipped unless a job says otherwise"


@pytest.mark.parametrize("name", PRIVATE)
def test_a_name_makes_a_job_with_dp(name: str) -> None:
    row = CATALOGUE[name]
    assert row.private is not None
    steps = {"local_steps": 2, "learning_rate": 0.1} if row.private["algorithm"] == "dp_fedavg" else {}
    spec = signed(job({"algorithm": name, **steps}, DP))
    assert spec.training.algorithm == row.private["algorithm"]
    assert spec.training.local.gradient_clip is None, "each patient's is clipped"


@pytest.mark.parametrize("name", [name for name, row in SHARED.items() if row.private is None])
def test_what_is_unsound_with_dp_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValidationError, match="dp: expected none with") as refusal:
        job({"algorithm": name}, DP)
    assert CATALOGUE[name].refused in str(refusal.value)
    assert "use dp_" in CATALOGUE[name].refused, "and with the sound way"


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"algorithm": "dp_fedavg", "local": {"gradient_clip": 1.0}}, "clipped to dp.clip_l2"),
        ({"algorithm": "dp_fedavg", "batch_size": 8}, "a batch is a Poisson sample"),
        ({"algorithm": "dp_fedavg", "weights": "quality"}, "no noise covers their sum"),
        ({"algorithm": "dp_fedavg", "control": "warm"}, "which nothing clips, noises or charges"),
        ({"algorithm": "dp_fedsgd", "proximal_mu": 0.1}, "corrections cancel in the sum"),
        ({"algorithm": "dp_fedsgd", "control": "zero"}, "corrections cancel in the sum"),
    ],
)
def test_signed_terms_say_why_they_are_refused_with_dp(training: dict[str, Any], said: str) -> None:
    steps = {} if training["algorithm"] == "dp_fedsgd" else {"local_steps": 2, "learning_rate": 0.1}
    with pytest.raises(ConfigurationError, match=said):
        signed(job({**steps, **training}, DP))


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"algorithm": "scaffold", "server_momentum": 0.9}, "silos read the mean update off two models"),
        ({"algorithm": "scaffold", "weights": "quality"}, "sum to zero only under the weights"),
        ({"algorithm": "fedavg", "weights": "agnostic"}, "gamma: expected more than 0"),
        ({"algorithm": "fedavg", "q": 1.0}, r"local\.q above 0 with qfedavg"),
        ({"algorithm": "newton", "local_steps": 2}, "local_steps 1"),
        ({"algorithm": "mifa", "weights": "examples"}, "uniform weights"),
    ],
)
def test_terms_that_do_not_go_together_are_refused(training: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        signed(job(training))


@pytest.mark.parametrize("scheme", get_args(SchemeName))
@pytest.mark.parametrize("name", WITHOUT)
def test_every_scheme_carries_it_or_it_is_refused_by_name(name: str, scheme: str) -> None:
    asked = job({"algorithm": name}, scheme=scheme)
    if CATALOGUE[name].further and scheme.startswith("threshold_"):
        with pytest.raises(ConfigurationError, match=f"expected none with {scheme}"):
            signed(asked)
    else:
        assert signed(asked).scheme == scheme


def test_parameters_have_the_fields_own_names() -> None:
    training = signed(
        job(
            {
                "algorithm": "fedyogi",
                "num_updates": 7,
                "eta_l": 0.2,
                "eta": 0.03,
                "beta_1": 0.8,
                "tau": 0.01,
                "proximal_mu": 0.5,
                "gradient_clip": "none",
            }
        )
    ).training
    assert (training.local_steps, training.learning_rate, training.server_learning_rate) == (7, 0.2, 0.03)
    assert (training.server.optimizer, training.server.beta_1, training.server.tau) == ("yogi", 0.8, 0.01)
    assert training.local == LocalTerms(proximal_mu=0.5)


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"training\.server_momentum: expected one of it"):
        job({"server": {"momentum": 0.5}, "server_momentum": 0.9})


def test_a_model_too_large_for_its_hessian_is_refused() -> None:
    features = [
        {"kind": "numeric", "column": f"x{number}", "low": "0", "high": "1", "impute": "0"}
        for number in range(44)
    ]
    data = {"features": features, "label": {"column": "num", "threshold": "0"}, "patient_id": "patient"}
    with pytest.raises(ConfigurationError, match="at most 44 parameters with newton, got 45"):
        signed(job({"algorithm": "newton"}, data=data))


def test_mifa_averages_over_the_silos_of_the_charter() -> None:
    assert signed(job({"algorithm": "mifa"})).training.server.silos == len(FEDERATION.charter.silos)


def test_terms_signed_before_there_were_such_fields_keep_their_digest() -> None:
    spelt = json.loads(FEDERATION.job_spec().model_dump_json())["training"]
    assert "local" not in spelt
    assert "holdout" not in spelt
    assert {"ridge", "silos"}.isdisjoint(spelt["server"])


def test_every_algorithm_is_listed_with_its_reason_and_in_the_docs() -> None:
    rows = json.loads(CliRunner().invoke(cli, ["algorithm", "list", "--json"]).stdout)
    assert [row["name"] for row in rows] == list(CATALOGUE)
    page = " ".join(CliRunner().invoke(cli, ["algorithm", "list"]).stdout.split())
    docs = (ROOT / "docs" / "algorithms.md").read_text("utf-8")
    for name, row in CATALOGUE.items():
        assert f"{name} " in page
        assert " ".join(row.refused.split()) in page
        assert f"`{name}`" in docs or name in PERSONAL_ROWS, "docs/personalisation.md has theirs"
