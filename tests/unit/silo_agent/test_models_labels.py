"""What a job may predict: how each label is spelt, read and trained on; which loss DP refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from privacy.errors import ConfigurationError, Unprocessable
from privacy.labels import (
    AnyLabel,
    ClassLabel,
    Label,
    LabelKind,
    MaskLabel,
    RealLabel,
    SurvivalLabel,
    classes_of,
)
from privacy.plan import JobSpec
from privacy.schema import DataSchema, NumericFeature
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.engines.choice import engine_for
from silo_agent.engines.loss import losses, mean_loss, record_losses, summed_loss
from tests.federation import Federation
from tests.unit.silo_agent.engine_models import clipped_one_by_one

PIXELS = tuple(f"m{number}" for number in range(16))
SURVIVAL = SurvivalLabel(time="days", event="dead", horizon=100)
SAFE: list[LabelKind] = ["real", "mask", "exponential"]


def schema(label: AnyLabel, **changes: Any) -> DataSchema:
    feature = NumericFeature(column="age", low=20, high=90, impute=55)
    return DataSchema(features=(feature,), label=label, patient_id="patient", **changes)


def records_of(kind: LabelKind, count: int = 12, width: int = 3, seed: int = 0) -> Records:
    drawn = np.random.default_rng(seed)
    features = drawn.uniform(-1, 1, (count, width)).astype(np.float32)
    survival = np.column_stack([drawn.integers(1, 8, count) / 8, drawn.integers(0, 2, count)])
    labels = {
        "real": drawn.uniform(-1, 1, count),
        "mask": drawn.integers(0, 2, (count, 16)),
        "exponential": survival,
        "cox": survival,
    }[kind]
    return Records(features, labels.astype(np.float32), kind=kind)


def module_of(records: Records, seed: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, records.logits)).double()


# --- how they are spelt ---


@pytest.mark.parametrize(
    ("label", "digest"),
    [
        (
            Label(column="num", threshold=0),
            "ed9910efd13c70da34b65b512808d01bfc998391b0abcb51733852908acde99a",
        ),
        (
            ClassLabel(column="num", categories=("a", "b", "c")),
            "f81d16aad547109cbbd5e65d6d6deb34b75ed2fcd28d9838ac91d2550d18f5b1",
        ),
    ],
)
def test_digests_of_earlier_schemas_hold(label: AnyLabel, digest: str) -> None:
    assert schema(label).digest == digest


@pytest.mark.parametrize(
    "label",
    [
        Label(column="num", threshold=0),
        ClassLabel(column="num", categories=("a", "b")),
        RealLabel(column="num", low=0, high=9),
        MaskLabel(pixels=PIXELS),
        SURVIVAL,
    ],
)
def test_every_label_is_read_again_as_what_it_was(label: AnyLabel) -> None:
    assert DataSchema.model_validate_json(schema(label).model_dump_json()).label == label


def test_what_is_no_label_is_told_which_there_are() -> None:
    with pytest.raises(ValidationError, match="expected a column with threshold"):
        DataSchema.model_validate(schema(SURVIVAL).model_dump() | {"label": {"column": "num"}})


def test_label_columns_are_nobody_elses() -> None:
    with pytest.raises(ValidationError, match="neither the label nor the patient id"):
        schema(SurvivalLabel(time="age", event="dead", horizon=1))
    with pytest.raises(ValidationError, match="label: expected distinct columns"):
        schema(SurvivalLabel(time="days", event="days", horizon=1))
    with pytest.raises(ValidationError, match="expected low < high"):
        RealLabel(column="num", low=1, high=1)


def test_only_classes_are_counted() -> None:
    assert classes_of(Label(column="num", threshold=0)) == 2
    with pytest.raises(Unprocessable, match=r"expected a label of classes .*, got a number"):
        classes_of(RealLabel(column="num", low=0, high=1))


# --- how they are read ---


def table(path: Path, header: str, *rows: str) -> Path:
    lines = [f"patient,age,{header}", *(f"p{number},55,{row}" for number, row in enumerate(rows)), ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_numbers_are_mapped_from_their_public_range_and_clamped(tmp_path: Path) -> None:
    label = RealLabel(column="stay", low=0, high=20)
    records = read_csv_table(table(tmp_path / "t.csv", "stay", "0", "5", "99"), schema(label), "patient")
    assert records.labels.tolist() == [-1.0, -0.5, 1.0]
    assert (records.kind, records.logits) == ("real", 1)


def test_a_time_beyond_the_horizon_is_censored_there(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "days,dead", "50,1", "100,1", "101,1", "7,0")
    records = read_csv_table(path, schema(SURVIVAL), "patient")
    assert np.allclose(records.labels, [[0.5, 1], [1, 1], [1, 0], [0.07, 0]])
    assert (records.kind, records.logits) == ("cox", 1)


def test_a_mask_is_a_column_a_pixel(tmp_path: Path) -> None:
    mask = ["0", "1"] * 8
    path = table(tmp_path / "t.csv", ",".join(PIXELS), ",".join(mask))
    records = read_csv_table(path, schema(MaskLabel(pixels=PIXELS)), "patient")
    assert records.labels.tolist() == [[0.0, 1.0] * 8]
    assert (records.kind, records.logits) == ("mask", 16)


@pytest.mark.parametrize(
    ("label", "header", "row", "message"),
    [
        (RealLabel(column="stay", low=0, high=1), "stay", "", "row 2, column stay: expected a number$"),
        (SURVIVAL, "days,dead", "-1,1", "row 2, column days: expected a time of 0 or more$"),
        (SURVIVAL, "days,dead", "9,2", "row 2, column dead: expected 0 or 1$"),
        (SURVIVAL, "days,dead", "inf,1", "row 2, column days: expected a finite number$"),
        (MaskLabel(pixels=PIXELS), ",".join(PIXELS), ",".join(["0.5"] * 16), "column m0: expected 0 or 1$"),
    ],
)
def test_a_cell_that_is_no_such_label_is_refused_without_telling_it(
    tmp_path: Path, label: AnyLabel, header: str, row: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_csv_table(table(tmp_path / "t.csv", header, row), schema(label), "patient")


def test_records_refuse_labels_of_another_kind() -> None:
    with pytest.raises(ConfigurationError, match="expected one label of a mask for each record"):
        Records(np.zeros((3, 2), dtype=np.float32), np.zeros(3, dtype=np.float32), kind="mask")


def test_chosen_records_keep_their_kind() -> None:
    records = records_of("mask")
    chosen = records.rows(np.array([3, 1]))
    assert chosen.kind == "mask"
    assert np.array_equal(chosen.labels, records.labels[[3, 1]])


# --- how they are trained on ---


def test_losses_are_what_their_formulas_say() -> None:
    drawn = np.random.default_rng(2)
    outputs = drawn.standard_normal((12, 1))
    real, survival, mask = (records_of(kind).labels.astype(np.float64) for kind in ("real", "cox", "mask"))
    logits = drawn.standard_normal((12, 16))
    chances = 1 / (1 + np.exp(-logits))
    expected = {
        "real": (outputs[:, 0] - real) ** 2,
        "exponential": survival[:, 0] * np.exp(outputs[:, 0]) - survival[:, 1] * outputs[:, 0],
        "mask": 1 - (2 * (chances * mask).sum(1) + 1) / (chances.sum(1) + mask.sum(1) + 1),
    }
    for kind, labels, given in (
        ("real", real, outputs),
        ("exponential", survival, outputs),
        ("mask", mask, logits),
    ):
        got = record_losses(torch.from_numpy(given), torch.from_numpy(labels), kind)  # type: ignore[arg-type]
        assert np.allclose(got.numpy(), expected[kind]), kind


@pytest.mark.parametrize("kind", SAFE)
@pytest.mark.parametrize("units", [None, np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 6, 7])])
def test_each_record_of_every_private_kind_is_clipped(
    kind: LabelKind, units: np.ndarray[tuple[int], np.dtype[np.int64]] | None
) -> None:
    plain = records_of(kind)
    records = Records(plain.features, plain.labels, units=units, kind=kind)
    module, sample = module_of(records), np.arange(records.unit_count)
    got = engine_for(module, 3).clipped_sum(records, sample, 0.2)
    assert np.allclose(got, clipped_one_by_one(module, records, sample, 0.2), atol=1e-7)


def _partial_likelihood(hazards: Any, labels: Any) -> float:
    """−log of it, event by event, as Breslow 1974 has it."""
    total = 0.0
    for one in np.flatnonzero(labels[:, 1]):
        at_risk = labels[:, 0] >= labels[one, 0]
        total -= hazards[one] - np.log(np.exp(hazards[at_risk]).sum())
    return total


@pytest.mark.parametrize("seed", range(4))
def test_the_cox_loss_is_the_partial_likelihood_with_ties(seed: int) -> None:
    records = records_of("cox", 20, seed=seed)
    module = module_of(records)
    chosen = np.array([0, 3, 4, 9, 10, 11, 17, 19])
    hazards = module(torch.from_numpy(records.features).double()).detach().numpy()[:, 0]
    expected = _partial_likelihood(hazards[chosen], records.labels[chosen]) / len(chosen)
    assert mean_loss(module, records, chosen).item() == pytest.approx(expected)


def test_the_mean_loss_of_other_kinds_is_the_mean_of_their_losses() -> None:
    records, chosen = records_of("real"), np.array([1, 5, 6])
    module = module_of(records)
    assert mean_loss(module, records, chosen).item() == pytest.approx(
        losses(module, records, chosen).mean().item()
    )


def test_no_engine_is_given_a_cox_loss_to_clip() -> None:
    records = records_of("cox")
    engine = engine_for(module_of(records), 3)
    with pytest.raises(ConfigurationError, match="has no loss of one record, so none can be clipped"):
        engine.clipped_sum(records, np.arange(3), 1.0)
    with pytest.raises(ConfigurationError, match="write loss: exponential"):
        summed_loss(engine.module, records, np.arange(3))


def _survival_job(label: SurvivalLabel, **changes: Any) -> JobSpec:
    federation = Federation()
    base = federation.job_spec()
    data = base.data.model_copy(update={"label": label})
    return federation.job_spec(data=data, **changes)


def test_a_job_under_dp_is_refused_the_cox_loss_and_told_what_to_do() -> None:
    with pytest.raises(ValidationError, match=r"one patient changes the gradients of others.*write loss"):
        _survival_job(SURVIVAL)
    assert _survival_job(SURVIVAL.model_copy(update={"loss": "exponential"})).dp is not None


def test_metrics_of_training_are_refused_an_accuracy_of_what_are_no_classes() -> None:
    label = SURVIVAL.model_copy(update={"loss": "exponential"})
    base = Federation().job_spec()
    assert base.dp is not None
    metrics = {"names": ["accuracy"], "noise_multiplier": 5.0}
    dp = type(base.dp).model_validate(base.dp.model_dump() | {"metrics": metrics})
    with pytest.raises(ValidationError, match="expected accuracy with a label of classes only"):
        _survival_job(label, dp=dp)


def test_clipping_each_event_of_a_cox_loss_would_not_bound_what_one_patient_changes() -> None:
    """Why it is refused: clip the gradient of every event's own term, and add one patient with no event.

    She is at risk at every event before her time, so that every term changes: the sum moves by many clips.
    """
    records = records_of("cox", 60, seed=3)
    labels = np.array(records.labels)
    labels[:, 1] = 1.0
    clip = 0.05

    def clipped(features: Any, told: Any) -> Any:
        module = nn.Linear(3, 1).double()
        nn.init.zeros_(module.weight)
        total = np.zeros(3)
        for one in np.flatnonzero(told[:, 1]):
            hazards = module(torch.from_numpy(features).double())[:, 0]
            at_risk = torch.from_numpy(told[:, 0] >= told[one, 0])
            term = torch.logsumexp(hazards[at_risk], 0) - hazards[one]
            (gradient,) = torch.autograd.grad(term, [module.weight])
            flat = gradient.numpy()[0]
            total += flat * min(1.0, clip / max(float(np.linalg.norm(flat)), 1e-12))
        return total

    without = clipped(records.features, labels)
    outlier = np.vstack([records.features, [[1.0, 1.0, 1.0]]]).astype(np.float32)
    there = clipped(outlier, np.vstack([labels, [[1.0, 0.0]]]).astype(np.float32))
    assert np.linalg.norm(there - without) > 3 * clip
