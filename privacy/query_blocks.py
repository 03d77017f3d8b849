"""How one patient's answer to a query is cut into blocks, and what each block is multiplied by.

Block j of a patient has norm at most ``bound``; it is multiplied by C · w_j / bound with Σ w_j² = 1, so the
whole vector has norm at most C whatever the patient's values, and the query is one Gaussian mechanism of
sensitivity C. Silos multiply by it, readers divide by it: this module is what they share. Knows no data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from privacy.canonical import digest_of
from privacy.dp.integer_noise import integer_mechanism
from privacy.errors import Unprocessable
from privacy.labels import classes_of
from privacy.model_terms import ModelTerms, TensorSpec
from privacy.plan import DpTerms, TrainingTerms, VectorTerms
from privacy.query_outcomes import OUTCOMES, outcome_form
from privacy.query_skews import column_skew_form, label_skew_form, silo_accuracy_form, size_skew_form
from privacy.query_terms import (
    AccuracyMetric,
    AucMetric,
    ColumnSkewStatistic,
    ConfusionMetric,
    CountStatistic,
    HistogramStatistic,
    LabelSkewStatistic,
    LabelStatistic,
    MeanStatistic,
    Metric,
    QueryTerms,
    SiloAccuracyMetric,
    SizeSkewStatistic,
    Statistic,
    StatisticsTerms,
    VarianceStatistic,
)
from privacy.schema import CategoricalFeature, DataSchema, Feature, NumericFeature

SUM_MARGIN: Final = 1.0 - 2.0**-30
"""Multiplied by it, each patient stays within C though sums of float64 numbers round: up to some thousand
records in any order, and far more in an ordinary one (docs/privacy.md, What is not)."""

Asked = Statistic | Metric


@dataclass(frozen=True)
class Block:
    """One statistic or metric in the vector of answers."""

    asked: Asked
    spec: TensorSpec
    bound: float
    """Largest norm of one patient's block before it is multiplied."""
    weight: float
    """w_j."""
    start: int
    """Where it begins in the flat vector."""

    @property
    def coordinates(self) -> slice:
        """Where it is in the flat vector."""
        return slice(self.start, self.start + self.spec.size)


def blocks_of(query: QueryTerms, data: DataSchema) -> tuple[Block, ...]:
    """The blocks of a query, in the order asked.

    Raises:
        Unprocessable: it asks for a column that the schema does not have, or not of that kind, or for a
            histogram whose cuts do not fit the column.
    """
    asked: tuple[Asked, ...] = query.statistics if isinstance(query, StatisticsTerms) else query.metrics
    whole = math.fsum(one.share for one in asked)
    blocks: list[Block] = []
    start = 0
    for number, one in enumerate(asked, start=1):
        shape, bound = _form(one, data)
        spec = TensorSpec(name=f"q{number}.{one.kind}", shape=shape)
        blocks.append(Block(one, spec, bound, math.sqrt(one.share / whole), start))
        start += spec.size
    return tuple(blocks)


def answer_terms(query: QueryTerms, data: DataSchema) -> ModelTerms:
    """The "model" of a query's job: the vector of answers. Its adapter names the very query, by digest.

    Raises:
        Unprocessable: as ``blocks_of``.
    """
    digest = digest_of("sealsum/query/v1", query)
    layout = tuple(block.spec for block in blocks_of(query, data))
    return ModelTerms(adapter=f"{query.kind}:{digest}", inputs=data.width, layout=layout)


def factors_of(
    blocks: tuple[Block, ...], dp: DpTerms, training: TrainingTerms, vector: VectorTerms
) -> Iterator[tuple[Block, float]]:
    """Each block with what it is multiplied by; the clip norm is C less what rounding takes."""
    mechanism = integer_mechanism(dp, training, vector, sum(block.spec.size for block in blocks))
    for block in blocks:
        yield block, mechanism.clip * SUM_MARGIN * block.weight / block.bound


def feature_of(column: str, data: DataSchema) -> Feature:
    """
    Raises:
        Unprocessable: the schema has no such column.
    """
    for feature in data.features:
        if feature.column == column:
            return feature
    known = ", ".join(feature.column for feature in data.features)
    raise Unprocessable(f"query: expected a column of the schema ({known}), got {column!r}")


def bins_of(asked: HistogramStatistic, data: DataSchema) -> int:
    """Number of bins, the one for missing values being last.

    Raises:
        Unprocessable: no such column, cuts for categories, or cuts outside the column's range.
    """
    feature = feature_of(asked.column, data)
    if isinstance(feature, CategoricalFeature):
        if asked.cuts:
            raise Unprocessable(f"query: expected no cuts for the categories of {asked.column}")
        return len(feature.categories) + 1
    if not asked.cuts or not feature.low < asked.cuts[0] or not asked.cuts[-1] < feature.high:
        raise Unprocessable(
            f"query: expected cuts of {asked.column} strictly within its range, {feature.low:g} to "
            f"{feature.high:g}, got {', '.join(f'{cut:g}' for cut in asked.cuts) or 'none'}"
        )
    return len(asked.cuts) + 2


def _form(asked: Asked, data: DataSchema) -> tuple[tuple[int, ...], float]:
    """Shape and bound of a block. One-hot blocks have norm 1; k numbers of size at most 1 have √k."""
    if isinstance(asked, LabelSkewStatistic):
        return label_skew_form(asked.least, classes_of(data.label))
    if isinstance(asked, SizeSkewStatistic):
        return size_skew_form(asked.most)
    if isinstance(asked, ColumnSkewStatistic):
        return column_skew_form(feature_of(asked.column, data))
    if isinstance(asked, SiloAccuracyMetric):
        classes_of(data.label)  # refuses what has no accuracy
        return silo_accuracy_form(asked.least)
    if isinstance(asked, CountStatistic):
        return (1,), 1.0
    if isinstance(asked, OUTCOMES):
        return outcome_form(asked, data.label)
    if isinstance(asked, LabelStatistic):
        return (classes_of(data.label),), 1.0
    if isinstance(asked, MeanStatistic | VarianceStatistic):
        if not isinstance(feature_of(asked.column, data), NumericFeature):
            raise Unprocessable(f"query: expected a numeric column for a {asked.kind}, got {asked.column}")
        numbers = 2 if isinstance(asked, MeanStatistic) else 3
        return (numbers,), math.sqrt(numbers)
    if isinstance(asked, HistogramStatistic):
        bins = bins_of(asked, data)
        return ((classes_of(data.label), bins) if asked.by_label else (bins,)), 1.0
    classes = classes_of(data.label)
    if isinstance(asked, AccuracyMetric):
        return (2,), 1.0
    if isinstance(asked, ConfusionMetric):
        return (classes, classes), 1.0
    if classes != 2:
        raise Unprocessable(f"query: expected a label of two classes for {asked.kind}, got {classes}")
    if isinstance(asked, AucMetric):
        return (2, asked.bins), 1.0
    return (asked.bins, 3), math.sqrt(3)
