"""What does share server 0 hold of a silo's update? Under a mask nothing; without one, all of it."""

from __future__ import annotations

import numpy as np

from privacy.identity import SealingKey
from privacy.secagg.additive import AdditiveSiloHalf, Ring
from sealsum.attack.cohort import NO_CLIP, NO_NOISE, names, private_step, round_plan, step_terms
from sealsum.attack.effort import Effort
from sealsum.attack.images import VECTOR, honest_start, image_model, records_of, synthetic_images
from sealsum.attack.outcome import Findings, Outcome
from sealsum.simulator.federation import Federation
from silo_agent.encoded import EncodedUpdate
from silo_agent.models.adapters import ADAPTERS

_SUCCESS = 0.01
"""Of d coordinates, a uniform vector shares one with the update with probability d/2³²: here below 1e-5."""


def audit_mask(effort: Effort) -> Findings:
    """Compare the vector that server 0 is sent, and the update itself, with what the silo computed."""
    federation, start = _one_record_each()
    plan = round_plan(federation, start)
    silo, server = plan.silos[0], plan.servers[1].server
    update = federation.update_of(silo, start)
    length = plan.vector_length
    truth = EncodedUpdate(plan, update, 1.0).elements(0, length)
    half = AdditiveSiloHalf(plan.context, plan.model, silo, {server: SealingKey.generate().public_hex})
    masked = half.share(0, EncodedUpdate(plan, update, 1.0).elements(0, length))
    unmasked = EncodedUpdate(plan, update, 1.0).elements(0, length)
    return Findings(
        (
            _outcome("no mask: the silo sends its encoded update", False, unmasked, truth),
            _outcome("additive sharing: the update minus a keystream", True, masked, truth),
        )
    )


def _outcome(protection: str, protected: bool, held: Ring, truth: Ring) -> Outcome:
    share = float(np.mean(held == truth))
    return Outcome(
        attack="reading at a share server",
        protection=protection,
        protected=protected,
        succeeded=share > _SUCCESS,
        measured=f"{100 * share:.1f} % of coordinates",
        expected=f"at most {100 * _SUCCESS:g} % under a mask",
        figures={"share_read": share, "coordinates": len(truth)},
    )


def _one_record_each() -> tuple[Federation, np.ndarray]:
    model = image_model(128)
    images = synthetic_images(2, seed=3)
    silos = {silo: records_of(images, slice(place, place + 1)) for place, silo in enumerate(names(2))}
    terms = step_terms(model, private_step(NO_NOISE, NO_CLIP, 1), VECTOR)
    return Federation(terms, ADAPTERS["mlp"], silos), honest_start(model)
