"""Ways to a hospital's model: alone, together, then its own, or with parts of its own all along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from torch import nn

from benchmarks.flamby_heart import Halves, flamby_hospitals, flamby_schema
from privacy.dp.calibration import calibrated_noise
from privacy.ids import PartyId, SiloId
from privacy.personal_terms import PersonalTerms
from privacy.plan import DpTerms, LocalTerms, ModelTerms, ServerTerms, TensorSpec, TrainingTerms, VectorTerms
from sealsum.simulator.federation import Federation, Standing
from sealsum.simulator.plan import RoundTerms
from silo_agent.algorithms.own_parts import DITTO, coordinates_of, in_place
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS, ModelAdapter
from silo_agent.models.layouts import model_terms
from silo_agent.personal.methods import Choices, Made, ditto, fine_tune, local_only, maximum_a_posteriori
from silo_agent.personal.workplace import Vector, Workplace, first_weights

ROUNDS: Final = 100
DP_STEPS: Final = 100
EPSILON: Final = 1.0
DELTA: Final = 1e-3
"""As in FLamby's comparison under DP."""
VECTOR: Final = VectorTerms(coordinate_bound=64.0, scale_bits=22)
ONE_STEP: Final = VectorTerms(coordinate_bound=4.0, scale_bits=26)
HIDDEN: Final = 16


class Normalised:
    """A hidden layer behind a batch normalisation, as a hospital's own adapter would build it."""

    def layout(self, terms: ModelTerms) -> tuple[TensorSpec, ...]:
        return terms.layout

    def build(self, terms: ModelTerms) -> nn.Module:
        return nn.Sequential(
            nn.Linear(terms.inputs, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )


@dataclass(frozen=True)
class Kind:
    """A model, and the code that builds it."""

    adapter: ModelAdapter = field(hash=False, compare=False)
    terms: ModelTerms


@dataclass(frozen=True)
class Scored:
    """A hospital's model, and how it is scored: with its own training patients' batch statistics."""

    place: Workplace
    vector: Vector = field(repr=False)


Recipe = Callable[[Mapping[str, Halves]], dict[str, Scored]]


def kind_of(name: str, hidden: tuple[int, ...] = ()) -> Kind:
    """A built-in model, or ``normalised``."""
    width = flamby_schema().width
    if name != "normalised":
        return Kind(ADAPTERS[name], model_terms(name, width, hidden))
    built = Normalised().build(ModelTerms(adapter="x", inputs=width, layout=()))
    layout = tuple(
        TensorSpec(name=tensor, shape=tuple(one.shape)) for tensor, one in built.named_parameters()
    )
    return Kind(Normalised(), ModelTerms(adapter="normalised", inputs=width, layout=layout))


def places(kind: Kind, hospitals: Mapping[str, Halves]) -> dict[str, Workplace]:
    """Each hospital's training patients."""
    return {name: Workplace(kind.adapter, kind.terms, one.train) for name, one in hospitals.items()}


def alone(kind: Kind) -> Recipe:
    """Each hospital's own model."""
    return lambda hospitals: {
        name: Scored(place, local_only(place).vector) for name, place in places(kind, hospitals).items()
    }


def pooled(kind: Kind) -> Recipe:
    """All training patients in one place."""

    def made(hospitals: Mapping[str, Halves]) -> dict[str, Scored]:
        each = [one.train for one in hospitals.values()]
        everybody = Records(
            np.concatenate([one.features for one in each]),
            np.concatenate([one.labels for one in each]),
            tuple(f"{number}/{patient}" for number, one in enumerate(each) for patient in one.patients),
        )
        vector = local_only(Workplace(kind.adapter, kind.terms, everybody)).vector
        return {name: Scored(place, vector) for name, place in places(kind, hospitals).items()}

    return made


@lru_cache(maxsize=32)
def trained(kind: Kind, personal: PersonalTerms | None, epsilon: float | None = None) -> Standing:
    """A federation over the four hospitals: fedavgm, or with ε one private step a round."""
    silos = {SiloId(PartyId(name.replace(" ", "-").lower())): one.train for name, one in flamby().items()}
    if epsilon is None:
        mixed = personal is not None and personal.kind == "mixed_intervals"
        training = TrainingTerms(
            algorithm="fedavg",
            local_steps=10,
            learning_rate=0.3,
            server_learning_rate=1.0 if mixed else 0.5,
            server=ServerTerms(momentum=0.0 if mixed else 0.9),
            local=LocalTerms(gradient_clip=10.0),
            personal=personal,
        )
        terms = RoundTerms(kind.terms, training, None, VECTOR)
    else:
        training = TrainingTerms(
            algorithm="dp_fedsgd",
            local_steps=1,
            learning_rate=1.0,
            server_learning_rate=1.0,
            server=ServerTerms(tail_rounds=DP_STEPS // 2),
            personal=personal,
        )
        noise = calibrated_noise(epsilon, DELTA, 0.25, DP_STEPS, "add_remove").noise_multiplier
        dp = DpTerms(
            model="distributed",
            noise_shares=len(silos),
            unit="record",
            sample_rate=0.25,
            noise_multiplier=noise,
            clip_l2=0.5,
            normaliser=0.25 * 120,
            delta=DELTA,
        )
        terms = RoundTerms(kind.terms, training, dp, ONE_STEP)
    federation = Federation(terms, kind.adapter, silos, ROUNDS if epsilon is None else DP_STEPS)
    standing = federation.at(first_weights(kind.adapter, kind.terms))
    while standing.rounds_done < federation.rounds:
        standing = federation.after_round(standing)
    return standing


@lru_cache(maxsize=1)
def flamby() -> Mapping[str, Halves]:
    """The four hospitals, read once."""
    return flamby_hospitals(flamby_schema())


def shared(kind: Kind, personal: PersonalTerms | None = None, epsilon: float | None = None) -> Recipe:
    """The federation's model, the same at every hospital."""
    return lambda hospitals: {
        name: Scored(place, trained(kind, personal, epsilon).model)
        for name, place in places(kind, hospitals).items()
    }


def afterwards(
    kind: Kind,
    method: Callable[[Workplace, Vector, Choices], Made],
    choices: Choices,
    personal: PersonalTerms | None = None,
    epsilon: float | None = None,
) -> Recipe:
    """The federation's model, and then each hospital's own by a method of ``silo personalise``."""
    return lambda hospitals: {
        name: Scored(place, method(place, trained(kind, personal, epsilon).model, choices).vector)
        for name, place in places(kind, hospitals).items()
    }


def all_along(kind: Kind, personal: PersonalTerms, epsilon: float | None = None) -> Recipe:
    """The federation's model with what each hospital has kept of its own."""

    def made(hospitals: Mapping[str, Halves]) -> dict[str, Scored]:
        standing = trained(kind, personal, epsilon)
        kept = dict(zip(hospitals, standing.memories.values(), strict=True))
        return {
            name: Scored(place, _own(kind, personal, standing.model, kept[name].arrays))
            for name, place in places(kind, hospitals).items()
        }

    return made


def _own(kind: Kind, personal: PersonalTerms, model: Vector, arrays: Mapping[str, Vector]) -> Vector:
    if personal.kind == "ditto":
        return arrays[DITTO]
    return in_place(model, arrays, coordinates_of(kind.adapter, kind.terms, personal))


LOGISTIC, MLP, NORMALISED = kind_of("logistic"), kind_of("mlp", (HIDDEN,)), kind_of("normalised")
INTERCEPT = PersonalTerms(kind="fedper", local_param=("intercept",))
HEAD = PersonalTerms(kind="fedper", local_param=("last",))
GATE = PersonalTerms(kind="fedper", local_param=("gate",))
EMBEDDING = PersonalTerms(kind="fedper", local_param=("embedding",))
NORMS = PersonalTerms(kind="fedbn")
BESIDE = PersonalTerms(kind="ditto", regular_weight=0.1, learning_rate=0.3, steps=10)
ONE_STEP_LATER = PersonalTerms(kind="per_fedavg", learning_rate=0.3)
SELDOM = PersonalTerms(kind="mixed_intervals", local_param=("last",), every=5)
RECIPES: Final[Mapping[str, Recipe]] = {
    "local only": alone(LOGISTIC),
    "pooled": pooled(LOGISTIC),
    "fedavgm": shared(LOGISTIC),
    "fedavgm, then fine_tune": afterwards(LOGISTIC, fine_tune, Choices()),
    "fedavgm, then map": afterwards(LOGISTIC, maximum_a_posteriori, Choices()),
    "fedavgm, then ditto": afterwards(LOGISTIC, ditto, Choices()),
    "local_intercept": all_along(LOGISTIC, INTERCEPT),
    "ditto in the loop": all_along(LOGISTIC, BESIDE),
    "per_fedavg, then one step": afterwards(
        LOGISTIC, fine_tune, Choices(steps=1, learning_rate=0.3), ONE_STEP_LATER
    ),
    "moe, gate of its own": all_along(kind_of("experts", (3,)), GATE),
    "hypernetwork": all_along(kind_of("hypernetwork", (4,)), EMBEDDING),
    "mlp, local only": alone(MLP),
    "mlp, fedavgm": shared(MLP),
    "mlp, fedper": all_along(MLP, HEAD),
    "mlp, last layer every 5 rounds": all_along(MLP, SELDOM),
    "mlp with batch norm, fedavgm": shared(NORMALISED),
    "mlp with batch norm, fedbn": all_along(NORMALISED, NORMS),
    "ε = 1": shared(LOGISTIC, None, EPSILON),
    "ε = 1, then map": afterwards(LOGISTIC, maximum_a_posteriori, Choices(), None, EPSILON),
    "ε = 1, ditto in the loop": all_along(LOGISTIC, BESIDE, EPSILON),
}
"""Name → each hospital's model. Personal models of a job with DP cost what the job costs."""
