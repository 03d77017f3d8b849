"""One round as a silo sees it: each step takes what the step before proved. Values in, values out.

    offer → clear_offer → Invitation → charge_for → the ledger → Reserved
                                                    work_of → paid_work → a trainer → update → parts
    model → check_model → CheckedModel ──────────────────────────────────────┘

Knows no network, no files and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from policies.findings import Finding, PolicyRefusal
from policies.gates import AdmittedPlan, admit_plan
from policies.loader import LoadedPolicy
from privacy.dp.events import fallback_event, round_event
from privacy.errors import OutOfOrder, SealsumError
from privacy.ids import Context, SiloId
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter
from privacy.transparency.checkpoint import LogHead, parse_checkpoint
from privacy.wire.envelope import Envelope, Verified, open_envelope
from privacy.wire.job_envelope import open_job
from privacy.wire.messages import MAX_BYTES, RoundOffer
from silo_agent.algorithms.catalogue import COMPUTED_BESIDE
from silo_agent.checked_model import CheckedModel, check_bytes
from silo_agent.ledger.admission import RoundCharge
from silo_agent.ledger.books import ledger_unit
from silo_agent.ledger.ledger import Reserved
from silo_agent.registration import least_records, registered_for
from silo_agent.settings import DatasetSettings
from silo_agent.training.work import PaidWork, Work


@dataclass(frozen=True)
class Site:
    """What the silo knows before an offer comes: itself, the roster, both threat models, its datasets."""

    silo: SiloId
    verify_key: str
    charter: Charter
    policies: tuple[LoadedPolicy, ...]
    """The federation's first, then the silo's own."""
    datasets: Mapping[str, DatasetSettings]

    def min_records(self, dataset: DatasetSettings) -> int:
        """The strictest minimum of both threat models and of the dataset."""
        return least_records(dataset, self.policies)

    @property
    def unit(self) -> Literal["patient", "record"]:
        """What the silo's ledgers count."""
        return ledger_unit(self.policies[-1])


@dataclass(frozen=True)
class Invitation:
    """Evidence that this silo may take part in this round with this dataset: ``clear_offer`` makes them."""

    admitted: AdmittedPlan
    dataset: DatasetSettings
    log_head: LogHead

    @property
    def plan(self) -> RoundPlan:
        """The admitted plan."""
        return self.admitted.plan

    @property
    def job(self) -> JobSpec:
        """The job it belongs to."""
        return self.admitted.job


def open_offer(envelope: Envelope, charter: Charter) -> tuple[Verified[RoundOffer], Verified[JobSpec]]:
    """Check the signatures of an offer and of the job inside it; who may sign what is the gate's to judge.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: as ``open_envelope``.
    """
    offer = open_offer_alone(envelope, charter, None)
    return offer, open_job(offer.message.job, charter)


def open_offer_alone(envelope: Envelope, charter: Charter, context: Context | None) -> Verified[RoundOffer]:
    """Check the signature of an offer, of this very round if ``context`` is given.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: as ``open_envelope``.
    """
    return open_envelope(
        envelope,
        RoundOffer,
        kind="offer",
        context=context,
        verify_key_of=lambda sender: charter.member(sender).verify_key,
        max_bytes=MAX_BYTES["offer"],
    )


def claimed_job(envelope: Envelope) -> str | None:
    """The job an offer names, not yet believed: good only to ask the aggregator whether it is over."""
    try:
        return RoundOffer.model_validate_json(envelope.body).plan.job
    except ValidationError:
        return None


def clear_offer(
    site: Site, offer: Verified[RoundOffer], job: Verified[JobSpec], last_round: int
) -> Invitation:
    """Decide whether to take part, before anything is fetched, charged or read:

    (1) the plan passes the federation's and the silo's own threat model; (2) this silo is invited, under
    its own key; (3) the round exceeds the last one of this job, also across restarts; (4) the dataset is
    registered, for this purpose and schema, with this privacy unit; (5) the algorithm computes every vector
    that is asked for.

    Raises:
        PolicyRefusal: (1), (2), (4), (5). OutOfOrder: (3).
    """
    # (1)
    admitted = admit_plan(site.policies, offer, job, site.charter)
    plan = admitted.plan
    # (2)
    if not any(one.silo == site.silo and one.verify_key == site.verify_key for one in plan.cohort):
        raise _refusal(
            "offer.not_invited",
            "The plan does not invite this silo under its enrolled key.",
            site.silo,
            "a cohort without it",
            "offer the round to the silos of its cohort",
        )
    # (3)
    if plan.round <= last_round:
        raise OutOfOrder(f"round: expected one after {last_round} of job {plan.job}, got {plan.round}")
    # (4)
    dataset = registered_for(site.datasets, site.unit, admitted.job)
    # (5)
    known = COMPUTED_BESIDE.get(plan.training.algorithm, ())
    unknown = [vector.name for vector in plan.further if vector.name not in known]
    if unknown:
        raise _refusal(
            "offer.vectors",
            "The round sums vectors that this agent's algorithm does not compute.",
            f"{', '.join(known) or 'none'} beside the update of {plan.training.algorithm}",
            ", ".join(unknown),
            "leave these vectors out of the job",
        )
    return Invitation(admitted, dataset, parse_checkpoint(offer.message.log.checkpoint).head)


def charge_for(invitation: Invitation) -> RoundCharge | None:
    """What the ledger must hold: the worst case of the whole round. ``None`` for a plan without DP."""
    plan = invitation.plan
    if plan.dp is None:
        return None
    return RoundCharge(
        job=plan.job,
        job_digest=plan.job_digest,
        dataset=invitation.job.dataset,
        context=plan.context,
        round=plan.round,
        rounds=invitation.job.rounds,
        event=round_event(plan.dp, plan.training),
        fallback=fallback_event(plan.dp, plan.training),
        delta=plan.dp.delta,
        log_head=invitation.log_head,
    )


def check_model(invitation: Invitation, raw: bytes) -> CheckedModel:
    """Hash the model that came, so that no silo can be singled out with another (Pasquini et al. 2021).

    Raises:
        Unprocessable: it is not the plan's model, has another length, or is not finite.
    """
    return check_bytes(invitation.job.model, invitation.plan.model, raw, "model")


def work_of(invitation: Invitation, site: Site) -> Work:
    """What a trainer is given of the round."""
    dataset = invitation.dataset
    return Work(invitation.job, invitation.plan, dataset, site.min_records(dataset))


def paid_work(work: Work, reserved: Reserved | None) -> PaidWork:
    """Under DP, only against evidence that this very round is paid for.

    Raises:
        SealsumError: the reservation is missing or for another round: a bug, not a peer's doing.
    """
    plan = work.plan
    if plan.dp is not None and (
        reserved is None or reserved.context != plan.context or reserved.steps != plan.training.local_steps
    ):
        raise SealsumError("training: expected a reservation for this round")
    return PaidWork(work)


def _refusal(rule: str, sentence: str, expected: str, got: str, remedy: str) -> PolicyRefusal:
    return PolicyRefusal("offer", [Finding(rule, sentence, expected, got, remedy)])
