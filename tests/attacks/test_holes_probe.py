"""A job's schema as a question: a value that it leaves out must not be told by whether a silo takes part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.fixed_features import OrientedGradients, Scattering, Views
from privacy.labels import RealLabel, SurvivalLabel
from privacy.plan import DpTerms, JobSpec, TrainingTerms
from privacy.query_terms import (
    AccuracyMetric,
    AucMetric,
    ColumnSkewStatistic,
    CountStatistic,
    HistogramStatistic,
    LabelSkewStatistic,
    LabelStatistic,
    LossMetric,
    MeanStatistic,
    SizeSkewStatistic,
    StatisticsTerms,
    VarianceStatistic,
)
from privacy.schema import CategoricalFeature, ClassLabel, DataSchema, Label, NumericFeature
from privacy.update import model_digest
from sealsum.queries.file import EvaluationRequest
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.misfits import PassedOver, Refused
from silo_agent.data.records import Records, assert_listed
from silo_agent.dataset_settings import DatasetSettings
from silo_agent.datasets import Datasets
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.queries.question import schema_read
from tests.federation import Federation
from tests.query_cohort import SMALL, answered, asked
from tests.unit.silo_agent.loopback import Loopback, patients, run_agent

AGE = NumericFeature(column="age", low=0, high=100, impute=50, indicator=True)
SEX = CategoricalFeature(column="sex", categories=("f", "m"), indicator=True)
HEADER = "patient,age,sex,stage,days,dead,note"
OTHERS = ["p1,50,f,1,3,0,-", "p2,60,m,2,9,1,-", "p3,70,f,1,8,0,-"]
BINARY = Label(column="stage", threshold=1)
PLAIN = TrainingTerms(algorithm="fedavg", local_steps=2, learning_rate=0.5, server_learning_rate=1.0)
SURVIVAL = SurvivalLabel(time="days", event="dead", horizon=9, loss="exponential")
STAGES = ClassLabel(column="stage", categories=("1", "2"))
PROBES: dict[str, tuple[str, Any]] = {
    "a category that is not listed": ("rare,40,x,1,3,0,-", BINARY),
    "a number that is none": ("rare,old,f,1,3,0,-", BINARY),
    "a number that is not finite": ("rare,nan,f,1,3,0,-", BINARY),
    "a class that is not listed": ("rare,40,f,3,3,0,-", STAGES),
    "a label that is none": ("rare,40,f,,3,0,-", BINARY),
    "an outcome that is none": ("rare,40,f,big,3,0,-", RealLabel(column="stage", low=0, high=4)),
    "a time below 0": (
        "rare,40,f,1,-3,0,-",
        SURVIVAL,
    ),
    "an event that is none": (
        "rare,40,f,1,3,7,-",
        SURVIVAL,
    ),
    "a second record": ("rare,40,f,1,3,0,-\nrare,41,f,1,3,0,-", BINARY),
    "nobody's record": (",40,f,1,3,0,-", BINARY),
    "a row of another length": ("rare,40", BINARY),
}


def _schema(label: Any = BINARY, **changes: Any) -> DataSchema:
    return DataSchema(**{"features": (AGE, SEX), "label": label, "patient_id": "patient", **changes})


def _job(schema: DataSchema, **changes: Any) -> JobSpec:
    return Federation().job_spec(data=schema, model=model_terms("logistic", schema.width), **changes)


def _read(folder: Path, rows: list[str], job: JobSpec, least: int = 1) -> Records:
    folder.mkdir()
    path = folder / "cardio.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    dataset = DatasetSettings(path=str(path), purpose=("test",), patient_id="patient", min_records=1)
    return Datasets().read(dataset, job, least)


@pytest.mark.parametrize("probe", PROBES)
def test_a_value_that_a_job_leaves_out_neither_refuses_it_nor_moves_anybody_elses_record(
    tmp_path: Path, probe: str
) -> None:
    row, label = PROBES[probe]
    job = _job(_schema(label))
    with_her = _read(tmp_path / "with", [OTHERS[0], row, *OTHERS[1:]], job)
    without = _read(tmp_path / "without", OTHERS, job)
    others = [place for place, name in enumerate(with_her.patients) if name != "rare"]
    assert tuple(with_her.patients[place] for place in others) == without.patients
    np.testing.assert_array_equal(with_her.features[others], without.features)
    np.testing.assert_array_equal(with_her.labels[others], without.labels)
    assert with_her.unit_count - without.unit_count in (0, 1)
    # What the probe reads off where misfits are refused, as they were.
    with pytest.raises(ConfigurationError):
        read_csv_table(tmp_path / "with" / "cardio.csv", _schema(label), "patient", 1, Refused())


def test_without_dp_what_does_not_fit_is_still_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="row 2, column sex: its category is none of the job's"):
        _read(tmp_path / "a", ["rare,40,x,1,3,0,-"], _job(_schema(), dp=None, training=PLAIN))


def test_a_cell_without_a_place_counts_as_missing(tmp_path: Path) -> None:
    records = _read(tmp_path / "a", ["p1,old,x,1,3,0,-", "p2,,,1,3,0,-"], _job(_schema()))
    np.testing.assert_array_equal(records.features[0], records.features[1])
    np.testing.assert_array_equal(records.features[0], [0, 1, 0, 0, 1])


@pytest.mark.parametrize(
    "changes",
    [
        {"label": ClassLabel(column="stage", categories=("8", "9"))},
        {"holdout": 0.9},
        {"label": RealLabel(column="note", low=0, high=1)},
        {"records_per_unit": 3},
    ],
)
@pytest.mark.parametrize("least", [3, 4])
def test_no_term_of_a_job_moves_the_answer_to_whether_a_silo_is_large_enough(
    tmp_path: Path, changes: dict[str, Any], least: int
) -> None:
    label, holdout = changes.get("label", BINARY), changes.get("holdout", 0.0)
    plain = _job(_schema())
    assert plain.dp is not None
    job = _job(
        _schema(label),
        training=plain.training.model_copy(update={"holdout": holdout}),
        dp=DpTerms.model_validate(
            plain.dp.model_dump() | {"records_per_unit": changes.get("records_per_unit", 1)}
        ),
    )
    answers = []
    for number, one in enumerate((plain, job)):
        try:
            _read(tmp_path / str(number), OTHERS, one, least)
            answers.append("taken")
        except PolicyRefusal as refusal:
            answers.append(refusal.findings[0].rule)
    assert answers == [["taken"] * 2, ["records.minimum"] * 2][least - 3]


def test_records_that_nobody_counted_are_not_enough() -> None:
    records = Records(np.zeros((9, 1), np.float32), np.zeros(9, np.float32))
    with pytest.raises(PolicyRefusal):
        assert_listed(records, 1)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


def _sent(servers: Loopback) -> dict[str, list[int]]:
    """Every message but the log's, by what it was sent to and how long it is."""
    sent = {path: [len(body) for body in bodies] for path, bodies in servers.uploads.items()}
    sent["refusals"] = [len(one.model_dump_json()) for one in servers.refusals]
    sent["readiness"] = [len(one.model_dump_json()) for one in servers.readiness]
    servers.uploads.clear()
    servers.refusals.clear()
    servers.readiness.clear()
    servers.results.clear()
    return sent


@pytest.mark.parametrize("value", ["n/a", "94"])
def test_what_a_silo_sends_is_the_same_with_and_without_the_patient_whose_value_is_left_out(
    servers: Loopback, tmp_path: Path, value: str
) -> None:
    """Every age is listed but hers, and her label is none: all that the servers see is compared."""
    rows = patients(80).replace(",94,", ",95,").splitlines()
    ages = tuple(str(age) for age in range(20, 90))
    features = (
        CategoricalFeature(column="age", categories=ages),
        NumericFeature(column="pressure", low=0, high=300, impute=120),
    )
    terms = model_terms("logistic", len(ages) + 1)
    raw = initial_vector(terms, 1).tobytes()
    digest = model_digest(terms, [raw])
    servers.models[digest] = raw
    data = servers.job().data.model_copy(update={"features": features})
    job = servers.federation.job_spec(model=terms, initial_model=digest, data=data, rounds=1)
    servers.open_round(job)
    seen = []
    for name, hers in (("without", []), ("with", [f"rare,{value},120,unknown", f"rarer,{value},120,1"])):
        (tmp_path / name).mkdir()
        config = servers.silo_files(tmp_path / name, "\n".join([*rows, *hers]) + "\n")
        assert run_agent(config) == 0
        seen.append(_sent(servers))
    assert json.dumps(seen[0], sort_keys=True) == json.dumps(seen[1], sort_keys=True)
    assert not seen[0]["refusals"]
    assert seen[0]


EVERY_STATISTIC = StatisticsTerms(
    statistics=(
        CountStatistic(share=3),
        LabelStatistic(),
        MeanStatistic(column="age"),
        VarianceStatistic(column="age"),
        HistogramStatistic(column="age", cuts=(40, 50)),
        HistogramStatistic(column="sex", by_label=True),
    )
)
SKEWS = StatisticsTerms(
    statistics=(
        LabelSkewStatistic(least=10),
        SizeSkewStatistic(most=1000),
        ColumnSkewStatistic(column="age"),
        ColumnSkewStatistic(column="sex"),
    )
)
METRICS = EvaluationRequest(
    adapter="logistic", metrics=(LossMetric(cap=2), AccuracyMetric(), AucMetric(bins=5))
)


def _nobody(tmp_path: Path, schema: DataSchema, most: int = 1) -> Records:
    path = tmp_path / "table.csv"
    columns = [*(feature.column for feature in schema.features), *schema.label.columns, schema.patient_id]
    path.write_text(",".join(columns) + "\n" + ",".join(["?"] * len(columns)) + "\n")
    misfits = PassedOver()
    records = read_csv_table(path, schema, "patient", most, misfits)
    assert (len(records), records.listed, sum(misfits.records.values())) == (0, 1, 1)
    return records


@pytest.mark.parametrize("query", [EVERY_STATISTIC, SKEWS, METRICS], ids=["statistics", "skews", "metrics"])
@pytest.mark.parametrize("most", [1, 2])
def test_a_silo_none_of_whose_records_fits_answers_with_noise(
    tmp_path: Path, query: StatisticsTerms | EvaluationRequest, most: int
) -> None:
    weights = initial_vector(model_terms("logistic", SMALL.width), 1) if query is METRICS else None
    job = asked(Federation(), query, weights=weights)
    steps = answered(job, _nobody(tmp_path, schema_read(job), most), weights)
    assert len(steps) == job.model.parameters
    assert np.count_nonzero(steps) > len(steps) // 2


@pytest.mark.parametrize(
    "more",
    [
        {"views": Views(rows=16, columns=16, shift=1, mirror=True)},
        {"transform": OrientedGradients(rows=16, columns=16)},
        {"transform": Scattering(rows=16, columns=16)},
    ],
    ids=["views", "gradients", "scattering"],
)
def test_of_nobodys_images_there_are_no_records(tmp_path: Path, more: dict[str, Any]) -> None:
    pixels = tuple(NumericFeature(column=f"p{place}", low=0, high=1, impute=0) for place in range(256))
    schema = _schema(features=pixels, **more)
    assert _nobody(tmp_path, schema).features.shape == (0, schema.width)
