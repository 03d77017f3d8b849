"""What a job's algorithm does beside plain steps, and what of it is published: sentences for who approves."""

from __future__ import annotations

from collections.abc import Iterator

from privacy.plan import JobSpec
from privacy.training_terms import OWN_WEIGHTS
from privacy.vector_terms import CONTROL, CURVATURE, HESSIAN
from silo_agent.algorithm_state import DAYS_KEPT

_PUBLISHED = {
    HESSIAN: (
        "The mean second derivatives of the loss are published each round: they tell second moments of "
        "features."
    ),
    CONTROL: "The mean update before the server's step is published each round, for the silos' corrections.",
    CURVATURE: (
        "One number more is published each round: how far the silos' losses and updates shorten the step."
    ),
}


def training_sentences(spec: JobSpec) -> Iterator[str]:
    """None for plain steps."""
    training, local = spec.training, spec.training.local
    if training.weights in OWN_WEIGHTS:
        yield (
            f"Each silo weighs its update by its own records ({training.weights}); the aggregator learns "
            "the sum of the weights."
        )
    if local.proximal_mu > 0:
        yield f"After each step the model is pulled back to the round's (proximal_mu {local.proximal_mu:g})."
    if local.reuse_below > 0:
        yield (
            f"A silo whose gradient has changed by less than {local.reuse_below:.0%} sends its last update "
            f"again, at most {local.reuse_rounds} rounds in a row."
        )
    remembers = local.control != "none" or local.projection or training.algorithm == "mifa"
    remembers = remembers or local.reuse_below > 0
    remembers = remembers or (training.sparse is not None and training.sparse.feedback)
    if remembers or training.weights in ("agnostic", "sqrt_n_over_divergence"):
        yield (
            "From round to round the silo remembers what its algorithm needs; that stays in its state "
            f"directory, until {DAYS_KEPT} days after the job."
        )
    if training.sparse is not None:
        which = {
            "random": "drawn anew by job and round",
            "top": "half of them those that the model has moved most, the others drawn",
        }
        kept = "; what is not sent stays at the silo for the next round" if training.sparse.feedback else ""
        yield (
            f"A round sums {training.sparse.share:.0%} of the model's coordinates, the same at all silos, "
            f"{which[training.sparse.kind]}{kept}."
        )
    for phase in training.phases:
        steps = training.at(phase.until).local_steps
        part = f"{phase.silos_share:.0%}" if phase.silos is None else str(phase.silos)
        yield (
            f"Up to round {phase.until}, a round takes {steps} local steps and invites "
            f"{part} of the silos that are here."
        )
        if phase.layers:
            yield f"In these rounds only {', '.join(phase.layers)} move and are sent."
    for vector in spec.further:
        if vector.name in _PUBLISHED:
            yield _PUBLISHED[vector.name]
