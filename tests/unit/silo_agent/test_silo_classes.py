"""Jobs of several classes: what a label is, how it is read, which loss and which model go with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.special import log_softmax

from privacy.errors import ConfigurationError
from privacy.schema import ClassLabel, DataSchema, Label, NumericFeature
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.engines.choice import engine_for
from silo_agent.engines.loss import summed_loss
from silo_agent.models.adapters import ADAPTERS, build_model, predict_scores
from silo_agent.models.layouts import initial_vector, model_terms, outputs_for

COLOURS = ("red", "green", "blue")


def schema(label: Label | ClassLabel) -> DataSchema:
    feature = NumericFeature(column="x", low=-1, high=1, impute=0)
    return DataSchema(features=(feature,), label=label, patient_id="patient")


def table(path: Path, *labels: str) -> Path:
    rows = [f"p{number},0.5,{label}" for number, label in enumerate(labels)]
    path.write_text("\n".join(["patient,x,colour", *rows, ""]), encoding="utf-8")
    return path


def test_a_class_is_its_place_in_the_public_list(tmp_path: Path) -> None:
    label = ClassLabel(column="colour", categories=COLOURS)
    records = read_csv_table(table(tmp_path / "t.csv", "blue", "red", "blue"), schema(label), "patient")
    assert records.labels.tolist() == [2.0, 0.0, 2.0]
    assert (records.classes, records.logits) == (3, 3)


def test_a_class_that_the_job_does_not_list_is_refused_without_telling_it(tmp_path: Path) -> None:
    label = ClassLabel(column="colour", categories=COLOURS)
    with pytest.raises(ConfigurationError, match="row 3, column colour: its class is none of the job's: red"):
        read_csv_table(table(tmp_path / "t.csv", "red", "mauve"), schema(label), "patient")


def test_classes_are_distinct() -> None:
    with pytest.raises(ValidationError, match="expected distinct classes"):
        ClassLabel(column="colour", categories=("red", "red"))


def test_binary_labels_are_spelt_as_before() -> None:
    """A digest of every job that exists depends on it."""
    dumped = schema(Label(column="num", threshold=0)).model_dump(mode="json")
    assert dumped["label"] == {"column": "num", "threshold": "0.0"}
    assert isinstance(DataSchema.model_validate(dumped).label, Label)


def three_classes() -> Records:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, 20).astype(np.float32)
    return Records(generator.standard_normal((20, 4)).astype(np.float32), labels, classes=3)


@pytest.mark.parametrize(("adapter", "hidden"), [("logistic", ()), ("mlp", (5,))])
def test_the_loss_of_several_classes_is_the_summed_softmax_cross_entropy(
    adapter: str, hidden: tuple[int, ...]
) -> None:
    terms = model_terms(adapter, 4, hidden, outputs_for(3))
    vector = np.random.default_rng(4).standard_normal(terms.parameters).astype(np.float32)
    records, chosen = three_classes(), np.array([1, 2, 7, 19])
    scores = predict_scores(ADAPTERS[adapter], terms, vector, records.features[chosen])
    assert scores.shape == (4, 3)
    truth = records.labels[chosen].astype(int)
    expected = -log_softmax(scores.astype(np.float64), axis=1)[np.arange(4), truth].sum()
    module = build_model(ADAPTERS[adapter], terms, vector)
    assert summed_loss(module, records, chosen).item() == pytest.approx(expected, rel=1e-5)


def test_each_record_is_clipped_in_the_sum_of_a_softmax_model() -> None:
    terms = model_terms("logistic", 4, (), 3)
    module = build_model(ADAPTERS["logistic"], terms, initial_vector(terms, 0)).train()
    records, clip = three_classes(), 0.5
    rows = np.hstack([records.features, np.ones((20, 1))]).astype(np.float64)
    errors = 1 / 3 - np.eye(3)[records.labels.astype(int)]
    gradients = errors[:, :, None] * rows[:, None, :]
    norms = np.sqrt((gradients**2).sum((1, 2)))
    total = (gradients * (clip / np.maximum(norms, clip))[:, None, None]).sum(0)
    expected = np.concatenate([total[:, :4].ravel(), total[:, 4]])
    got = engine_for(module, 4).clipped_sum(records, np.arange(20), clip)
    assert np.allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(("classes", "outputs"), [(2, 3), (3, 1), (3, 4)])
def test_a_model_with_another_number_of_outputs_is_refused(classes: int, outputs: int) -> None:
    terms = model_terms("logistic", 4, (), outputs)
    module = build_model(ADAPTERS["logistic"], terms, initial_vector(terms, 0))
    labels = np.zeros(20, dtype=np.float32)
    records = Records(three_classes().features, labels, classes=classes)
    expected = "1 outputs" if classes == 2 else "3 outputs"
    with pytest.raises(ConfigurationError, match=f"model: expected {expected} a record"):
        summed_loss(module, records, np.arange(20))


def test_the_layout_alone_tells_how_many_outputs_a_built_in_model_has() -> None:
    terms = model_terms("mlp", 4, (5,), 3)
    assert ADAPTERS["mlp"].layout(terms) == terms.layout
    module = ADAPTERS["mlp"].build(terms)
    assert module(torch.zeros(2, 4)).shape == (2, 3)
