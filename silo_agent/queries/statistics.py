"""Sums of patients' answers to a request for statistics, block by block. Draws no noise, knows no plan.

Whatever a record holds, its part of a block keeps the block's bound (``privacy.query_blocks``): numbers are
clipped to [−1, 1], where the public range ends, one index at most is counted in a histogram, and what is no
number adds nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privacy.labels import classes_of
from privacy.query_blocks import Asked, bins_of, feature_of
from privacy.query_terms import (
    ColumnSkewStatistic,
    CountStatistic,
    HistogramStatistic,
    LabelSkewStatistic,
    LabelStatistic,
    MeanStatistic,
    SizeSkewStatistic,
    StatisticsTerms,
    VarianceStatistic,
)
from privacy.schema import CategoricalFeature, DataSchema, NumericFeature
from silo_agent.data.records import Records
from silo_agent.queries.skews import category_skew, label_skew, numeric_skew, size_skew
from silo_agent.queries.units import counted, shares_of

Vector = NDArray[np.float64]


def statistics_sums(terms: StatisticsTerms, data: DataSchema, records: Records) -> list[Vector]:
    """One flat float64 vector a statistic, in the order asked, not yet multiplied by its factor.

    Args:
        records: read under ``schema_read``: every feature with its indicator.
    """
    shares = shares_of(records)
    return [_sum(asked, data, records, shares) for asked in terms.statistics]


def _sum(asked: Asked, data: DataSchema, records: Records, shares: Vector) -> Vector:
    if isinstance(asked, CountStatistic):
        return np.array([shares.sum()])
    if isinstance(asked, LabelStatistic):
        return counted(records.labels, shares, classes_of(data.label))
    if isinstance(asked, HistogramStatistic):
        bins = bins_of(asked, data)
        index = _bin_index(asked, data, records)
        if not asked.by_label:
            return counted(index, shares, bins)
        labels = records.labels.astype(np.float64)  # a float32 label beyond any class must not overflow
        return counted(labels * bins + index, shares, classes_of(data.label) * bins)
    if isinstance(asked, MeanStatistic | VarianceStatistic):
        return _moments(asked, data, records, shares)
    if isinstance(asked, LabelSkewStatistic):
        return label_skew(asked, classes_of(data.label), records, shares)
    if isinstance(asked, SizeSkewStatistic):
        return size_skew(asked, records)
    if isinstance(asked, ColumnSkewStatistic):
        return _column_skew(asked, data, records, shares)
    raise TypeError(f"{type(asked).__name__}: expected a statistic")


def _column_skew(asked: ColumnSkewStatistic, data: DataSchema, records: Records, shares: Vector) -> Vector:
    feature, at = feature_of(asked.column, data), _place_of(asked.column, data)
    if isinstance(feature, CategoricalFeature):
        return category_skew(feature, _category(feature, at, records), shares)
    missing: NDArray[np.bool_] = records.features[:, at + 1] != 0
    return numeric_skew(records.features[:, at].astype(np.float64), missing, shares)


def _moments(
    asked: MeanStatistic | VarianceStatistic, data: DataSchema, records: Records, shares: Vector
) -> Vector:
    """How many values there are, Σx and, for a variance, Σx²; x is in [−1, 1] over the public range."""
    at = _place_of(asked.column, data)
    number = records.features[:, at].astype(np.float64)
    there = np.isfinite(number) & (records.features[:, at + 1] == 0)
    x = np.clip(number[there], -1.0, 1.0)
    present = shares[there]
    sums = [present.sum(), present @ x]
    if isinstance(asked, VarianceStatistic):
        sums.append(present @ np.square(x))
    return np.array(sums)


def _bin_index(asked: HistogramStatistic, data: DataSchema, records: Records) -> NDArray[np.float64]:
    """Each record's bin, float64[n]; NaN where the record has no bin."""
    feature, at = feature_of(asked.column, data), _place_of(asked.column, data)
    if isinstance(feature, CategoricalFeature):
        return _category(feature, at, records).astype(np.float64)
    number, missing = records.features[:, at], records.features[:, at + 1] != 0
    # The cuts go the way of the values, float32 last, so that a value at a cut is found there.
    cuts = np.array([_scaled(feature, cut) for cut in asked.cuts], dtype=np.float32)
    index = np.searchsorted(cuts, number, side="right").astype(np.float64)
    index[~np.isfinite(number)] = np.nan
    index[missing] = len(cuts) + 1
    return index


def _category(feature: CategoricalFeature, at: int, records: Records) -> NDArray[np.intp]:
    """Each record's category, the last being "missing": exactly one of the columns is 1."""
    columns = records.features[:, at : at + len(feature.categories) + 1]
    category: NDArray[np.intp] = np.argmax(columns, axis=1)
    return category


def _scaled(feature: NumericFeature, value: float) -> float:
    """[low, high] → [−1, 1], as ``csv_table`` maps values."""
    return 2.0 * (value - feature.low) / (feature.high - feature.low) - 1.0


def _place_of(column: str, data: DataSchema) -> int:
    """Where a feature's columns begin when every feature has its indicator."""
    start = 0
    for feature in data.features:
        if feature.column == column:
            return start
        start += feature.width + int(not feature.indicator)
    raise ValueError(f"{column}: expected a column of the schema")
