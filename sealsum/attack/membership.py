"""Can one tell who was trained on? Loss threshold and shadow models, on a model trained without and with DP.

A black-box attack on a trained model is a smoke alarm: it can show a leak, never its absence. LiRA (Carlini
et al. 2022, arXiv 2112.03570), offline form with one deviation for all: a record's confidence less its mean
over shadow models that never saw it. What counts there is how many are found at 0.1 % false alarms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privacy.dp.accountant import price
from privacy.dp.events import DpEvent
from privacy.plan import DpTerms, ModelTerms, TrainingTerms, VectorTerms
from sealsum.attack.bounds import area_deviation, area_under_curve, found_at, share_at_least
from sealsum.attack.cohort import DELTA, names
from sealsum.attack.effort import Effort
from sealsum.attack.outcome import Findings, Outcome
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.sums import RingSum, plain_ring_sum, secure_ring_sum
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, predict_scores
from silo_agent.models.layouts import model_terms

FALSE_ALARMS: Final = 0.001
ERROR: Final = 1e-5
"""Probability, at most, with which a bound that holds is called violated, were members independent."""
_WIDTH, _MEMBERS, _OTHERS, _SILOS = 1024, 128, 4000, 4
_EASY, _EASY_SIGNAL, _HARD_SIGNAL = 0.3, 6.0, 0.3
"""Some records anybody gets right; the others have to be learnt by heart."""
_VECTOR: Final = VectorTerms(coordinate_bound=64.0, scale_bits=22)
_SEED: Final = 3


@dataclass(frozen=True)
class Recipe:
    """How target and shadows are trained, all alike."""

    protection: str
    training: TrainingTerms
    dp: DpTerms | None
    rounds: int


@dataclass(frozen=True)
class Population:
    """Where records come from: public code, public seed."""

    generator: np.random.Generator = field(repr=False)
    direction: NDArray[np.float64] = field(repr=False)

    def draw(self, count: int) -> Records:
        """So many records, two classes, width 1024, of norm about 1."""
        labels = self.generator.random(count) < 0.5
        signal = np.where(self.generator.random(count) < _EASY, _EASY_SIGNAL, _HARD_SIGNAL)
        signed = np.where(labels, signal, -signal)[:, None] * self.direction
        features = (self.generator.standard_normal((count, _WIDTH)) + signed) / math.sqrt(_WIDTH)
        return Records(features.astype(np.float32), labels.astype(np.float32))


WITHOUT: Final = Recipe(
    protection="FedAvg without DP",
    training=TrainingTerms(algorithm="fedavg", local_steps=20, learning_rate=100.0, server_learning_rate=1.0),
    dp=None,
    rounds=10,
)


def with_dp(rounds: int = 20, noise: float = 16.0) -> Recipe:
    """``dp_fedsgd`` over the same data: ε about 1."""
    return Recipe(
        protection=f"dp_fedsgd, {rounds} rounds, σ = {noise:g}",
        training=TrainingTerms(
            algorithm="dp_fedsgd", local_steps=1, learning_rate=5.0, server_learning_rate=1.0
        ),
        dp=DpTerms(
            model="distributed",
            noise_shares=_SILOS,
            unit="record",
            sample_rate=1.0,
            noise_multiplier=noise,
            clip_l2=1.0,
            normaliser=_MEMBERS / _SILOS,
            delta=DELTA,
        ),
        rounds=rounds,
    )


def audit_membership(effort: Effort) -> Findings:
    """Both scores on both models."""
    outcomes: list[Outcome] = []
    for recipe in (WITHOUT, with_dp()):
        outcomes += _attack(recipe, effort.shadows)
    return Findings(tuple(outcomes))


def _attack(recipe: Recipe, shadows: int) -> list[Outcome]:
    population = _population()
    members, others = population.draw(_MEMBERS), population.draw(_OTHERS)
    target = _train(recipe, members, secure_ring_sum)
    inside, outside = _confidence(target, members), _confidence(target, others)
    usual_inside, usual_outside = np.zeros(_MEMBERS), np.zeros(_OTHERS)
    for _ in range(shadows):
        # Each sees records of its own; without masks, whose sum is the same.
        shadow = _train(recipe, population.draw(_MEMBERS), plain_ring_sum)
        usual_inside += _confidence(shadow, members) / shadows
        usual_outside += _confidence(shadow, others) / shadows
    return [
        _outcome("membership, loss threshold", recipe, inside, outside, must_succeed=False),
        _outcome(
            "membership, shadow models",
            recipe,
            inside - usual_inside,
            outside - usual_outside,
            must_succeed=True,
        ),
    ]


def _outcome(
    attack: str,
    recipe: Recipe,
    inside: NDArray[np.float64],
    outside: NDArray[np.float64],
    must_succeed: bool,
) -> Outcome:
    area = area_under_curve(inside, outside)
    found = found_at(inside, outside, FALSE_ALARMS)
    rate = found / len(inside)
    mu = _mu(recipe)
    if mu is None:
        # Without a claim to exceed: better than chance beyond doubt, and for LiRA at few false alarms too.
        succeeded = area >= 0.6 and (rate >= 0.05 or not must_succeed)
        expected = "AUC ≥ 0.6" + (" and 5 % found" if must_succeed else "")
    else:
        area_bound = float(stats.norm.cdf(mu / math.sqrt(2)))
        rate_bound = float(stats.norm.cdf(mu + stats.norm.ppf(FALSE_ALARMS)))
        surely = area - float(stats.norm.isf(ERROR / 2)) * area_deviation(area, len(inside), len(outside))
        succeeded = surely > area_bound or share_at_least(found, len(inside), ERROR / 2) > rate_bound
        expected = f"by ε: AUC ≤ {area_bound:.3f}, found ≤ {100 * rate_bound:.2f} %"
    return Outcome(
        attack=attack,
        protection=recipe.protection,
        protected=mu is not None,
        succeeded=succeeded,
        measured=f"AUC {area:.3f}, {100 * rate:.1f} % found at {100 * FALSE_ALARMS:g} % false alarms",
        expected=expected,
        figures={
            "auc": area,
            "tpr_at_0.001_fpr": rate,
            "members": len(inside),
            "others": len(outside),
            **_claimed(recipe),
        },
    )


def _mu(recipe: Recipe) -> float | None:
    """What the accountant says: a threshold test tells N(μ, 1) from N(0, 1) at best."""
    events = _events(recipe)
    return price(events, DELTA, "add_remove").mu if events else None


def _claimed(recipe: Recipe) -> dict[str, float]:
    events = _events(recipe)
    return {"epsilon": price(events, DELTA, "add_remove").epsilon} if events else {}


def _events(recipe: Recipe) -> list[DpEvent]:
    if recipe.dp is None:
        return []
    noise = recipe.dp.noise_multiplier
    return [DpEvent(sample_rate=1.0, noise_multiplier=noise, steps=recipe.rounds)]


def _train(recipe: Recipe, records: Records, add: RingSum) -> NDArray[np.float32]:
    """A model of four silos, each with every fourth record, float32[d]."""
    silos = {
        silo: Records(records.features[place::_SILOS], records.labels[place::_SILOS])
        for place, silo in enumerate(names(_SILOS))
    }
    model = _model()
    terms = RoundTerms(model, recipe.training, recipe.dp, _VECTOR)
    federation = Federation(terms, ADAPTERS["logistic"], silos, recipe.rounds, add)
    return federation.train(np.zeros(model.parameters, dtype=np.float32))


def _confidence(model: NDArray[np.float32], records: Records) -> NDArray[np.float64]:
    """The logit of the true class: the loss is a falling function of it."""
    scores = predict_scores(ADAPTERS["logistic"], _model(), model, records.features).astype(np.float64)
    return np.where(records.labels > 0, scores, -scores)


def _model() -> ModelTerms:
    return model_terms("logistic", _WIDTH)


def _population() -> Population:
    generator = np.random.default_rng(_SEED)
    direction = generator.standard_normal(_WIDTH)
    return Population(generator, direction / np.linalg.norm(direction))
