"""Silos' tables side by side under one job, some records of each held out: what simulations train and score
on.

For records that may lie in one place: public or made-up ones, or those of silos that agreed to it. Nothing is
charged. Who is held out and who is where is fixed by a public seed; a patient's records stay together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.ids import PartyId, SiloId
from privacy.schema import DataSchema
from sealsum.demo.job import heart_schema
from sealsum.demo.patients import HOSPITALS, patients_of
from sealsum.demo.patients import Table as Patients
from sealsum.partition.splits import Asked, Table, partition, principal_component
from sealsum.simulator.practice import Practice
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.queries.question import statistics_schema

HELD_OUT: Final = 1 / 3
_WITHOUT_GAPS: Final = (
    *("age", "sex", "cp", "trestbps", "chol"),
    *("fbs", "restecg", "thalach", "exang", "oldpeak"),
)
"""Columns of which FLamby (du Terrail et al. 2022) takes the patients who lack none: 740 of 920."""


def hospitals_schema() -> DataSchema:
    """Those columns, none of them missing."""
    whole = heart_schema()
    features = tuple(
        feature.model_copy(update={"indicator": False})
        for feature in whole.features
        if feature.column in _WITHOUT_GAPS
    )
    return whole.model_copy(update={"features": features})


HOSPITALS_JOB: Final[dict[str, Any]] = {
    "job": "hospitals",
    "purpose": "Try algorithms on public records",
    "dataset": "heart",
    "data": hospitals_schema(),
    "model": {"adapter": "logistic"},
    "training": {"algorithm": "fedavg", "local_steps": 10, "learning_rate": 0.3},
    "dp": "none",
    "rounds": 30,
    "min_silos": 3,
}
"""The four hospitals of the demo, without DP: what a simulation that is given no job and no table tries."""


@dataclass(frozen=True)
class Gathered:
    """All silos' records."""

    silos: Mapping[SiloId, Records] = field(repr=False)
    """As a job reads them."""
    described: Mapping[SiloId, Records] = field(repr=False)
    """The same records as statistics read them: each column with its indicator."""
    split: str
    """How records came to silos, for people."""

    def parted(self, seed: int) -> dict[SiloId, Practice]:
        """Each silo's records: two thirds to train on, a third to score on, drawn label by label.

        Raises:
            ConfigurationError: a silo has too few records to hold any out.
        """
        return {
            silo: _parted(silo, records, np.random.default_rng([seed, place]))
            for place, (silo, records) in enumerate(self.silos.items())
        }


def hospitals() -> Gathered:
    """The demo's four hospitals, by name: the patients and columns that FLamby takes of them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for hospital in HOSPITALS:
            path = Path(folder) / f"{hospital.silo}.csv"
            path.write_bytes(_without_gaps(patients_of(hospital)).csv_bytes())
            paths.append(path)
        return replace(gathered(paths, hospitals_schema()), split="four hospitals")


def gathered(tables: Sequence[Path], schema: DataSchema, asked: Asked | None = None) -> Gathered:
    """One CSV a silo as they are, or one CSV that is split.

    Args:
        asked: how one table is split; by a column, use ``sealsum partition`` first.

    Raises:
        ConfigurationError: a table does not fit the schema; several tables and a split, or one table without.
    """
    if len(tables) == 1 and asked is not None:
        return _split(tables[0], schema, asked)
    if len(tables) < 2 or asked is not None:
        raise ConfigurationError(
            f"tables: expected two or more, one a silo, or one and --split, got {len(tables)}"
            f"{'' if asked is None else ' and --split'}"
        )
    names = [path.stem for path in tables]
    if len(set(names)) != len(names):
        raise ConfigurationError("tables: expected file names that differ; they name the silos")
    paths = {SiloId(PartyId(name)): path for name, path in zip(names, tables, strict=True)}
    described = statistics_schema(schema)
    return Gathered(
        {silo: read_csv_table(path, schema, "record") for silo, path in paths.items()},
        {silo: read_csv_table(path, described, "record") for silo, path in paths.items()},
        f"{len(tables)} tables",
    )


def joined(tables: Sequence[Records]) -> Records:
    """All records in one table, each a unit of its own."""
    first = tables[0]
    return Records(
        np.concatenate([one.features for one in tables]),
        np.concatenate([one.labels for one in tables]),
        classes=first.classes,
        kind=first.kind,
    )


def rows_of(records: Records, chosen: NDArray[np.intp]) -> Records:
    """Some of the records, each a unit of its own."""
    patients = tuple(records.patients[row] for row in chosen) if records.patients else ()
    return replace(
        records,
        features=records.features[chosen],
        labels=records.labels[chosen],
        patients=patients,
        units=None,
    )


def _without_gaps(table: Patients) -> Patients:
    places = [table.columns.index(column) for column in _WITHOUT_GAPS]
    return Patients(table.columns, tuple(row for row in table.rows if all(row[place] for place in places)))


def _split(path: Path, schema: DataSchema, asked: Asked) -> Gathered:
    records = read_csv_table(path, schema, "record")
    if records.kind != "classes" or records.views != 1:
        raise ConfigurationError("--split: expected a label of classes and no views; give one table a silo")
    table = Table(records.labels.astype(np.intp), records.classes, principal_component(records.features))
    split = partition(table, asked)
    whole = read_csv_table(path, statistics_schema(schema), "record")
    silos, described = {}, {}
    for place, held in enumerate(split.rows):
        silo = SiloId(PartyId(f"silo-{place + 1}"))
        called = split.labels(table, place).astype(np.float32)
        silos[silo] = replace(rows_of(records, held), labels=called)
        described[silo] = replace(rows_of(whole, held), labels=called)
    return Gathered(silos, described, f"{asked.kind}, {asked.silos} silos, seed {asked.seed}")


def _parted(silo: SiloId, records: Records, random: np.random.Generator) -> Practice:
    if records.views != 1:
        raise ConfigurationError(
            "data.views: expected none in a simulation that scores records; leave views out"
        )
    names = records.patients or tuple(str(row) for row in range(len(records)))
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    people = sorted(first, key=lambda name: first[name])
    of_class = records.labels[[first[name] for name in people]]
    if records.kind != "classes":
        of_class = np.zeros(len(people), dtype=np.float32)
    held: set[str] = set()
    for label in np.unique(of_class):
        stratum = np.flatnonzero(of_class == label)
        chosen = random.permutation(stratum)[: round(len(stratum) * HELD_OUT)]
        held.update(people[person] for person in chosen)
    if not held or len(held) == len(people):
        raise ConfigurationError(f"{silo}: expected records to train on and to score on, got {len(records)}")
    out = np.array([name in held for name in names])
    return Practice(rows_of(records, np.flatnonzero(~out)), rows_of(records, np.flatnonzero(out)))
