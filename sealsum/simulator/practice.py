"""Records to try settings on before any silo's are touched: a public table, or made up from a job's schema.

Nobody's privacy budget is spent on either. Made-up records know nothing of the question: they tell whether
training gets anywhere under the noise, not how well a real model will do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.ids import PartyId, SiloId
from privacy.labels import classes_of
from privacy.schema import CategoricalFeature, DataSchema
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.features.catalogue import fixed_features
from silo_agent.features.views import views_of

HELD_OUT = 0.25
FEWEST = 20
_LABEL_NOISE = 0.5
"""Deviation of what blurs the made-up rule, over that of the rule."""


@dataclass(frozen=True)
class Practice:
    """Records that a trial may be trained on, and those that it is scored on."""

    training: Records = field(repr=False)
    held_out: Records = field(repr=False)

    def silos(self, count: int, size: int, seed: int) -> dict[SiloId, Records]:
        """As many silos of so many records each, drawn with replacement."""
        generator = np.random.default_rng(seed)
        return {
            SiloId(PartyId(f"silo-{number}")): _with_views(
                self.training, generator.integers(0, self.training.unit_count, size)
            )
            for number in range(1, count + 1)
        }


def public_table(path: Path, schema: DataSchema) -> Practice:
    """A CSV that everybody may read, under the job's schema.

    Raises:
        ConfigurationError: it does not fit the schema, or holds too few records to hold some out.
    """
    records = read_csv_table(path, schema, "record")
    if records.unit_count < FEWEST:
        raise ConfigurationError(
            f"{path}: expected {FEWEST} records or more to train on some and score on others, "
            f"got {records.unit_count}"
        )
    return _held_out(records)


def made_up(schema: DataSchema, count: int, seed: int = 0) -> Practice:
    """Records spread evenly over the schema's ranges and categories, labelled by a blurred linear rule."""
    generator = np.random.default_rng(seed)
    columns: list[NDArray[np.float64]] = []
    for feature in schema.features:
        if isinstance(feature, CategoricalFeature):
            chosen = generator.integers(0, len(feature.categories), count)
            columns.append(np.eye(len(feature.categories))[chosen])
        else:
            columns.append(generator.uniform(-1, 1, (count, 1)))
        if feature.indicator:
            columns.append(np.zeros((count, 1)))
    features = np.concatenate(columns, axis=1).astype(np.float32)
    views = 1 if schema.views is None else schema.views.count
    if schema.views is not None:
        features = views_of(schema.views, features).reshape(-1, schema.columns_width)
    if schema.transform is not None:
        features = fixed_features(schema.transform, features)
    classes = classes_of(schema.label)
    own = features[::views]
    scores = (own - own.mean(0)) @ generator.standard_normal((features.shape[1], classes))
    scores += _LABEL_NOISE * scores.std() * generator.standard_normal(scores.shape)
    labels = np.repeat(scores.argmax(1).astype(np.float32), views)
    units = None if views == 1 else np.repeat(np.arange(count), views)
    return _held_out(Records(features, labels, classes=classes, units=units, views=views))


def _held_out(records: Records) -> Practice:
    """Records whose views are all in training, and others, each as it is."""
    order = np.random.default_rng(0).permutation(records.unit_count)
    cut = round(len(order) * HELD_OUT)
    as_it_is = replace(records, units=None, views=1).rows(order[:cut] * records.views)
    return Practice(_with_views(records, order[cut:]), as_it_is)


def _with_views(records: Records, chosen: NDArray[np.intp]) -> Records:
    """These of the records, one a unit, with all their views, which lie one after the other."""
    if records.views == 1:
        return records.rows(chosen)
    rows = (chosen[:, None] * records.views + np.arange(records.views)).ravel()
    alone = replace(records, units=None, views=1).rows(rows)
    return replace(alone, units=np.repeat(np.arange(len(chosen)), records.views), views=records.views)
