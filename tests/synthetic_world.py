"""A charged query of the four hospitals, answered in memory, and the table drawn from its answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from privacy.ids import SiloId
from privacy.query_terms import HistogramStatistic, LabelStatistic, Statistic, StatisticsTerms
from privacy.schema import CategoricalFeature, DataSchema
from sealsum.cli import cli
from sealsum.queries.answer import read_answer
from sealsum.simulator.gathered import hospitals_schema
from silo_agent.data.records import Records
from tests.federation import Federation
from tests.query_cohort import answered, opened, query_file

SCHEMA = hospitals_schema()
BINS = 5


def statistics_of(schema: DataSchema) -> StatisticsTerms:
    """Labels, and each column by label in bins of one width."""
    asked: list[Statistic] = [LabelStatistic()]
    for feature in schema.features:
        if isinstance(feature, CategoricalFeature):
            asked.append(HistogramStatistic(column=feature.column, by_label=True))
            continue
        width = (feature.high - feature.low) / BINS
        cuts = tuple(feature.low + width * number for number in range(1, BINS))
        asked.append(HistogramStatistic(column=feature.column, cuts=cuts, by_label=True))
    return StatisticsTerms(statistics=tuple(asked))


def charged_answer(silos: Mapping[SiloId, Records], schema: DataSchema, **changes: Any) -> dict[str, Any]:
    """The answer as JSON, of silos that read their records under ``statistics_schema``."""
    job = query_file(statistics_of(schema), schema, **changes).spec(Federation().charter)
    updates = [answered(job, records) for records in silos.values()]
    return read_answer(job, opened(job, updates), len(silos))


def written(folder: Path, answer: Mapping[str, Any], schema: DataSchema) -> tuple[Path, Path]:
    """QUERY.yaml and the file with its answer."""
    query, told = folder / "query.yaml", folder / "answer.json"
    fields = query_file(statistics_of(schema), schema).model_dump(mode="json", exclude_none=True)
    query.write_text(json.dumps(fields))  # YAML holds JSON
    told.write_text(json.dumps(answer))
    return query, told


def synthesised(folder: Path, query: Path, told: Path, count: int = 2000, seed: int = 0) -> Path:
    """The table, by the command."""
    out = folder / f"synthetic-{seed}.csv"
    options = ["--from", str(told), "--records", str(count), "--seed", str(seed), "--out", str(out)]
    result = CliRunner().invoke(cli, ["synthesise", str(query), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out


def digest_of_file(path: Path) -> str:
    """As ``public_data.digest`` has it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
