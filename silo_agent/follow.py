"""Measure a round's model on the silo's own patients, by class, where ``silo.yaml`` asks for it."""

from __future__ import annotations

import logging
from pathlib import Path

from privacy.errors import SealsumError
from silo_agent.attended import names_of
from silo_agent.participation import Invitation
from silo_agent.personal.following import Followed, Following
from silo_agent.training.work import Trainer

_log = logging.getLogger(__name__)


def follow(state_dir: Path, invitation: Invitation, trainer: Trainer) -> None:
    """Note how the model that a round started from does, on patients held out of the job if it holds out any.

    A round does not fail for it: the contribution is on disk, and what goes wrong here is logged. Nothing of
    it is sent, and none of it is in the silo's log. Passed over where no class is predicted or nobody is held
    out here.
    """
    plan = invitation.plan
    try:
        recall = trainer.recall()
        if recall is None:
            return
        Following(state_dir).note(
            Followed(
                job=plan.job,
                job_digest=plan.job_digest,
                round=plan.round,
                model=plan.model,
                held_out=invitation.job.training.holdout > 0,
                recall=recall,
            )
        )
    except (SealsumError, OSError) as error:
        _log.warning("model_not_followed", extra={**names_of(plan), "reason": str(error)})
