"""A cell of the non-IID benchmark: a recipe on a partition under a seed, and the file that keeps it.

Silo half, encoding on the job's grid, sum and server half are those of the product
(``sealsum.simulator.federation``); masks are left out, since the opened sum is the same element by element.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.noniid_grounds import Ground
from benchmarks.noniid_recipes import Recipe
from policies.upload_size import upload_bytes
from privacy.errors import Unprocessable
from privacy.update import model_bytes, model_digest
from sealsum.job_further import algorithm_further, with_clip, with_silos
from sealsum.job_grid import coarse_vector, finest_vector
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms, simulated_plan
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, predict_scores
from silo_agent.models.layouts import initial_vector

Vector = NDArray[np.float32]
TARGETS: Final = (95, 97, 98)
_AT_ONCE: Final = 2000
"""Records scored in one pass."""


@dataclass(frozen=True)
class Figures:
    """How good a model is, in percent: right answers, or of a number the variance that is explained."""

    mean: float
    """Over silos; over all records where all are scored on one table."""
    worst_class: float
    """Of the class that is told worst; of a number the store that is."""
    by_silo: dict[str, float]
    """On records as the silo has them."""


@dataclass(frozen=True)
class SeedRun:
    """One seed's."""

    seed: int
    final: float
    worst_class: float
    by_silo: dict[str, float]
    curve: dict[str, float]
    """Round → mean, of rounds that were scored."""
    bytes_up_per_round: int
    """Of vectors, a silo."""
    cpu_s: float
    failure: str = ""
    """Why training ended early; the figures are of the last model then."""


def federation_of(recipe: Recipe, ground: Ground) -> Federation:
    """What a job of this recipe would be: its terms, its grid and the silos."""
    silos, training = len(ground.silos), with_silos(recipe.terms, len(ground.silos))
    vector = finest_vector("additive", silos)
    if recipe.bits is not None:
        training = with_clip(training, recipe.bound)
        vector = coarse_vector(recipe.bits, recipe.bound, "additive", silos)
    further = algorithm_further(training, ground.model, "additive", silos)
    terms = RoundTerms(ground.model, training, None, vector, further)
    return Federation(terms, ADAPTERS[ground.model.adapter], ground.silos, recipe.rounds)


def run(recipe: Recipe, ground: Ground, seed: int, told: Callable[[float], None] = lambda _: None) -> SeedRun:
    """All rounds.

    Args:
        told: called after each round with the last score.
    """
    began = time.process_time()
    federation = federation_of(recipe, ground)
    drawn = np.random.default_rng(seed)
    dropping, names = round(recipe.dropped * len(ground.silos)), sorted(ground.silos)
    standing = federation.at(initial_vector(ground.model, seed))
    figures, curve, failure = figures_of(ground, standing.model), {}, ""
    for number in range(1, recipe.rounds + 1):
        dropped = [names[place] for place in drawn.permutation(len(names))[:dropping]]
        try:
            standing = federation.after_round(standing, dropped)
        except Unprocessable as problem:
            failure = f"round {number}: {problem}"
            break
        if number % recipe.scored_every == 0 or number == recipe.rounds:
            figures = figures_of(ground, standing.model)
            curve[str(number)] = figures.mean
        told(figures.mean)
    return SeedRun(
        seed=seed,
        final=figures.mean,
        worst_class=figures.worst_class,
        by_silo=figures.by_silo,
        curve=curve,
        bytes_up_per_round=_bytes_up(federation),
        cpu_s=round(time.process_time() - began, 1),
        failure=failure,
    )


def figures_of(ground: Ground, model: Vector) -> Figures:
    """Score a model."""
    if ground.shared is not None:
        hits = _hits(ground, model, ground.shared)
        recalls = _recalls(hits, ground.shared.labels)
        by_silo = {
            str(silo): 100 * float(_shares(held, ground.shared.classes) @ recalls)
            for silo, held in ground.silos.items()
        }
        return Figures(100 * float(hits.mean()), 100 * float(recalls.min()), by_silo)
    if next(iter(ground.held_out.values())).kind == "real":
        explained = {str(silo): 100 * _explained(ground, model, one) for silo, one in ground.held_out.items()}
        return Figures(float(np.mean(list(explained.values()))), min(explained.values()), explained)
    hits_of = {silo: _hits(ground, model, one) for silo, one in ground.held_out.items()}
    labels = np.concatenate([one.labels for one in ground.held_out.values()])
    recalls = _recalls(np.concatenate(list(hits_of.values())), labels)
    by_silo = {str(silo): 100 * float(hits.mean()) for silo, hits in hits_of.items()}
    return Figures(float(np.mean(list(by_silo.values()))), 100 * float(recalls.min()), by_silo)


def _scores(ground: Ground, model: Vector, records: Records) -> Vector:
    adapter = ADAPTERS[ground.model.adapter]
    parts = [
        predict_scores(adapter, ground.model, model, records.features[start : start + _AT_ONCE])
        for start in range(0, len(records), _AT_ONCE)
    ]
    return np.concatenate(parts)


def _hits(ground: Ground, model: Vector, records: Records) -> NDArray[np.bool_]:
    scores = _scores(ground, model, records)
    guessed = (scores > 0) if scores.ndim == 1 else scores.argmax(1)
    hits: NDArray[np.bool_] = guessed == records.labels
    return hits


def _recalls(hits: NDArray[np.bool_], labels: Vector) -> NDArray[np.float64]:
    return np.array([hits[labels == label].mean() for label in np.unique(labels)])


def _shares(records: Records, classes: int) -> NDArray[np.float64]:
    counts = np.bincount(records.labels.astype(np.intp), minlength=classes)
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def _explained(ground: Ground, model: Vector, records: Records) -> float:
    """1 − Σ(ŷ − y)² / Σ(y − ȳ)²."""
    missed = np.square(_scores(ground, model, records) - records.labels).sum()
    return 1.0 - float(missed / np.square(records.labels - records.labels.mean()).sum())


def _bytes_up(federation: Federation) -> int:
    terms = federation.terms
    digest = model_digest(terms.model, [model_bytes(np.zeros(terms.model.parameters, dtype=np.float32))])
    return upload_bytes(simulated_plan(terms, federation.silos.keys(), digest))


@dataclass(frozen=True)
class Cell:
    """A partition and an algorithm, with the file that keeps its runs."""

    partition: str
    algorithm: str
    file: Path = field(repr=False)

    def runs(self, recipe: Recipe) -> list[SeedRun]:
        """What was measured under this very recipe, by seed."""
        if not self.file.exists():
            return []
        kept = json.loads(self.file.read_text(encoding="utf-8"))
        if kept["recipe"] != _told(recipe):
            return []
        return [SeedRun(**one) for one in kept["runs"]]

    def keep(self, recipe: Recipe, runs: list[SeedRun]) -> None:
        """Write them, with the recipe that they are of."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        told = {
            "recipe": _told(recipe),
            "runs": [asdict(one) for one in sorted(runs, key=lambda one: one.seed)],
        }
        self.file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _told(recipe: Recipe) -> dict[str, Any]:
    terms = recipe.terms.model_dump(mode="json")
    return {**asdict(recipe), "training": dict(recipe.training), "terms": terms}


def rounds_to(runs: list[SeedRun], target: float) -> int | None:
    """Rounds after which the slowest seed is at the target; ``None`` where one never is."""
    firsts = [_first(one.curve, target) for one in runs]
    reached = [one for one in firsts if one is not None]
    return max(reached) if reached and len(reached) == len(firsts) else None


def _first(curve: Mapping[str, float], target: float) -> int | None:
    return next((int(number) for number, mean in curve.items() if mean >= target), None)
