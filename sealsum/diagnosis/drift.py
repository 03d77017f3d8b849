"""Whether tables that lie here fit the job's schema: columns, numbers, categories, ranges, classes; table by
table.

A silo's agent refuses a cell that the schema does not know, for good reason. Here all of them are told at
once, before anything is read under the schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from privacy.labels import ClassLabel, Label
from privacy.schema import CategoricalFeature, DataSchema, Feature
from sealsum.partition.csv_rows import CsvRows, read_rows

_SHOWN = 5


def drift_of(tables: Sequence[Path], schema: DataSchema) -> list[str]:
    """A sentence for each thing in each table that does not fit; values beyond a range are no fault, but
    told.

    Raises:
        ConfigurationError: a table is no CSV.
    """
    return [sentence for path in tables for sentence in _of_table(read_rows(path), schema)]


def _of_table(rows: CsvRows, schema: DataSchema) -> Iterator[str]:
    for feature in schema.features:
        if feature.column not in rows.columns:
            yield f"{rows.path.name}: it has no column {feature.column}"
            continue
        cells = [cell for cell in rows.cells(feature.column) if cell not in feature.missing]
        yield from (f"{rows.path.name}: {fault}" for fault in _of_column(feature, cells))
    label = schema.label
    if not isinstance(label, Label | ClassLabel):
        return
    if label.column not in rows.columns:
        yield f"{rows.path.name}: it has no column {label.column}, the label"
        return
    if isinstance(label, ClassLabel):
        unknown = set(rows.cells(label.column)) - set(label.categories)
        if unknown:
            yield (
                f"{rows.path.name}: {label.column} has classes that the job does not know: {_named(unknown)}"
            )


def _of_column(feature: Feature, cells: list[str]) -> Iterator[str]:
    if isinstance(feature, CategoricalFeature):
        unknown = set(cells) - set(feature.categories)
        if unknown:
            yield f"{feature.column} has categories that the job does not know: {_named(unknown)}"
        return
    numbers = [_number(cell) for cell in cells]
    none = sum(not math.isfinite(number) for number in numbers)
    if none:
        yield f"{feature.column} has {none} of {len(cells)} cells that are no number"
    beyond = sum(not feature.low <= number <= feature.high for number in numbers if math.isfinite(number))
    if cells and beyond > 0.05 * len(cells):
        yield (
            f"{feature.column} is beyond its range, {feature.low:g} to {feature.high:g}, in {beyond} of "
            f"{len(cells)} cells"
        )


def _named(texts: set[str]) -> str:
    shown = sorted(texts)[:_SHOWN]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(repr(text) for text in shown) + more


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
