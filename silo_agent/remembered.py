"""What a round leaves at this silo when it ends: the next model, fetched ahead, and what its algorithm
remembers.

The rule of ``silo_agent.algorithms.memory`` meets the round's published result here.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import PeerFault, Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.plan import JobSpec, RoundPlan
from privacy.secagg.vectors import VectorName
from privacy.update import FLOAT_BYTES, digest_under
from privacy.wire.messages import RoundResult
from silo_agent.algorithm_state import AlgorithmState
from silo_agent.algorithms.catalogue import needs_model_out, needs_opened, settle
from silo_agent.algorithms.memory import Arrays, Memory
from silo_agent.attended import names_of
from silo_agent.checked_model import CheckedModel, check_bytes
from silo_agent.delivery import Delivery
from silo_agent.personal.store import PersonalModels
from silo_agent.update import Update, kept_of

_NO_MODEL: Final = np.zeros(0, dtype=np.float32)
"""Where a round is completed by its further sums alone."""
_log = logging.getLogger(__name__)


class Remembered:
    """The memories of one silo's jobs, and where a model lies while it is received."""

    def __init__(self, state_dir: Path, scratch: Path) -> None:
        self._state = AlgorithmState(state_dir)
        self._personal = PersonalModels(state_dir)
        self._scratch = scratch

    def memory(self, plan: RoundPlan) -> Memory:
        """Of the plan's job. Raises as ``AlgorithmState.memory``."""
        return self._state.memory(plan.job_digest)

    def first_model(self, plan: RoundPlan, job: JobSpec, delivery: Delivery) -> CheckedModel | None:
        """The job's first model, fetched once and hashed here; ``None`` where rounds do not need it.

        Raises:
            PeerFault: it cannot be had. Unprocessable: other bytes than the job names.
        """
        sparse = plan.training.sparse
        if sparse is None or sparse.kind != "top":
            return None
        kept = self._state.first_model(plan)
        raw = kept or delivery.fetch_model(job.initial_model, plan.parameters, self._scratch)
        model = check_bytes(job.model, job.initial_model, raw, "job.initial_model")
        if kept is None:
            self._state.keep_first_model(plan, raw)
        return model

    def stage(self, plan: RoundPlan, update: Update) -> None:
        """Before the round's contribution is complete: a round that is resent has its memory with it."""
        self._state.stage(plan, kept_of(update))

    def conclude(self, plan: RoundPlan, result: RoundResult, silo: SiloId, delivery: Delivery) -> None:
        """Fetch the model that the next round starts from, and remember the round if it counts.

        Raises:
            SealsumError: what was staged does not read back.
        """
        running = result.job_state == "running"
        if not running and result.model_out is not None and plan.query is None:
            self._keep_last(result.model_out, plan, delivery)
        if running and result.model_out is not None:
            self._fetch_ahead(result.model_out, plan, delivery)
        survived = silo in result.survivors
        staged = self._state.staged(plan) if survived else None
        settled: Arrays | None = None
        if running and staged is not None and result.model_out is not None and needs_model_out(staged):
            model = _ahead(plan, result.model_out, delivery)
            settled = None if model is None else settle(plan.training, staged, model)
        elif staged is not None and needs_opened(staged) and result.model_out is not None:
            opened = {VectorName(name): numbers for name, numbers in result.further.items()}
            settled = settle(plan.training, staged, _NO_MODEL, opened)
        self._state.commit(plan, result, survived, settled)
        if not running:
            self._state.job_ended(plan.job_digest, datetime.now(UTC).date())

    def forget(self, context: Context) -> None:
        """The round will have no result."""
        self._state.drop(context)

    def clear_ended(self, delivery: Delivery, but: Digest | None) -> None:
        """Mark other jobs than this one that are over, and delete what has been kept long enough."""
        today = datetime.now(UTC).date()
        for digest, job in self._state.running().items():
            if digest == but:
                continue
            try:
                if delivery.job_has_ended(job):
                    self._state.job_ended(digest, today)
            except PeerFault as error:  # asked again with the next job, or at the next start
                _log.warning("job_unknown", extra={"job": job, "reason": str(error)})
        for digest in self._state.purge(today):
            _log.info("algorithm_state_deleted", extra={"job_digest": digest})

    def _keep_last(self, model: Digest, plan: RoundPlan, delivery: Delivery) -> None:
        """What ``sealsum silo personalise`` starts from; without it, it asks for a file."""
        try:
            raw = delivery.fetch_model(model, plan.parameters, self._scratch)
            if digest_under(plan.architecture, [raw]) != model:
                raise Unprocessable(f"model: expected the bytes of {model[:16]}…, got others")
        except PeerFault as error:
            _log.warning(
                "last_model_not_kept", extra={**names_of(plan), "model": model, "reason": str(error)}
            )
            return
        self._personal.keep_shared(plan.job_digest, model, raw)

    def _fetch_ahead(self, model: Digest, plan: RoundPlan, delivery: Delivery) -> None:
        try:
            delivery.fetch_ahead(model, plan.parameters, self._scratch)
        except PeerFault as error:
            # Nothing is lost: the round that needs it asks again, and says so if it cannot have it.
            _log.warning("model_not_ahead", extra={**names_of(plan), "model": model, "reason": str(error)})


def _ahead(plan: RoundPlan, model: Digest, delivery: Delivery) -> NDArray[np.float32] | None:
    """The model that came out, hashed here; ``None`` where it, or its bytes, have not come.

    Others' bytes are no reason to end here: they go, and the round that needs the model asks for it again.
    """
    raw = delivery.fetched(model)
    if raw is None:
        return None
    if digest_under(plan.architecture, [raw]) != model or len(raw) != FLOAT_BYTES * plan.parameters:
        delivery.drop_ahead()
        reason = f"model: expected the bytes of {model[:16]}…, got others"
        _log.warning("model_not_ahead", extra={**names_of(plan), "model": model, "reason": reason})
        return None
    return np.frombuffer(raw, dtype="<f4")
