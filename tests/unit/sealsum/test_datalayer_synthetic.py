"""Synthetic records: drawn from one charged answer and no other, and spread like what it tells."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given as for_all
from hypothesis import strategies as st
from scipy.optimize import minimize

from privacy.errors import ConfigurationError
from sealsum.cli import cli
from sealsum.queries.counts import nearest_counts
from sealsum.queries.file import NoiseRequest, read_query_file
from sealsum.queries.given import read_answer_file
from sealsum.queries.synthetic import synthetic_table
from sealsum.simulator.gathered import hospitals
from silo_agent.data.csv_table import read_csv_table
from tests.synthetic_world import SCHEMA, charged_answer, digest_of_file, synthesised, written

FAINT = NoiseRequest(unit="patient", noise_multiplier=0.05, delta=1e-5)


@cache
def faint_answer() -> dict[str, Any]:
    """With hardly any noise, so that the table can be held against the patients themselves."""
    return charged_answer(hospitals().described, SCHEMA, dp=FAINT)


def test_records_are_spread_as_the_patients_are_within_each_class(tmp_path: Path) -> None:
    table = synthesised(tmp_path, *written(tmp_path, faint_answer(), SCHEMA), count=6000)
    made = read_csv_table(table, SCHEMA, "record")
    patients = hospitals().silos.values()
    features = np.concatenate([one.features for one in patients])
    labels = np.concatenate([one.labels for one in patients])
    assert abs(made.labels.mean() - labels.mean()) < 0.03
    for label in (0, 1):
        gaps = made.features[made.labels == label].mean(0) - features[labels == label].mean(0)
        assert np.abs(gaps).max() < 0.2  # half a bin: what five bins over a range of 2 can hide


def test_the_manifest_says_what_was_charged_and_names_the_table(tmp_path: Path) -> None:
    answer = charged_answer(hospitals().described, SCHEMA)
    query, told = written(tmp_path, answer, SCHEMA)
    table = synthesised(tmp_path, query, told, count=10)
    manifest = json.loads(table.with_name(f"{table.name}.json").read_text())
    assert manifest["digest"] == digest_of_file(table)
    assert manifest["query"]["answer"] == digest_of_file(told)
    assert (manifest["charged_already"]["epsilon"], manifest["epsilon"]) == (pytest.approx(0.9, abs=1e-3), 0)
    assert len(list(csv.reader(table.read_text().splitlines()))) == 11


def test_the_seed_fixes_the_table_and_another_draws_another(tmp_path: Path) -> None:
    query, told = written(tmp_path, faint_answer(), SCHEMA)
    asked = read_query_file(query)
    given = read_answer_file(told, asked)
    tables = [synthetic_table(given, asked.data, 50, seed) for seed in (1, 1, 2)]
    assert tables[0] == tables[1] != tables[2]


def test_an_answer_to_another_query_is_refused(tmp_path: Path) -> None:
    query, told = written(tmp_path, {**faint_answer(), "job": "another"}, SCHEMA)
    with pytest.raises(
        ConfigurationError, match="expected the answer to question on cardio, got that to anoth"
    ):
        read_answer_file(told, read_query_file(query))


@pytest.mark.parametrize(
    ("kept", "match"),
    [
        (lambda one: one.get("column") != "age", "expected answers to label, histogram"),
        (lambda one: one, None),
    ],
)
def test_an_answer_that_leaves_a_statistic_out_is_refused(
    tmp_path: Path, kept: Any, match: str | None
) -> None:
    told_of = [one for one in faint_answer()["statistics"] if kept(one)]
    query, told = written(tmp_path, {**faint_answer(), "statistics": told_of}, SCHEMA)
    if match is None:
        assert read_answer_file(told, read_query_file(query)).job == "question"
        return
    with pytest.raises(ConfigurationError, match=match):
        read_answer_file(told, read_query_file(query))


def test_a_column_that_cannot_be_missing_is_never_left_empty(tmp_path: Path) -> None:
    first, *others = SCHEMA.features
    whole = SCHEMA.model_copy(update={"features": (first.model_copy(update={"missing": ()}), *others)})
    query, told = written(tmp_path, faint_answer(), whole)
    answer = json.loads(told.read_text())
    for one in answer["statistics"][1]["histograms"]:
        one["missing"]["estimate"] = 300.0
    told.write_text(json.dumps(answer))
    asked = read_query_file(query)
    _, rows = synthetic_table(read_answer_file(told, asked), asked.data, 200, 0)
    assert all(row[1] for row in rows)


def test_a_column_that_was_not_asked_for_is_named(tmp_path: Path) -> None:
    query, told = written(tmp_path, faint_answer(), SCHEMA)
    asked = read_query_file(query)
    given = read_answer_file(told, asked)
    fewer = {column: one for column, one in given.histograms.items() if column != "chol"}
    with pytest.raises(ConfigurationError, match="chol: expected a histogram, or mean and variance"):
        synthetic_table(given.__class__(**{**vars(given), "histograms": fewer}), asked.data, 5, 0)


def test_classes_that_drown_in_the_noise_are_refused(tmp_path: Path) -> None:
    loud = NoiseRequest(unit="patient", noise_multiplier=200, delta=1e-5)
    query, told = written(tmp_path, charged_answer(hospitals().described, SCHEMA, dp=loud), SCHEMA)
    out = tmp_path / "out.csv"
    options = ["--from", str(told), "--records", "5", "--out", str(out)]
    result = CliRunner().invoke(cli, ["synthesise", str(query), *options])
    assert "4 standard errors of records or more" in result.output
    assert not out.exists()


@for_all(st.lists(st.floats(-50, 50), min_size=2, max_size=6), st.floats(0.5, 100))
def test_counts_are_the_nearest_that_nobody_is_missing_from(noisy: list[float], total: float) -> None:
    values = np.array(noisy)
    nearest = nearest_counts(values, total)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(total)
    start = np.full(len(values), total / len(values))
    oracle = minimize(
        lambda x: float(((x - values) ** 2).sum()),
        start,
        jac=lambda x: 2 * (x - values),
        bounds=[(0, None)] * len(values),
        constraints={"type": "eq", "fun": lambda x: x.sum() - total},
        method="SLSQP",
    )
    assert ((nearest - values) ** 2).sum() <= ((oracle.x - values) ** 2).sum() + 1e-3 * (1 + oracle.fun)
