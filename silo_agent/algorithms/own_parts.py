"""What of the model is the silo's own in a round: put in place before training, kept and zeroed after it.

An update is zero at every coordinate that the silo keeps, so that nothing of it is in any sum, and the server
leaves the public first values there. The layout is the model's own: whoever reads the final model reads a
whole one, and a silo without memory starts from those values (ADR 0030).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from privacy.errors import ConfigurationError, SealsumError
from privacy.personal_terms import PersonalTerms, own_tensors
from privacy.plan import ModelTerms
from silo_agent.algorithms.local_steps import mean_gradient
from silo_agent.algorithms.memory import Arrays
from silo_agent.algorithms.task import Task
from silo_agent.models.adapters import ModelAdapter
from silo_agent.problems import Diverged
from silo_agent.update import FloatUpdate, Update, kept_of, with_kept

OWN: Final = "own"
"""In a silo's memory: its own values of the coordinates that it keeps, in the model's order."""
DITTO: Final = "ditto"
"""In a silo's memory: the model beside the shared one, float32[d]."""
_NORMALISING: Final = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_NOBODY: Final = np.zeros(0, dtype=np.float32)
_log = logging.getLogger(__name__)


def personalised(task: Task, run: Callable[[Task], Update]) -> Update:
    """The update of ``run`` with the silo's own parts in place, zero where they are.

    Raises:
        ConfigurationError: ``fedbn`` of a model that normalises nothing. Diverged: ditto's own steps did.
    """
    personal = task.training.personal
    if personal is None:
        return run(task)
    if personal.kind == "ditto":
        update = run(task)
        return with_kept(update, {**kept_of(update), DITTO: _beside(task, personal)})
    mine = own_coordinates(task, personal)
    start = in_place(task.start, task.memory.arrays, mine)
    update = run(replace(task, start=start))
    if not isinstance(update, FloatUpdate):
        raise SealsumError("personal: expected an update off the grid: own parts are refused with dp")
    ended = start + update.values
    if personal.kind == "mixed_intervals" and task.round % personal.every == 0:
        # Summed in this round: from where the shared layers are to where this silo's have come.
        values = np.where(mine, ended - task.start, update.values).astype(np.float32)
        return replace(update, values=values, keep={**update.keep, OWN: _NOBODY})
    values = np.where(mine, np.float32(0), update.values)
    return replace(update, values=values, keep={**update.keep, OWN: ended[mine]})


def in_place(shared: NDArray[np.float32], remembered: Arrays, mine: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The shared model with the silo's own values where it has kept some, float32[d].

    Raises:
        SealsumError: what it has kept is of another model.
    """
    own = remembered.get(OWN, _NOBODY)
    if len(own) == 0:
        return shared
    if len(own) != int(mine.sum()):
        raise SealsumError(f"memory.{OWN}: expected {int(mine.sum())} values, got {len(own)}")
    whole = shared.copy()
    whole[mine] = own
    return whole


def own_coordinates(task: Task, personal: PersonalTerms) -> NDArray[np.bool_]:
    """Which coordinates of the model the silo keeps, bool[d].

    Raises:
        ConfigurationError: ``fedbn`` of a model that normalises nothing.
    """
    if task.adapter is None:
        raise SealsumError("training: expected a job with a model")
    return coordinates_of(task.adapter, task.model, personal)


def coordinates_of(adapter: ModelAdapter, terms: ModelTerms, personal: PersonalTerms) -> NDArray[np.bool_]:
    """As ``own_coordinates``, of a job's terms; the same in all its rounds."""
    names = [spec.name for spec in terms.layout]
    own = own_tensors(names, personal.local_param)
    if personal.kind == "fedbn":
        own = normalising(adapter.build(terms))
        if not own:
            raise ConfigurationError(
                f"training.personal: expected a model with normalisation layers with fedbn, got "
                f"{terms.adapter} without any; use fedper with local_param"
            )
    return np.concatenate([np.full(spec.size, spec.name in own) for spec in terms.layout])


def normalising(module: nn.Module) -> frozenset[str]:
    """Names of the parameters of normalisation layers. Their statistics are no parameters: never sent."""
    return frozenset(
        f"{name}.{parameter}" if name else parameter
        for name, layer in module.named_modules()
        if isinstance(layer, _NORMALISING)
        for parameter, _ in layer.named_parameters(recurse=False)
    )


def ditto_steps(task: Task, personal: PersonalTerms) -> NDArray[np.float32]:
    """The silo's own model after this round's steps on its mean loss and λ/2 · ‖v − w‖²: float32[d].

    Nothing of it reaches the update (Li et al. 2021, Algorithm 1): it reads records without noise, and is
    free as long as it stays.

    Raises:
        Diverged: a loss, gradient or parameter is not finite. Stopped: between two steps.
    """
    weight, rate, steps = personal.regular_weight, personal.learning_rate, personal.steps
    if weight is None or rate is None or steps is None:
        raise SealsumError("personal: expected terms of ditto")
    own = task.memory.arrays.get(DITTO, task.start).astype(np.float64)
    everything = np.arange(len(task.records))
    for _ in range(steps):
        task.refuse_if_stopping()
        module = replace(task, start=own.astype(np.float32)).module()
        _, gradient = mean_gradient(module, task, everything)
        own -= rate * (gradient + weight * (own - task.start))
        if not np.all(np.abs(own) <= np.finfo(np.float32).max):
            raise Diverged("ditto: a parameter left the finite range of float32; lower its learning_rate")
    kept: NDArray[np.float32] = own.astype(np.float32)
    return kept


def _beside(task: Task, personal: PersonalTerms) -> NDArray[np.float32]:
    """As ``ditto_steps``. Under DP steps that diverge leave the own model where it was: that they did
    depends on records without noise, and a refusal would tell it, a bit a round that nothing charges.

    Raises:
        Diverged: without DP. Stopped: between two steps.
    """
    try:
        return ditto_steps(task, personal)
    except Diverged as error:
        if task.dp is None:
            raise
        _log.warning("own_model_not_trained", extra={"round": task.round, "reason": str(error)})
        return task.memory.arrays.get(DITTO, task.start)
