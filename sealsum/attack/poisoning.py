"""How far can one silo, or one record, pull the sum? With and without norm proofs, with and without clipping.

Proofs bound what a *silo* sends; clipping bounds what a *record* does at a silo that clips. A malicious silo
does not clip: DP alone does not stop it. Neither stops a poison that stays within the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.ids import SiloId
from privacy.plan import RoundPlan, TrainingTerms, ValidityClaim, VectorTerms
from privacy.secagg.validity.encoding import from_ring
from privacy.secagg.validity.terms import terms_of
from sealsum.attack.cohort import (
    NO_CLIP,
    NO_NOISE,
    in_the_clear,
    names,
    private_step,
    round_plan,
    step_terms,
)
from sealsum.attack.effort import Effort
from sealsum.attack.images import PIXELS, features_of, records_of, synthetic_images
from sealsum.attack.outcome import Findings, Outcome
from sealsum.attack.proofs import passes
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.sums import secure_sum
from silo_agent.data.records import Records
from silo_agent.encoded import EncodedUpdate
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from silo_agent.update import FloatUpdate, Update

NORM_BOUND: Final = 2.0
_FACTOR: Final = 10.0
_SPIKE: Final = 50.0
_EACH, _SEED, _SILOS = 40, 5, 4
_VECTOR: Final = VectorTerms(coordinate_bound=64.0, scale_bits=18)
_MODEL: Final = model_terms("logistic", PIXELS)
_TRAINING: Final = TrainingTerms(
    algorithm="fedavg", local_steps=10, learning_rate=0.5, server_learning_rate=1.0
)
_CLIP: Final = 1.0
_ROUNDING: Final = 1e-3


@dataclass(frozen=True)
class Poison:
    """What the malicious silo puts into the sum, and what it proves where a proof is asked for."""

    title: str
    shared: NDArray[np.float32] = field(repr=False)
    proven: NDArray[np.float32] = field(repr=False)


def audit_poisoning(effort: Effort) -> Findings:
    """One malicious silo of four, and one poisoned record at an honest silo."""
    return Findings((*_silo_outcomes(), *_record_outcomes()))


def _silo_outcomes() -> list[Outcome]:
    start = np.zeros(_MODEL.parameters, dtype=np.float32)
    federation = _federation()
    plan = round_plan(federation, start).model_copy(update={"validity": ValidityClaim(norm_bound=NORM_BOUND)})
    updates = {silo: in_the_clear(federation.update_of(silo, start), _VECTOR) for silo in plan.silos}
    malicious = plan.silos[-1]
    own = updates[malicious].astype(np.float32)
    spike = np.zeros_like(own)
    spike[0] = _SPIKE
    longest = -own / np.float32(np.linalg.norm(own)) * np.float32(NORM_BOUND)
    outcomes = []
    for poison in (
        Poison("minus ten times the update", -_FACTOR * own, own),
        Poison("a spike in one coordinate", spike, own),
    ):
        for checked in (False, True):
            pull = _pull(plan, updates, malicious, poison, checked)
            outcomes.append(_silo_outcome(poison.title, checked, pull))
    within = Poison("the bound spent in one direction", longest, longest)
    outcomes.append(_silo_outcome(within.title, True, _pull(plan, updates, malicious, within, True)))
    return outcomes


def _pull(
    plan: RoundPlan,
    updates: dict[SiloId, NDArray[np.float64]],
    malicious: SiloId,
    poison: Poison,
    checked: bool,
) -> float:
    """‖what the malicious silo puts into the opened sum‖₂; 0 if it is left out."""
    terms = terms_of(plan)
    honest: dict[SiloId, Update] = {
        silo: FloatUpdate(update.astype(np.float32)) for silo, update in updates.items() if silo != malicious
    }
    everyone = {**honest, malicious: FloatUpdate(poison.shared)}
    survivors = dict(everyone)
    if checked:
        encoded = {silo: _encoded(plan, update) for silo, update in everyone.items()}
        # Encoding rounds at random, so the very integers that are shared must be proven.
        proven = dict(encoded)
        if poison.proven is not poison.shared:
            proven[malicious] = _encoded(plan, FloatUpdate(poison.proven))
        survivors = {
            silo: update
            for silo, update in everyone.items()
            if passes(plan, terms, silo, encoded[silo], proven[silo])
        }
    total = secure_sum(plan, survivors)
    return float(np.linalg.norm(total - sum(updates[silo] for silo in honest)))


def _encoded(plan: RoundPlan, update: Update) -> NDArray[np.int64]:
    return from_ring(EncodedUpdate(plan, update, 1.0).elements(0, plan.vector_length))


def _silo_outcome(title: str, checked: bool, pull: float) -> Outcome:
    # Rounding to the grid moves each coordinate of four updates by less than a step.
    slack = _SILOS * np.sqrt(_MODEL.parameters) / 2.0**_VECTOR.scale_bits
    return Outcome(
        attack=f"malicious silo: {title}",
        protection=f"norm proofs, bound {NORM_BOUND:g}" if checked else "no proofs (with or without DP)",
        protected=checked,
        succeeded=bool(pull > NORM_BOUND + slack),
        measured=f"moves the sum by {pull:.2f}",
        expected=f"at most {NORM_BOUND:g} with proofs",
        figures={"pull": pull, "bound": NORM_BOUND},
    )


def _record_outcomes() -> list[Outcome]:
    outcomes = []
    for clip, protection, protected in (
        (NO_CLIP, "no clip", False),
        (_CLIP, f"gradients clipped to C = {_CLIP:g}", True),
    ):
        pull = _record_pull(clip)
        outcomes.append(
            Outcome(
                attack="one poisoned record at an honest silo",
                protection=protection,
                protected=protected,
                succeeded=pull > _CLIP + _ROUNDING,
                measured=f"moves the sum by {pull:.2f}",
                expected=f"at most {_CLIP:g} with clipping",
                figures={"pull": pull, "bound": _CLIP},
            )
        )
    return outcomes


def _record_pull(clip: float) -> float:
    """‖difference of the opened sums with and without a record of extreme pixels and the wrong label‖₂."""
    images = synthetic_images(_EACH * _SILOS, _SEED)
    start = np.zeros(_MODEL.parameters, dtype=np.float32)
    terms = step_terms(_MODEL, private_step(NO_NOISE, clip, _SILOS), _VECTOR)
    silos = {silo: _records(place) for place, silo in enumerate(names(_SILOS))}
    extreme = np.sign(features_of(images.pixels[:1])).astype(np.float32)
    first, victim = next(iter(silos)), next(iter(silos.values()))
    poisoned = Records(
        np.concatenate([victim.features, extreme]),
        np.concatenate([victim.labels, 1 - images.labels[:1]]),
    )
    sums = []
    for records in (silos, {**silos, first: poisoned}):
        federation = Federation(terms, ADAPTERS["logistic"], records)
        updates = {silo: federation.update_of(silo, start) for silo in records}
        sums.append(secure_sum(round_plan(federation, start), updates))
    return float(np.linalg.norm(sums[1] - sums[0]))


def _federation() -> Federation:
    silos = {silo: _records(place) for place, silo in enumerate(names(_SILOS))}
    return Federation(RoundTerms(_MODEL, _TRAINING, None, _VECTOR), ADAPTERS["logistic"], silos)


def _records(place: int) -> Records:
    images = synthetic_images(_EACH * _SILOS, _SEED)
    return records_of(images, slice(place * _EACH, (place + 1) * _EACH))
