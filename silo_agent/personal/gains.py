"""Hold a personal model against the job's model and the silo's own, on patients held out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from privacy.update import model_bytes, model_digest
from silo_agent.data.holdout import held_out
from silo_agent.data.records import Records
from silo_agent.models.adapters import ModelAdapter
from silo_agent.personal.figures import LOCAL_ONLY, PERSONAL, SHARED, Figure, Gains, MethodName, Standing
from silo_agent.personal.measures import Board, outcome_of
from silo_agent.personal.methods import METHODS, Choices, Made
from silo_agent.personal.workplace import Vector, Workplace

SHARE = 0.2
"""Of patients held out here where the job held out none."""


@dataclass(frozen=True)
class Bench:
    """A job's model at this silo, and the silo's patients in two parts."""

    place: Workplace
    asked: Records = field(repr=False)
    """Of patients held out."""
    shared: Vector = field(repr=False)
    holdout: str


def bench_of(
    spec: JobSpec,
    adapter: ModelAdapter,
    records: Records,
    shared: Vector,
    share: float | None = None,
    moving: frozenset[str] = frozenset(),
) -> Bench:
    """Split a silo's records as the job did, or where it held out nobody by ``share``.

    Raises:
        ConfigurationError: the job trained no model; it has a holdout and ``share`` is another; or one of the
            two parts is empty.
    """
    if spec.query is not None:
        raise ConfigurationError(f"JOB: expected one that trains a model, got a {spec.query.kind} query")
    kept = spec.training.holdout
    if share is not None and kept not in (0, share):
        raise ConfigurationError(
            f"--holdout: expected {kept:g} or nothing, got {share:g}: the job holds out that share, and has "
            "trained on everybody else"
        )
    apart = held_out(records.patients, kept or share or SHARE)
    if not apart.any() or apart.all():
        raise ConfigurationError(
            "personalise: expected patients to fit to and patients to ask, got only one of both; choose "
            "another share with --holdout"
        )
    place = Workplace(adapter, spec.model, records.only(np.flatnonzero(~apart)), moving)
    return Bench(place, records.only(np.flatnonzero(apart)), shared, _told(kept))


def _told(kept: float) -> str:
    if kept:
        return (
            f"The job held out a share of {kept:g} of the patients, by a digest of their id: nothing that is "
            "compared here was trained on this silo's patients who are scored."
        )
    return (
        "The job held out nobody: its model has seen the patients who are scored, so that shared and "
        "personal look better than they are; only local_only has not. A job with training.holdout compares "
        "fairly."
    )


def personalised(bench: Bench, method: MethodName, choices: Choices) -> Made:
    """The personal model by one of ``METHODS``.

    Raises:
        ConfigurationError, Unprocessable: as the method.
    """
    return METHODS[method](bench.place, bench.shared, choices)


def gains_of(
    spec: JobSpec, bench: Bench, method: str, layers: str, made: Made, own: Made, now: datetime
) -> Gains:
    """The three models side by side on the patients held out.

    Args:
        made: the personal model.
        own: the silo's own, made without anybody else.
    """
    models = {LOCAL_ONLY: own.vector, SHARED: bench.shared, PERSONAL: made.vector}
    return Gains(
        job=spec.job,
        job_digest=spec.digest,
        method=method,
        chosen=dict(made.chosen),
        layers=layers,
        made_at=now.isoformat(timespec="seconds"),
        shared_model=model_digest(spec.model, [model_bytes(bench.shared)]),
        holdout=bench.holdout,
        trained_patients=len(set(bench.place.records.patients)),
        held_out_patients=len(set(bench.asked.patients)),
        models=standings(bench.place, bench.asked, models),
    )


def standings(place: Workplace, asked: Records, models: Mapping[str, Vector]) -> dict[str, Standing]:
    """How models do on ``asked``; differences are from ``local_only`` and ``shared``, which must be there."""
    board = Board(asked, {name: outcome_of(place.scored(one), asked) for name, one in models.items()})

    def over(model: str, base: str) -> dict[str, Figure]:
        return {} if model == base else {one: board.difference(model, base, one) for one in board.metrics}

    return {
        name: Standing(
            figures={one: board.figure(name, one) for one in board.metrics},
            over_local_only=over(name, LOCAL_ONLY),
            over_shared=over(name, SHARED),
        )
        for name in models
    }
