"""Would the federation's threat model refuse this job? Asked of its own rules before anything is sent.

The gates of silos and servers ask again when the job is there; this spares the researcher the wait, and
a job's name. Knows no network.
"""

from __future__ import annotations

import secrets

from policies.findings import Finding, PolicyRefusal
from policies.loader import LoadedPolicy, load_threat_model
from policies.planning import SESSION_BYTES, plan_round
from policies.rules_plan import plan_findings
from policies.upload_size import upload_bytes
from privacy.errors import Unprocessable
from privacy.plan import JobSpec
from privacy.roster import Charter


def job_findings(policy: LoadedPolicy, job: JobSpec, charter: Charter) -> list[Finding]:
    """What is wrong with the job's first round as it will be planned, all silos invited."""
    required = policy.model.spec.require.secagg.scheme
    try:
        plan = plan_round(
            job,
            charter,
            policy,
            silos=charter.silos,
            number=1,
            model=job.initial_model,
            session=secrets.token_bytes(SESSION_BYTES),
        )
    except Unprocessable as impossible:
        if job.scheme != required:
            why = "the job sums updates by another scheme than the threat model requires"
            return [Finding("scheme", why, required, job.scheme, f"write scheme: {required}")]
        return [
            Finding(
                "job_not_plannable",
                "no round can have these terms in this federation",
                f"terms that {required} carries, which the threat model requires",
                str(impossible),
                f"write scheme: {required}, validity with additive only, and a vector that fits (or none)",
            )
        ]
    return plan_findings(policy, plan, job, charter)


def upload_bytes_by_round(job: JobSpec, charter: Charter) -> dict[int, int]:
    """What each silo uploads: the first round of each stretch → bytes; none where the charter has no plan."""
    ends = [phase.until for phase in job.training.phases if phase.until < job.rounds]
    found: dict[int, int] = {}
    for number in (1, *(end + 1 for end in ends)):
        size = planned_upload_bytes(job, charter, number)
        if size is not None and size != next(reversed(found.values()), None):
            found[number] = size
    return found


def planned_upload_bytes(job: JobSpec, charter: Charter, number: int = 1) -> int | None:
    """What each silo uploads in round ``number`` of all silos; ``None`` where there is no plan."""
    policy = load_threat_model(charter.policy_text, charter.policy_parents)
    session = secrets.token_bytes(SESSION_BYTES)
    try:
        plan = plan_round(
            job, charter, policy, silos=charter.silos, number=number, model=job.initial_model, session=session
        )
    except Unprocessable:
        return None
    return upload_bytes(plan)


def refuse_if_charter_does(job: JobSpec, charter: Charter) -> None:
    """Judge the job by the charter's threat model.

    Raises:
        PolicyRefusal: with every finding.
    """
    policy = load_threat_model(charter.policy_text, charter.policy_parents)
    findings = job_findings(policy, job, charter)
    if findings and policy.model.spec.mode == "enforce":
        raise PolicyRefusal(f"policy {policy.model.metadata.name}, judged before anything was sent", findings)
