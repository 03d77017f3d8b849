"""Score a model on hospitals' held-out patients, read through the same schema as in training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import Frozen
from privacy.measures import auc
from privacy.plan import ModelTerms
from privacy.schema import DataSchema
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, predict_scores


class HospitalFiles(Frozen):
    """Where the demo has put one hospital's two tables."""

    training: Path
    held_out: Path


def read_tables(
    schema: DataSchema, hospitals: Mapping[str, HospitalFiles]
) -> tuple[dict[str, Records], dict[str, Records]]:
    """Training records and held-out records of each hospital."""
    training = {name: read_csv_table(files.training, schema, "patient") for name, files in hospitals.items()}
    held_out = {name: read_csv_table(files.held_out, schema, "patient") for name, files in hospitals.items()}
    return training, held_out


def joined(tables: Mapping[str, Records]) -> Records:
    """All hospitals' records in one table."""
    return Records(
        np.concatenate([records.features for records in tables.values()]),
        np.concatenate([records.labels for records in tables.values()]),
    )


def auc_of(model: ModelTerms, vector: NDArray[np.float32], records: Records) -> float:
    """AUC of a model, float32[d], on records."""
    scores = predict_scores(ADAPTERS[model.adapter], model, vector, records.features)
    return auc(scores, records.labels)
