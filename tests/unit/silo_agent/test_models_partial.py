"""Partial claims: only what a job names is trained, sent and noised; the base is the one that it names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.ids import PartyId, SiloId
from privacy.model_terms import FrozenBase
from privacy.plan import DpTerms, JobSpec, ModelTerms, TrainingTerms, VectorTerms
from privacy.update import model_bytes, model_digest, split_tensors
from sealsum.simulator.federation import Federation as InMemory
from sealsum.simulator.plan import RoundTerms
from silo_agent.data.records import Records
from silo_agent.engines.choice import engine_for
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.files import model_file
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.models.partial import Partial, on_base
from silo_agent.models.partial_layouts import partial_start, partial_terms
from silo_agent.queries.question import adapter_for
from silo_agent.settings import read_settings
from tests.federation import Federation

WHOLE = model_terms("mlp", 6, (9, 5))
WEIGHTS = initial_vector(WHOLE, 3)
ADAPTER = Partial(ADAPTERS["mlp"], WEIGHTS)


def _terms(
    trainable: tuple[str, ...] = (), low_rank: tuple[str, ...] = (), rank: int | None = None
) -> ModelTerms:
    return partial_terms(WHOLE, WEIGHTS, "base", trainable, low_rank, rank)


def _records(count: int) -> Records:
    drawn = np.random.default_rng(0)
    features = drawn.uniform(-1, 1, (count, 6)).astype(np.float32)
    return Records(features, (np.arange(count) % 2).astype(np.float32))


CASES = {
    "last layer": _terms(("layer3.*",)),
    "biases": _terms(("*.bias",)),
    "thin matrices": _terms((), ("layer1", "layer2"), 2),
    "both": _terms(("layer3.*",), ("layer2",), 3),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_trains_is_in_the_vector_and_it_begins_as_the_base(case: str) -> None:
    terms = CASES[case]
    start = partial_start(terms, WEIGHTS, 0)
    assert start.size == terms.parameters < WHOLE.parameters
    features = _records(8).features
    np.testing.assert_allclose(
        predict_scores(ADAPTER, terms, start, features),
        predict_scores(ADAPTERS["mlp"], WHOLE, WEIGHTS, features),
        rtol=1e-6,
    )


@pytest.mark.parametrize("case", CASES)
def test_the_engine_sums_what_opacus_sums_and_autograd_finds(case: str) -> None:
    terms = CASES[case]
    start = partial_start(terms, WEIGHTS, 0) + np.float32(0.1)
    records = _records(10)
    engine = engine_for(build_model(ADAPTER, terms, start).train(), 6, 16)
    assert engine.name == "book_keeping"
    got = engine.clipped_sum(records, np.arange(10), 0.05)
    oracle = OpacusHooks(build_model(ADAPTER, terms, start).double().train())
    expected = oracle.clipped_sum(records, np.arange(10), 0.05)
    assert got.size == terms.parameters
    assert np.linalg.norm(got - expected) <= 1e-5 * np.linalg.norm(expected)


def test_the_base_stays_whatever_is_loaded() -> None:
    terms = CASES["both"]
    module = build_model(ADAPTER, terms, np.full(terms.parameters, 7.0, dtype=np.float32))
    own = split_tensors(WHOLE, WEIGHTS)
    held = dict(module.named_buffers())
    for name in ("layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias"):
        assert torch.equal(held[name], torch.from_numpy(own[name].copy()))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"trainable": ("layer4.*",)}, r"trainable: expected tensors of the base .* got layer4"),
        ({"low_rank": ("tanh1",), "rank": 2}, "low_rank: expected linear layers"),
        ({"trainable": ("layer1.bias",), "low_rank": ("layer1",), "rank": 2}, "none of a layer in low_rank"),
        ({}, "got neither"),
        ({"low_rank": ("layer1",)}, "rank: expected with low_rank"),
    ],
)
def test_names_that_fit_nothing_are_refused(asked: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises((ConfigurationError, ValueError), match=message):
        _terms(**asked)  # type: ignore[arg-type]  # names of arguments


def test_terms_without_a_base_keep_their_digest() -> None:
    assert "base" not in WHOLE.model_dump()
    assert CASES["both"].architecture != CASES["last layer"].architecture


def test_a_silo_trains_on_its_own_copy_of_the_base_and_on_no_other(tmp_path: Path) -> None:
    terms = CASES["last layer"]
    path = tmp_path / "base.safetensors"
    path.write_bytes(model_file(WHOLE, WEIGHTS, {}))
    found = on_base(ADAPTERS["mlp"], terms, {"base": path})
    assert found.layout(terms) == terms.layout
    with pytest.raises(PolicyRefusal, match="no public model of that name"):
        on_base(ADAPTERS["mlp"], terms, {"other": path})
    swapped = tmp_path / "swapped.safetensors"
    swapped.write_bytes(model_file(WHOLE, WEIGHTS + np.float32(1e-3), {}))
    with pytest.raises(PolicyRefusal, match="other weights than the job's"):
        on_base(ADAPTERS["mlp"], terms, {"base": swapped})
    assert on_base(ADAPTERS["mlp"], WHOLE, {}) is ADAPTERS["mlp"]


def test_a_base_needs_a_digest_and_something_that_trains() -> None:
    with pytest.raises(ValueError, match="weights"):
        FrozenBase(name="base", weights="abc", layout=WHOLE.layout, trainable=("*",))


def test_a_job_on_a_base_finds_it_where_silo_yaml_says(tmp_path: Path) -> None:
    whole = model_terms("mlp", 2, (4,))
    weights = initial_vector(whole, 0)
    (tmp_path / "base.safetensors").write_bytes(model_file(whole, weights, {}))
    (tmp_path / "silo.yaml").write_text(
        "aggregator_url: https://a.example\nthreat_model: strict\n"
        "datasets: {heart: {path: t.csv, purpose: study}}\npublic_models: {base: base.safetensors}\n"
    )
    settings = read_settings(tmp_path / "silo.yaml")
    assert settings.public_models == {"base": tmp_path / "base.safetensors"}
    terms = partial_terms(whole, weights, "base", ("layer2.*",), ("layer1",), 2)
    first = model_digest(terms, [model_bytes(partial_start(terms, weights, 0))])
    job = Federation().job_spec(model=terms, initial_model=first)
    assert JobSpec.model_validate_json(job.model_dump_json()) == job
    adapter = adapter_for(job, settings.model_adapters, settings.public_models)
    assert isinstance(adapter, Partial)
    with pytest.raises(PolicyRefusal, match=r"model\.base"):
        adapter_for(job, settings.model_adapters)


def test_silos_train_the_part_and_the_server_steps_it() -> None:
    """Through the federation in memory, with the agent's own algorithm and noise."""
    terms, records = CASES["both"], _records(60)
    training = TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=0.5
    )
    dp = DpTerms(unit="record", sample_rate=1, noise_multiplier=1, clip_l2=1, normaliser=60, delta=1e-5)
    silos = {SiloId(PartyId(name)): records for name in "ab"}
    vector = VectorTerms(coordinate_bound=4.0, scale_bits=24)
    start = partial_start(terms, WEIGHTS, 0)
    trained = InMemory(RoundTerms(terms, training, dp, vector), ADAPTER, silos, 2).train(start)
    assert trained.shape == start.shape
    assert np.all(trained != start)
