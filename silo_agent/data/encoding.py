"""Records from rows of cell texts, under a job's public schema; ``misfits`` says what becomes of the others.

Rows come one by one and are kept as float32 in blocks: what is held is the job's columns, not the table.
Knows no file format. Errors name row and column, not what the cell holds: they end in logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.labels import AnyLabel, classes_of
from privacy.schema import CategoricalFeature, DataSchema, Feature, NumericFeature
from silo_agent.data.labels import encoded_label, finite_number
from silo_agent.data.misfits import Cell, Misfit, Misfits, Refused, Row
from silo_agent.data.records import Records
from silo_agent.features.catalogue import fixed_features
from silo_agent.features.views import views_of

PrivacyUnit = Literal["patient", "record"]
BLOCK_ROWS: Final = 4096
"""Rows that are held in float64 before they become float32."""


def columns_read(schema: DataSchema) -> tuple[str, ...]:
    """The columns that a job reads, features first and the patient last; ``encoded`` takes cells so."""
    return (*(feature.column for feature in schema.features), *schema.label.columns, schema.patient_id)


def places_of(columns: Sequence[str], place: str, schema: DataSchema) -> list[int]:
    """Where the columns that a job reads stand among ``columns``.

    Raises:
        ConfigurationError: one is missing or doubled.
    """
    wanted = columns_read(schema)
    counts = Counter(columns)
    for column in wanted:
        if counts[column] != 1:
            raise ConfigurationError(
                f"{place}: expected one column {column!r} in the header, got {counts[column]}"
            )
    first = {column: number for number, column in enumerate(columns)}
    return [first[column] for column in wanted]


def encoded(
    rows: Iterable[Row],
    schema: DataSchema,
    unit: PrivacyUnit,
    records_per_unit: int = 1,
    misfits: Misfits | None = None,
) -> Records:
    """The records that rows hold.

    Args:
        rows: file and row for errors, and the cells of ``columns_read``, without blanks at their ends.
        records_per_unit: how many records of a patient are used where patients are the unit: the first that
            fit, in the rows' order, which must not depend on other patients.
        misfits: what becomes of a number that is none, an unknown category, a missing label or patient id,
            and (with 1) a patient's second record. Refused, if left out.

    Raises:
        Misfit: the first of these, where they are refused.
    """
    misfits = Refused() if misfits is None else misfits
    most = records_per_unit if unit == "patient" else None
    blocks: list[NDArray[np.float32]] = []
    vectors: list[NDArray[np.float64]] = []
    labels: list[list[float]] = []
    patients: list[str] = []
    used: Counter[str] = Counter()
    listed: Counter[str] = Counter()
    for row in rows:
        try:
            where, patient, cells = _owned(row, schema)
            listed[patient] += 1
            if most == 1 and used[patient]:
                raise Misfit(
                    where,
                    schema.patient_id,
                    "this patient has a record above, and the job uses one record a patient: join a "
                    "patient's records into one row, or sign dp.records_per_unit",
                )
            if most is not None and used[patient] == most:
                continue
            label = _label(cells, schema, where)
        except Misfit as misfit:
            misfits.record(misfit)
            continue
        used[patient] += 1
        patients.append(patient)
        labels.append(label)
        vectors.append(_vector(cells[: len(schema.features)], schema, where, misfits))
        if len(vectors) == BLOCK_ROWS:
            blocks.append(_block(vectors, schema))
            vectors.clear()
    blocks.append(_block(vectors, schema))
    owners = {patient: number for number, patient in enumerate(used)}
    units = None if most in (None, 1) else np.array([owners[patient] for patient in patients], dtype=np.int64)
    records = _records(np.concatenate(blocks), _label_array(schema.label, labels), patients, units, schema)
    return replace(records, listed=listed.total() if most is None else len(listed))


def _owned(row: Row, schema: DataSchema) -> tuple[str, str, Sequence[Cell]]:
    """Where the row is, whose it is, and its cells.

    Raises:
        Misfit: it is no row, or nobody's.
    """
    if isinstance(row, Misfit):
        raise row
    where, cells = row
    patient = cells[-1]
    if isinstance(patient, Misfit):
        raise patient
    if not patient:
        raise Misfit(where, schema.patient_id, "expected a patient id, got nothing")
    return where, patient, cells


def _label(cells: Sequence[Cell], schema: DataSchema, where: str) -> list[float]:
    told: dict[str, str] = {}
    for column, cell in zip(schema.label.columns, cells[len(schema.features) : -1], strict=True):
        if isinstance(cell, Misfit):
            raise cell
        told[column] = cell
    return encoded_label(schema.label, told, where)


def _block(vectors: list[NDArray[np.float64]], schema: DataSchema) -> NDArray[np.float32]:
    return np.array(vectors, dtype=np.float32).reshape(len(vectors), schema.columns_width)


def _records(
    matrix: NDArray[np.float32],
    numbers: NDArray[np.float32],
    patients: list[str],
    units: NDArray[np.int64] | None,
    schema: DataSchema,
) -> Records:
    """With the views and the transform that the schema asks for."""
    count = 1 if schema.views is None else schema.views.count
    if schema.views is not None:
        matrix = views_of(schema.views, matrix).reshape(-1, schema.columns_width)
        # Rows of one record are one unit, or of the unit that the record belongs to.
        units = np.repeat(np.arange(len(numbers)) if units is None else units, count)
        numbers = np.repeat(numbers, count, axis=0)
        patients = [name for name in patients for _ in range(count)]
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


def _vector(cells: Sequence[Cell], schema: DataSchema, where: str, misfits: Misfits) -> NDArray[np.float64]:
    coordinates: list[float] = []
    for feature, cell in zip(schema.features, cells, strict=True):
        try:
            coordinates.extend(_coordinates(feature, _fitting(feature, cell, where), where))
        except Misfit as misfit:
            misfits.cell(misfit)
            coordinates.extend(_coordinates(feature, None, where))
    vector = np.array(coordinates, dtype=np.float64)
    if schema.record_norm is not None:
        norm = float(np.linalg.norm(vector))
        if norm > schema.record_norm:
            vector *= schema.record_norm / norm
    return vector


def _fitting(feature: Feature, cell: Cell, where: str) -> str | None:
    """The cell's text; ``None`` for one that means "missing".

    Raises:
        Misfit: it has no text, or names a category that the job does not list.
    """
    if isinstance(cell, Misfit):
        raise cell
    if cell in feature.missing:
        return None
    if isinstance(feature, CategoricalFeature) and cell not in feature.categories:
        told = f"its category is none of the job's: {', '.join(feature.categories)}"
        raise Misfit(where, feature.column, told)
    return cell


def _coordinates(feature: Feature, cell: str | None, where: str) -> list[float]:
    indicator = [float(cell is None)] if feature.indicator else []
    if isinstance(feature, CategoricalFeature):
        return [float(cell == category) for category in feature.categories] + indicator
    value = feature.impute if cell is None else finite_number(cell, where, feature.column)
    return [_scaled(feature, value), *indicator]


def _scaled(feature: NumericFeature, value: float) -> float:
    """[low, high] → [−1, 1] linearly; outside values count as the nearer end."""
    inside = min(max(value, feature.low), feature.high)
    return 2.0 * (inside - feature.low) / (feature.high - feature.low) - 1.0
