"""Read a hospital's CSV under a job's public schema; a cell that does not fit is refused, never guessed.

Errors name row and column, not what the cell holds: they end in logs.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.labels import AnyLabel, classes_of
from privacy.schema import CategoricalFeature, DataSchema, Feature, NumericFeature
from silo_agent.data.labels import encoded_label, finite_number
from silo_agent.data.records import Records
from silo_agent.features.catalogue import fixed_features
from silo_agent.features.views import views_of


def read_csv_table(
    path: Path, schema: DataSchema, unit: Literal["patient", "record"], records_per_unit: int = 1
) -> Records:
    """Read a UTF-8 CSV with a header; columns that the schema does not name are ignored.

    Args:
        records_per_unit: how many records of a patient are used where patients are the unit: the first in the
            file's order, so that none of a patient's records depends on other patients. With 1, a second
            record is refused.

    Raises:
        ConfigurationError: the file cannot be read, a column is missing or doubled, a row has another
            number of cells, a number is none, a category is unknown, a label or patient id is missing,
            or (unit ``patient``) a patient has more than one record.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            return _read(rows, path, schema, records_per_unit if unit == "patient" else None)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: expected CSV in UTF-8 ({type(error).__name__})") from error


def _read(rows: Iterator[list[str]], path: Path, schema: DataSchema, most: int | None) -> Records:
    """``most``: records of a patient that are used; any number where records are the unit."""
    header = [name.strip() for name in next(rows, [])]
    column_of = _columns(header, path, schema)
    features: list[NDArray[np.float64]] = []
    labels: list[list[float]] = []
    patients: list[str] = []
    used: Counter[str] = Counter()
    for number, cells in enumerate(rows, start=2):
        if not cells:
            continue
        where = f"{path}: row {number}"
        if len(cells) != len(header):
            raise ConfigurationError(f"{where}: expected {len(header)} cells, got {len(cells)}")
        patient = cells[column_of[schema.patient_id]].strip()
        if not patient:
            raise ConfigurationError(
                f"{where}, column {schema.patient_id}: expected a patient id, got nothing"
            )
        if most == 1 and used[patient]:
            raise ConfigurationError(
                f"{where}, column {schema.patient_id}: this patient has a record above, and the job uses one "
                "record a patient: join a patient's records into one row, or sign dp.records_per_unit"
            )
        if most is not None and used[patient] == most:
            continue
        used[patient] += 1
        patients.append(patient)
        told = {column: cells[column_of[column]].strip() for column in schema.label.columns}
        labels.append(encoded_label(schema.label, told, where))
        features.append(_vector(cells, column_of, schema, where))
    matrix = np.array(features, dtype=np.float32).reshape(len(features), schema.columns_width)
    owners = {patient: number for number, patient in enumerate(used)}
    units = None if most in (None, 1) else np.array([owners[patient] for patient in patients], dtype=np.int64)
    numbers = _label_array(schema.label, labels)
    count = 1 if schema.views is None else schema.views.count
    if schema.views is not None:
        matrix = views_of(schema.views, matrix).reshape(-1, schema.columns_width)
        # Rows of one record are one unit, or of the unit that the record belongs to.
        units = np.repeat(np.arange(len(numbers)) if units is None else units, count)
        numbers, patients = (
            np.repeat(numbers, count, axis=0),
            [name for name in patients for _ in range(count)],
        )
    if schema.transform is not None:
        matrix = fixed_features(schema.transform, matrix)
    label = schema.label
    classes = classes_of(label) if label.kind == "classes" else 2
    return Records(matrix, numbers, tuple(patients), classes, units, count, label.kind)


def _label_array(label: AnyLabel, labels: list[list[float]]) -> NDArray[np.float32]:
    """As ``Records.labels``: one number a record lies flat."""
    numbers = np.array(labels, dtype=np.float32)
    if label.kind in ("classes", "real"):
        return numbers.reshape(len(labels))
    return numbers.reshape(len(labels), len(label.columns))


def _columns(header: Sequence[str], path: Path, schema: DataSchema) -> dict[str, int]:
    wanted = [*(feature.column for feature in schema.features), *schema.label.columns, schema.patient_id]
    for column in wanted:
        if header.count(column) != 1:
            raise ConfigurationError(
                f"{path}: expected one column {column!r} in the header, got {header.count(column)}"
            )
    return {column: header.index(column) for column in wanted}


def _vector(
    cells: Sequence[str], column_of: dict[str, int], schema: DataSchema, where: str
) -> NDArray[np.float64]:
    coordinates: list[float] = []
    for feature in schema.features:
        cell = cells[column_of[feature.column]].strip()
        coordinates.extend(_coordinates(feature, cell, f"{where}, column {feature.column}"))
    vector = np.array(coordinates, dtype=np.float64)
    if schema.record_norm is not None:
        norm = float(np.linalg.norm(vector))
        if norm > schema.record_norm:
            vector *= schema.record_norm / norm
    return vector


def _coordinates(feature: Feature, cell: str, where: str) -> list[float]:
    missing = cell in feature.missing
    indicator = [float(missing)] if feature.indicator else []
    if isinstance(feature, CategoricalFeature):
        if not missing and cell not in feature.categories:
            raise ConfigurationError(
                f"{where}: its category is none of the job's: {', '.join(feature.categories)}"
            )
        return [float(cell == category) for category in feature.categories] + indicator
    value = feature.impute if missing else finite_number(cell, where)
    return [_scaled(feature, value), *indicator]


def _scaled(feature: NumericFeature, value: float) -> float:
    """[low, high] → [−1, 1] linearly; outside values count as the nearer end."""
    inside = min(max(value, feature.low), feature.high)
    return 2.0 * (inside - feature.low) / (feature.high - feature.low) - 1.0
