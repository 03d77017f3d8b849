"""The answer to a query for statistics as a file holds it, read back: opened counts with their errors.

Only what can be drawn from is read: labels, histograms and variances. Knows no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from privacy.errors import ConfigurationError
from privacy.keystore import read_file
from privacy.query_blocks import Block, blocks_of
from privacy.query_terms import HistogramStatistic, LabelStatistic, StatisticsTerms, VarianceStatistic
from sealsum.queries.file import QueryFile
from sealsum.yaml_file import faults_of

Numbers = NDArray[np.float64]
_PLAIN: Final = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
"""An answer says more than is read here."""


class _Number(BaseModel):
    model_config = _PLAIN
    estimate: float | None
    standard_error: float | None = None


class _Bins(BaseModel):
    model_config = _PLAIN
    bins: tuple[_Number, ...]
    missing: _Number


class _Told(BaseModel):
    model_config = _PLAIN
    kind: str
    column: str | None = None
    counts: tuple[_Number, ...] = ()
    histograms: tuple[_Bins, ...] = ()
    mean: _Number | None = None
    variance: _Number | None = None


class _Answer(BaseModel):
    model_config = _PLAIN
    job: str
    dataset: str
    silos: int
    privacy: dict[str, Any]
    statistics: tuple[_Told, ...]


@dataclass(frozen=True)
class Counts:
    """Of one histogram, or of the labels: each class or none by itself."""

    values: Numbers
    """float64[classes or 1, bins]; of a histogram the last bin holds what is missing."""
    error: float
    """Standard error of each of them."""


@dataclass(frozen=True)
class Histogram:
    """What was asked and what was told."""

    asked: HistogramStatistic
    counts: Counts


@dataclass(frozen=True)
class Moments:
    """Of a numeric column, in its own unit."""

    mean: float
    variance: float


@dataclass(frozen=True)
class Given:
    """What a charged query was told."""

    job: str
    digest: str
    """SHA-256 of the file."""
    silos: int
    privacy: dict[str, Any]
    """What the query cost: unit, ε, δ and noise."""
    labels: tuple[Counts, ...] = field(repr=False)
    histograms: Mapping[str, tuple[Histogram, ...]] = field(repr=False)
    """By column."""
    moments: Mapping[str, Moments] = field(repr=False)
    """By column, where there were enough values beside the noise."""


def read_answer_file(path: Path, query: QueryFile) -> Given:
    """The answer to this very query, as ``sealsum query show JOB --json`` printed it.

    Raises:
        ConfigurationError: the file holds no answer, or one to another query; or the query is no request for
            statistics.
    """
    if not isinstance(query.query, StatisticsTerms):
        raise ConfigurationError(
            f"query.kind: expected statistics to draw records from, got {query.query.kind}"
        )
    raw = read_file(path)
    try:
        answer = _Answer.model_validate_json(raw)
    except ValidationError as error:
        raise ConfigurationError(
            f"{path}: expected the answer to a query for statistics, from sealsum query show JOB --json:\n"
            f"{faults_of(error)}"
        ) from error
    blocks = blocks_of(query.query, query.data)
    if (answer.job, answer.dataset) != (query.job, query.dataset):
        raise ConfigurationError(
            f"{path}: expected the answer to {query.job} on {query.dataset}, got that to {answer.job} on "
            f"{answer.dataset}"
        )
    kinds, told = [block.asked.kind for block in blocks], [one.kind for one in answer.statistics]
    if kinds != told:
        raise ConfigurationError(f"{path}: expected answers to {', '.join(kinds)}, got {', '.join(told)}")
    labels: list[Counts] = []
    histograms: dict[str, list[Histogram]] = {}
    moments: dict[str, Moments] = {}
    for block, one in zip(blocks, answer.statistics, strict=True):
        asked = block.asked
        if isinstance(asked, LabelStatistic):
            labels.append(_counts(path, block, [one.counts]))
        elif isinstance(asked, HistogramStatistic):
            rows = [(*each.bins, each.missing) for each in one.histograms]
            found = Histogram(asked, _counts(path, block, rows))
            histograms.setdefault(asked.column, []).append(found)
        elif isinstance(asked, VarianceStatistic):
            mean, variance = (None if of is None else of.estimate for of in (one.mean, one.variance))
            if mean is not None and variance is not None:
                moments[asked.column] = Moments(mean, variance)
    return Given(
        answer.job,
        hashlib.sha256(raw).hexdigest(),
        answer.silos,
        answer.privacy,
        tuple(labels),
        {column: tuple(found) for column, found in histograms.items()},
        moments,
    )


def _counts(path: Path, block: Block, rows: Sequence[Sequence[_Number]]) -> Counts:
    """
    Raises:
        ConfigurationError: not as many as the query asks for, or without one error.
    """
    where = f"{path}: {block.spec.name}"
    shape = block.spec.shape if len(block.spec.shape) == 2 else (1, block.spec.size)
    if [len(row) for row in rows] != [shape[1]] * shape[0]:
        raise ConfigurationError(f"{where}: expected {' × '.join(map(str, shape))} counts, got others")
    values = np.array([[_real(where, one.estimate) for one in row] for row in rows])
    errors = {_real(where, one.standard_error) for row in rows for one in row}
    if len(errors) != 1 or min(errors) < 0:
        raise ConfigurationError(f"{where}: expected one standard error of all counts, got {len(errors)}")
    return Counts(values, errors.pop())


def _real(where: str, number: float | None) -> float:
    """
    Raises:
        ConfigurationError: there is none.
    """
    if number is None:
        raise ConfigurationError(f"{where}: expected a number with a standard error, got none")
    return number
