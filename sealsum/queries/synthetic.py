"""Records drawn from the answer to a charged query: post-processing of it, so they cost no further ε.

Within each class every column is drawn by itself, from its histogram under that class, from the one of all
classes, or from mean and variance: what columns have to do with each other beyond the class is not in the
answer, and not in the records. No silo's record is read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.labels import ClassLabel, Label, kind_name
from privacy.schema import CategoricalFeature, DataSchema, Feature, NumericFeature
from sealsum.queries.counts import agreed_total, nearest_counts
from sealsum.queries.estimates import LEAST_COUNT
from sealsum.queries.given import Given, Histogram, Moments
from sealsum.queries.statistics import label_names

Numbers = NDArray[np.float64]
Draw = Callable[[NDArray[np.intp], np.random.Generator], list[str]]
"""Cells of one column for records of these classes."""
METHOD: Final = "each column by itself within each class; counts brought to the nearest that are none below 0"


def synthetic_table(
    given: Given, data: DataSchema, count: int, seed: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of a table under the query's schema.

    Args:
        seed: public; it decides which records are drawn, and no silo's noise.

    Raises:
        ConfigurationError: a column or the label was not asked for, or a class drowns in the noise; the label
            is not one of classes.
    """
    totals = _class_totals(given, data)
    draws = [_draw_of(feature, given, totals) for feature in data.features]
    generator = np.random.default_rng(seed)
    classes = generator.choice(len(totals), size=count, p=totals / totals.sum())
    columns = [
        [f"synthetic-{number}" for number in range(1, count + 1)],
        *(draw(classes, generator) for draw in draws),
        [_label_cell(data, int(one)) for one in classes],
    ]
    header = (data.patient_id, *(feature.column for feature in data.features), data.label.columns[0])
    return header, list(zip(*columns, strict=True))


def _class_totals(given: Given, data: DataSchema) -> Numbers:
    """How many records each class has, from every count that tells it, float64[K]."""
    if not isinstance(data.label, Label | ClassLabel):
        raise ConfigurationError(
            f"data.label: expected classes to draw from, got {kind_name(data.label.kind)}"
        )
    names = label_names(data)
    told = [(one.values.reshape(-1), one.error) for one in given.labels]
    for found in given.histograms.values():
        for one in found:
            if one.asked.by_label:
                bins = one.counts.values.shape[1]
                told.append((one.counts.values.sum(1), one.counts.error * bins**0.5))
    if not told:
        raise ConfigurationError(
            "statistics: expected {kind: label}, or a histogram with by_label: true, to know how many "
            "records each class has; ask for one"
        )
    values, errors = np.array([one for one, _ in told]), np.array([max(error, 1e-9) for _, error in told])
    totals = np.zeros(len(names))
    for place, name in enumerate(names):
        totals[place], error = agreed_total(values[:, place], errors)
        if totals[place] <= 0 or totals[place] < LEAST_COUNT * error:
            raise ConfigurationError(
                f"{name}: expected {LEAST_COUNT:g} standard errors of records or more, got "
                f"{totals[place]:.4g} ± {error:.3g}; ask for less at once, or with a larger ε"
            )
    return totals


def _draw_of(feature: Feature, given: Given, totals: Numbers) -> Draw:
    found = given.histograms.get(feature.column, ())
    by_label = [one for one in found if one.asked.by_label]
    if found:
        return _from_histogram(feature, (by_label or found)[0], totals)
    if isinstance(feature, NumericFeature) and feature.column in given.moments:
        return _from_moments(feature, given.moments[feature.column])
    wanted = "a histogram" + (", or mean and variance" if isinstance(feature, NumericFeature) else "")
    raise ConfigurationError(
        f"{feature.column}: expected {wanted} in the answer, got none beside the noise; ask for it"
    )


def _from_histogram(feature: Feature, histogram: Histogram, totals: Numbers) -> Draw:
    counts = histogram.counts.values
    if not feature.missing:  # no cell could say it, so what was counted there is noise
        counts = counts[:, :-1]
    expected = totals if len(counts) == len(totals) else totals.sum(keepdims=True)
    chances = np.array(
        [nearest_counts(row, total) / total for row, total in zip(counts, expected, strict=True)]
    )
    cells = _cells_of(feature, histogram)

    def draw(classes: NDArray[np.intp], generator: np.random.Generator) -> list[str]:
        rows = classes if len(chances) == len(totals) else np.zeros_like(classes)
        ends = np.cumsum(chances, axis=1)[rows]
        bins = (generator.random(len(classes))[:, None] * ends[:, -1:] >= ends).sum(1)
        return [cells(int(bin_), generator) for bin_ in bins]

    return draw


def _cells_of(feature: Feature, histogram: Histogram) -> Callable[[int, np.random.Generator], str]:
    """The cell that a bin becomes: its category, a number within it, or what the schema calls missing."""
    missing = feature.missing[0] if feature.missing else ""
    if isinstance(feature, CategoricalFeature):
        named = (*feature.categories, missing)
        return lambda place, _: named[place]
    ranges = list(pairwise((feature.low, *histogram.asked.cuts, feature.high)))

    def within(place: int, generator: np.random.Generator) -> str:
        return missing if place == len(ranges) else f"{generator.uniform(*ranges[place]):.6g}"

    return within


def _from_moments(feature: NumericFeature, moments: Moments) -> Draw:
    deviation = max(moments.variance, 0.0) ** 0.5

    def draw(classes: NDArray[np.intp], generator: np.random.Generator) -> list[str]:
        values = generator.normal(moments.mean, deviation, len(classes))
        return [f"{value:.6g}" for value in np.clip(values, feature.low, feature.high)]

    return draw


def _label_cell(data: DataSchema, place: int) -> str:
    """A cell that is read back as this class."""
    label = data.label
    if isinstance(label, ClassLabel):
        return label.categories[place]
    if not isinstance(label, Label):
        raise TypeError("label: expected classes")
    return repr(label.threshold + place * max(1.0, abs(label.threshold)))
