"""A job tried under threat models, before anybody signs or trains: would it run, what would it cost? Pure.

Asks the very rules, planning and accountant of the gates; knows no file and no terminal.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policies.findings import Finding
from policies.loader import LoadedPolicy
from policies.planning import SESSION_BYTES, plan_round, silos_needed
from policies.rules_epsilon import epsilon_within_caps
from policies.rules_plan import limit_findings
from policies.rules_round import survivor_findings
from policies.upload_size import upload_bytes
from privacy.canonical import sha256_hex
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent, fallback_event, round_event
from privacy.errors import Unprocessable
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId, ServerId
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import SEALED_TO, Charter, Member, Role
from privacy.secagg.catalogue import MEASURED_PARAMETERS, PLAINTEXT_MS, SCHEMES, Cost
from privacy.wire.messages import SurvivorSet
from sealsum.job_judgement import job_findings


@dataclass(frozen=True)
class Judged:
    """One threat model's answer."""

    name: str
    findings: tuple[Finding, ...]
    enforced: bool
    """False under mode ``audit``: findings are recorded and let pass."""


@dataclass(frozen=True)
class Price:
    """What the whole job costs each silo's patients: the most that anybody learns of one."""

    epsilon: float
    epsilon_fallback: float
    """Should the secure sum fail."""
    delta: float


@dataclass(frozen=True)
class SchemeCost:
    """One round at one silo, and at all servers; times are of the machine that measured them."""

    scheme: str
    up_bytes: int
    down_bytes: int
    silo_ms: float
    servers_ms: float
    asked: bool
    """Whether it is the scheme of the job."""


@dataclass(frozen=True)
class Trial:
    """What would come of a job."""

    runs: bool
    judged: tuple[Judged, ...]
    silos: int
    price: Price | None
    """``None`` without DP, where no ε bounds anything, and where no plan or no price can be made."""
    least_cohort: int
    """Fewer silos than these at the start of a round: nothing is planned."""
    opens_from: int
    """Survivors from which a round of all silos is opened; with fewer it aborts, and stays charged."""
    aborts: tuple[int, ...]
    """Numbers of survivors, of all silos, with which a round aborts."""
    upload_bytes: int
    costs: tuple[SchemeCost, ...]


def try_job(
    job: JobSpec,
    charter: Charter,
    policy: LoadedPolicy,
    silo_policies: Sequence[LoadedPolicy],
    otherwise: Sequence[JobSpec] = (),
) -> Trial:
    """Judge a job's first round with all silos of the charter invited, as each party's gate will.

    ``otherwise`` are the same job by other schemes, to compare costs.
    """
    judged = [_judged(policy, job_findings(policy, job, charter))]
    plan = _plan(job, charter, policy)
    for own in silo_policies:
        judged.append(_judged(own, [] if plan is None else limit_findings(own, plan, charter)))
    aborts = () if plan is None else tuple(_aborts(policy, plan, charter))
    silos = len(charter.silos)
    return Trial(
        runs=plan is not None and not any(one.findings and one.enforced for one in judged),
        judged=tuple(judged),
        silos=silos,
        price=None if plan is None else _price(plan, charter, policy),
        least_cohort=silos_needed(job, policy),
        opens_from=max(aborts, default=0) + 1,
        aborts=aborts,
        upload_bytes=0 if plan is None else upload_bytes(plan),
        costs=tuple(_costs(job, otherwise, charter, policy)),
    )


def trial_charter(silos: int, policy: LoadedPolicy) -> Charter:
    """A roster of ``silos`` institutions as the threat model assumes its parties, with keys thrown away."""
    servers = policy.model.spec.assume.share_servers
    names: list[tuple[str, Role]] = [(f"silo-{number:04}", "silo") for number in range(1, silos + 1)]
    names += [(f"share-{number:02}", "share_server") for number in range(servers.count if servers else 0)]
    names += [("aggregator", "aggregator"), ("researcher", "researcher")]
    members = [
        Member(
            id=PartyId(name),
            role=role,
            legal_entity=f"Institution of {name}",
            operator=f"Operator of {name}",
            verify_key=SigningKey.generate().verify_key,
            sealing_key="00" if role in SEALED_TO else "",
            url="https://127.0.0.1" if role in ("aggregator", "share_server") else "",
        )
        for name, role in names
    ]
    return Charter(
        federation="trial",
        epoch=1,
        officers=Digest("0" * 64),
        members=tuple(sorted(members, key=lambda member: member.id)),
        policy=policy.digest,
        policy_text=policy.text,
        policy_parents=policy.parents,
    )


def _judged(policy: LoadedPolicy, findings: Sequence[Finding]) -> Judged:
    metadata, mode = policy.model.metadata, policy.model.spec.mode
    return Judged(f"{metadata.name} v{metadata.version}", tuple(findings), mode == "enforce")


def _plan(job: JobSpec, charter: Charter, policy: LoadedPolicy) -> RoundPlan | None:
    session = secrets.token_bytes(SESSION_BYTES)
    try:
        return plan_round(
            job, charter, policy, silos=charter.silos, number=1, model=job.initial_model, session=session
        )
    except Unprocessable:  # ``job_findings`` has said why
        return None


def _aborts(policy: LoadedPolicy, plan: RoundPlan, charter: Charter) -> Iterator[int]:
    """Sizes at which the rules of the opening say no; of silos in the order of their names."""
    yield 0
    for size in range(1, len(plan.silos) + 1):
        named = plan.silos[:size]
        manifests = tuple(sha256_hex(silo.encode()) for silo in named)
        survivors = SurvivorSet(server=ServerId(PartyId("trial")), survivors=named, manifests=manifests)
        if any(survivor_findings(policy, plan, charter, survivors)):
            yield size


def _price(plan: RoundPlan, charter: Charter, policy: LoadedPolicy) -> Price | None:
    if plan.dp is None:
        return None
    unbounded = (f"{name}_unbounded" for name in ("epsilon", "epsilon_fallback"))
    found = {finding.rule for finding in epsilon_within_caps(policy.model.spec, plan, charter)}
    if found & set(unbounded):
        return None  # the rule refuses to compute it, and its finding says why
    whole = _job_epsilon(round_event(plan.dp, plan.training), plan)
    own = fallback_event(plan.dp, plan.training)
    return Price(whole, whole if own is None else _job_epsilon(own, plan), plan.dp.delta)


def _job_epsilon(one_round: DpEvent, plan: RoundPlan) -> float:
    event = one_round.model_copy(update={"steps": one_round.steps * plan.rounds})
    assert plan.dp is not None  # noqa: S101 - callers have an event of it
    return epsilon([event], plan.dp.delta)


def _costs(
    asked: JobSpec, others: Sequence[JobSpec], charter: Charter, policy: LoadedPolicy
) -> Iterator[SchemeCost]:
    """Upload as the scheme's own code counts it; the rest is the catalogue's, in proportion to the upload."""
    by_scheme: dict[str, JobSpec] = {job.scheme: job for job in (*others, asked)}
    for name, scheme in SCHEMES.items():
        job = by_scheme.get(name)
        plan = None if job is None else _plan(job, charter, policy)
        if plan is None:
            continue  # this scheme cannot carry the job's vector
        up = upload_bytes(plan)
        cost: Cost = scheme.cost
        share = up / (scheme.bytes_per_parameter * MEASURED_PARAMETERS)
        if plan.validity is not None and scheme.cost_with_validity is not None:
            cost, share = scheme.cost_with_validity, plan.parameters / MEASURED_PARAMETERS
        yield SchemeCost(
            scheme=name,
            up_bytes=up,
            down_bytes=round(scheme.bytes_down_per_parameter * MEASURED_PARAMETERS * share),
            silo_ms=cost.silo * PLAINTEXT_MS.silo * share,
            servers_ms=cost.servers * PLAINTEXT_MS.servers * share,
            asked=name == asked.scheme,
        )
