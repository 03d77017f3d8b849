"""Measure a round's model on the silo's own patients, by class, where ``silo.yaml`` asks for it."""

from __future__ import annotations

import logging

import numpy as np

from privacy.errors import SealsumError
from silo_agent.attended import names_of
from silo_agent.checked_model import CheckedModel
from silo_agent.data.holdout import held_out
from silo_agent.datasets import Datasets
from silo_agent.models.adapters import ModelAdapter
from silo_agent.participation import Invitation
from silo_agent.personal.following import Followed, Following
from silo_agent.personal.recall import recall_by_class
from silo_agent.personal.workplace import Workplace
from silo_agent.settings import SiloSettings

_log = logging.getLogger(__name__)


def follow(
    settings: SiloSettings,
    invitation: Invitation,
    adapter: ModelAdapter,
    model: CheckedModel,
    datasets: Datasets,
) -> None:
    """Note how the model that a round started from does, on patients held out of the job if it holds out any.

    A round does not fail for it: the contribution is on disk, and what goes wrong here is logged.
    """
    try:
        _follow(settings, invitation, adapter, model, datasets)
    except (SealsumError, OSError) as error:
        _log.warning("model_not_followed", extra={**names_of(invitation.plan), "reason": str(error)})


def _follow(
    settings: SiloSettings,
    invitation: Invitation,
    adapter: ModelAdapter,
    model: CheckedModel,
    datasets: Datasets,
) -> None:
    """As ``follow``.

    Nothing of it is sent, and none of it is in the silo's log. Passed over where no class is predicted or
    nobody is held out here.
    """
    job, plan = invitation.job, invitation.plan
    records = datasets.everybody(invitation.dataset, job)
    share = job.training.holdout
    if share:
        records = records.only(np.flatnonzero(held_out(records.patients, share)))
    if records.kind != "classes" or len(records) == 0:
        return
    recall = recall_by_class(Workplace(adapter, job.model, records), model.vector)
    Following(settings.state_dir).note(
        Followed(
            job=plan.job,
            job_digest=plan.job_digest,
            round=plan.round,
            model=plan.model,
            held_out=share > 0,
            recall=recall,
        )
    )
