"""From a job and a roster to the plan of its next round. Pure: values in, a plan out."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError

from policies.assumption import threshold_for
from policies.invited import Drawn, invited
from policies.loader import LoadedPolicy
from privacy.errors import Unprocessable
from privacy.ids import Digest, SiloId
from privacy.plan import (
    THRESHOLD_SCHEMES,
    CohortMember,
    JobSpec,
    RoundPlan,
    ServerSlot,
)
from privacy.roster import Charter
from privacy.secagg.rows import row_of
from privacy.sent import count_sent

SESSION_BYTES = 16


def plan_round(
    job: JobSpec,
    charter: Charter,
    policy: LoadedPolicy,
    *,
    silos: Collection[SiloId],
    number: int,
    model: Digest,
    session: bytes,
) -> RoundPlan:
    """The terms of round ``number``; ``session`` is 16 fresh random bytes from the operating system.

    Raises:
        Unprocessable: no plan can have the job's terms in this federation, such as validity with a scheme
            that has one server, or a sum that no encryption parameters carry.
    """
    if len(session) != SESSION_BYTES:
        raise ValueError(f"session: expected {SESSION_BYTES} bytes, got {len(session)}")
    limits = policy.model.spec.limits
    shared = job.scheme == "additive"
    pool: tuple[SiloId, ...] = ()
    phase = job.training.phase(number)
    if phase is not None and phase.draws:
        pool = tuple(sorted(silos))
        entities = {silo: charter.member(silo).legal_entity for silo in pool}
        silos = invited(Drawn(job.digest, phase, number), entities, silos_needed(job, policy))
    try:
        return RoundPlan(
            session=session.hex(),
            federation=charter.federation,
            charter=charter.digest,
            roster_epoch=charter.epoch,
            policy=charter.policy,
            job=job.job,
            job_digest=job.digest,
            round=number,
            rounds=job.rounds,
            scheme=job.scheme,
            threshold=threshold_for(len(silos), [policy]) if job.scheme in THRESHOLD_SCHEMES else None,
            he=row_of(job, len(charter.silos)),
            validity=job.validity,
            architecture=job.model.architecture,
            model=model,
            parameters=job.model.parameters,
            sent=count_sent(job.training, job.model, number),
            cohort=tuple(
                CohortMember(silo=silo, verify_key=charter.member(silo).verify_key) for silo in sorted(silos)
            ),
            pool=pool,
            servers=tuple(
                ServerSlot(server=server, verify_key=charter.member(server).verify_key)
                for server in (charter.share_servers if shared else ())
            ),
            training=job.training,
            dp=job.dp,
            vector=job.vector,
            further=job.further,
            query=job.query,
            min_survivors=max(job.min_silos, limits.min_silos_open, len(silos) - limits.max_dropouts),
            deadline_s=job.round_deadline_s,
        )
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        why = " ".join([*(str(step) for step in fault["loc"]), fault["msg"].removeprefix("Value error, ")])
        raise Unprocessable(f"job {job.job}: no plan can have its terms: {why}") from error


def silos_needed(job: JobSpec, policy: LoadedPolicy) -> int:
    """How many silos must be here before a round makes sense."""
    return max(job.min_silos, policy.model.spec.limits.min_silos_open)
