"""The four hospitals as FLamby splits them: its patients, columns and held-out third, for published figures.

FLamby (du Terrail et al. 2022, arXiv 2210.04620) leaves out the columns slope, ca and thal, then whoever has
a missing value, and holds out 34 % of each hospital by scikit-learn's ``train_test_split`` at seed 43; its
strategies' figures are on this split. Features here are scaled by public ranges, not by a hospital's moments.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from sklearn.model_selection import train_test_split

from privacy.schema import DataSchema
from sealsum.demo.job import heart_schema
from sealsum.demo.patients import HOSPITALS, Hospital, patients_of
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records

LEFT_OUT: Final = ("slope", "ca", "thal")
TRAINED: Final = 0.66
SEED: Final = 43


@dataclass(frozen=True)
class Halves:
    """One hospital's patients."""

    train: Records = field(repr=False)
    test: Records = field(repr=False)


def flamby_schema() -> DataSchema:
    """The demo's public ranges, without what FLamby leaves out; nothing is missing, so nothing says so."""
    whole = heart_schema()
    kept = tuple(
        one.model_copy(update={"indicator": False}) for one in whole.features if one.column not in LEFT_OUT
    )
    return whole.model_copy(update={"features": kept})


def flamby_hospitals(schema: DataSchema) -> Mapping[str, Halves]:
    """Cleveland 199/104, Hungary 172/89, Switzerland 30/16, VA Long Beach 85/45."""
    return {hospital.title: _halves(_complete(hospital, schema)) for hospital in HOSPITALS}


def _complete(hospital: Hospital, schema: DataSchema) -> Records:
    table = patients_of(hospital)
    columns = [table.columns.index(one.column) for one in schema.features]
    rows = [row for row in table.rows if all(row[column] != "" for column in columns)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([table.columns, *rows])
        return read_csv_table(path, schema, "patient")


def _halves(records: Records) -> Halves:
    sick = records.labels > 0
    few = min(int(sick.sum()), int((~sick).sum())) <= 2
    train, test = train_test_split(
        np.arange(len(records)),
        test_size=1.0 - TRAINED,
        train_size=TRAINED,
        random_state=SEED,
        shuffle=True,
        stratify=None if few else sick,
    )
    return Halves(records.only(np.sort(train)), records.only(np.sort(test)))
