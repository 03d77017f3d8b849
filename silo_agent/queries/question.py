"""What a job computes on and how it reads the data: a model to train or to evaluate, or columns alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privacy.plan import JobSpec, ModelTerms
from privacy.query_terms import EvaluationTerms, QueryTerms, StatisticsTerms
from privacy.schema import DataSchema, Feature
from silo_agent.models.adapters import ModelAdapter, assert_layout, find_adapter
from silo_agent.models.own import OwnAdapter
from silo_agent.models.partial import on_base


@dataclass(frozen=True)
class Question:
    """One query as an algorithm is given it."""

    terms: QueryTerms
    data: DataSchema
    weights: NDArray[np.float32] | None = field(default=None, repr=False)
    """float32[d] of the model that is evaluated, checked."""


def computed_model(job: JobSpec) -> ModelTerms | None:
    """The model that a job runs at a silo; ``None`` for statistics, which run none."""
    if job.query is None:
        return job.model
    return job.query.model if isinstance(job.query, EvaluationTerms) else None


def adapter_for(
    job: JobSpec, own: Mapping[str, OwnAdapter], public_models: Mapping[str, Path] = MappingProxyType({})
) -> ModelAdapter | None:
    """The adapter of that model, which has exactly the layout that the job says.

    Raises:
        PolicyRefusal, ConfigurationError: as ``find_adapter``, ``on_base`` and ``assert_layout``.
    """
    terms = computed_model(job)
    if terms is None:
        return None
    adapter = on_base(find_adapter(terms.adapter, own), terms, public_models)
    assert_layout(adapter, terms)
    return adapter


def schema_read(job: JobSpec) -> DataSchema:
    """The schema under which the silo reads its data for this job."""
    return statistics_schema(job.data) if isinstance(job.query, StatisticsTerms) else job.data


def statistics_schema(data: DataSchema) -> DataSchema:
    """The schema under which data are read for statistics.

    They need to know what is missing, and values as they are: the job's schema with an indicator for every
    feature, no transform and no common length for records. Ranges, categories and what means "missing" stay
    its own.
    """
    features = tuple(_with_indicator(feature) for feature in data.features)
    return data.model_copy(update={"features": features, "record_norm": None, "transform": None})


def _with_indicator(feature: Feature) -> Feature:
    return feature.model_copy(update={"indicator": True})
