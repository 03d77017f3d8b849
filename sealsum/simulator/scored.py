"""How a model does at each silo and over all of them: the figures of its label's kind, and how unequal they
are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.ids import SiloId
from privacy.labels import LabelKind
from privacy.measures import MeasureUndefined, accuracy, auc, concordance, rmse
from privacy.model_terms import ModelTerms
from sealsum.simulator.gathered import joined
from silo_agent.data.records import Records
from silo_agent.models.adapters import ModelAdapter, predict_scores

FigureName: TypeAlias = Literal["accuracy", "AUC", "RMSE", "C-index"]
LOWER_IS_BETTER: Final[frozenset[FigureName]] = frozenset({"RMSE"})


def figures_for(kind: LabelKind, classes: int) -> tuple[FigureName, ...]:
    """What is told of a model, the first being what it is judged by.

    Raises:
        ConfigurationError: simulations have no figure of such a label.
    """
    if kind == "classes":
        return ("accuracy", "AUC") if classes == 2 else ("accuracy",)
    if kind == "real":
        return ("RMSE",)
    if kind in ("cox", "exponential"):
        return ("C-index",)
    raise ConfigurationError(
        f"data.label: expected classes, a number or survival times in a simulation, got {kind}"
    )


@dataclass(frozen=True)
class Scored:
    """One figure of one model."""

    name: FigureName
    by_silo: Mapping[SiloId, float] = field(repr=False)
    """Silos whose held-out records have such a figure; one of a single class has no AUC."""
    together: float
    """Over all held-out records at once."""

    @property
    def mean(self) -> float:
        """Over silos, each counting once."""
        return float(np.mean(list(self.by_silo.values())))

    @property
    def variance(self) -> float:
        """Between silos: Σm²/K − (Σm/K)²."""
        return float(np.var(list(self.by_silo.values())))

    @property
    def worst(self) -> float:
        """Of the silo that is served worst."""
        values = self.by_silo.values()
        return max(values) if self.name in LOWER_IS_BETTER else min(values)

    def share_below(self, threshold: float) -> float:
        """Part of the silos that are served worse than that."""
        sign = -1 if self.name in LOWER_IS_BETTER else 1
        return float(np.mean([sign * one < sign * threshold for one in self.by_silo.values()]))


def score(
    adapter: ModelAdapter,
    terms: ModelTerms,
    models: Mapping[SiloId, NDArray[np.float32]],
    held_out: Mapping[SiloId, Records],
) -> dict[FigureName, Scored]:
    """Score each silo's model on its own held-out records: the same model at all silos, or one each.

    Raises:
        ConfigurationError: as ``figures_for``; or no silo has such a figure.
    """
    scores = {
        silo: predict_scores(adapter, terms, models[silo], held_out[silo].features) for silo in held_out
    }
    every = joined(list(held_out.values()))
    at_once = np.concatenate(list(scores.values()))
    strata = np.repeat(np.arange(len(held_out)), [len(records) for records in held_out.values()])
    found: dict[FigureName, Scored] = {}
    for name in figures_for(every.kind, every.classes):
        by_silo = {}
        for silo, records in held_out.items():
            try:
                by_silo[silo] = figure(name, scores[silo], records.labels)
            except MeasureUndefined:
                continue
        if not by_silo:
            raise ConfigurationError(
                f"{name}: expected a silo whose held-out records have both classes, or an event that a "
                "record outlived"
            )
        found[name] = Scored(name, by_silo, figure(name, at_once, every.labels, strata))
    return found


def figure(
    name: FigureName,
    scores: NDArray[np.float32],
    labels: NDArray[np.float32],
    strata: NDArray[np.intp] | None = None,
) -> float:
    """
    Args:
        strata: each record's silo: a C-index compares within silos, which may have baselines of their own.

    Raises:
        MeasureUndefined: these records have none.
    """
    if name == "RMSE":
        return rmse(scores, labels)
    if name == "AUC":
        return auc(scores, labels)
    if name == "C-index":
        return concordance(scores, labels[:, 0], labels[:, 1], strata)
    predicted = (scores > 0) if scores.ndim == 1 else scores.argmax(1)
    return accuracy(predicted.astype(np.float32), labels)
