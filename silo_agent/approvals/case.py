"""One job before this silo: what it is, what it would cost, and whether anything here would refuse it anyway.

The same judgement serves people (``sealsum silo show``) and the agent, before a round is offered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policies.findings import Finding, PolicyRefusal
from policies.loader import LoadedPolicy, load_threat_model
from policies.planning import SESSION_BYTES, plan_round
from policies.rules_attacks import attacks_released_by
from policies.rules_binding import binding_findings
from policies.rules_plan import limit_findings
from privacy.approval import ApprovalTerms
from privacy.errors import Unprocessable
from privacy.ids import Digest, SiloId
from privacy.keystore import Identity
from privacy.plan import JobSpec, ModelTerms
from privacy.query_terms import EvaluationTerms
from privacy.roster import Charter
from privacy.wire.envelope import Verified
from silo_agent.approvals.cost import Cost, costs_of, first_round_refused, job_charge, read_accounts
from silo_agent.approvals.standing import Bench, Request, requirement_of
from silo_agent.ledger.books import ledger_unit
from silo_agent.registration import assert_legal_basis, registered_for, registration_digest
from silo_agent.settings import SiloSettings


@dataclass(frozen=True)
class Office:
    """All that this silo judges jobs by, under one charter."""

    settings: SiloSettings
    identity: Identity
    charter: Charter
    federation: LoadedPolicy
    own: LoadedPolicy
    bench: Bench

    @property
    def silo(self) -> SiloId:
        """This silo's name."""
        return SiloId(self.identity.pin.party)


@dataclass(frozen=True)
class Case:
    """A job as far as it can be judged before it runs."""

    job: Verified[JobSpec]
    request: Request
    findings: tuple[Finding, ...]
    """What would refuse it here, whoever approves it; empty if nothing would."""
    costs: tuple[Cost, ...]

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.job.message

    @property
    def digest(self) -> Digest:
        """Of the job."""
        return self.spec.digest


def open_office(settings: SiloSettings, identity: Identity, charter: Charter, own: LoadedPolicy) -> Office:
    """Put together what this silo judges by.

    Raises:
        ConfigurationError: a dataset states no legal basis where it must, or the two threat models ask for
            approvals that cannot be had together.
    """
    federation = load_threat_model(charter.policy_text, charter.policy_parents)
    assert_legal_basis(settings.datasets, (federation, own))
    bench = Bench(
        silo=charter.member(identity.pin.party),
        people=settings.people,
        rules=settings.approval_rules,
        requirement=requirement_of((federation, own)),
    )
    return Office(settings, identity, charter, federation, own, bench)


def case_of(office: Office, job: Verified[JobSpec], now: datetime) -> Case:
    """Judge a job as a whole: its terms, both threat models, the dataset's registration, the budget.

    Raises:
        LedgerDamaged: a ledger does not verify.
    """
    spec, settings = job.message, office.settings
    findings = [*_findings(office, job)]
    costs: tuple[Cost, ...] = ()
    if spec.dataset in settings.datasets:
        accounts = read_accounts(settings, office.identity, office.own)
        costs = costs_of(spec, settings.scopes(spec.dataset), accounts, now)
        unpaid = first_round_refused(costs)
        findings.extend([] if unpaid is None else [unpaid])
    return Case(job, request_of(office, job), tuple(findings), costs)


def request_of(office: Office, job: Verified[JobSpec]) -> Request:
    """What a decision about the job is bound to, and who asks."""
    spec = job.message
    charge, dataset = job_charge(spec), office.settings.datasets.get(spec.dataset)
    terms = ApprovalTerms(
        federation=office.charter.federation,
        silo=office.silo,
        job=spec.job,
        job_digest=spec.digest,
        algorithm=spec.training.algorithm,
        architecture=model_of(spec).architecture,
        dataset=spec.dataset,
        registration=_NOT_REGISTERED if dataset is None else registration_digest(spec.dataset, dataset),
        data_schema=spec.data.digest,
        recipient=office.federation.model.spec.release.model.to,
        noise_multiplier=None if spec.dp is None else spec.dp.noise_multiplier,
        epsilon_job=None if charge is None else charge.epsilon_of(spec.rounds),
        delta=None if spec.dp is None else spec.dp.delta,
        rounds_max=spec.rounds,
    )
    alone = None if charge is None else charge.fallback_of(spec.rounds)
    return Request(terms, spec.purpose, office.charter.member(job.sender), alone)


def model_of(spec: JobSpec) -> ModelTerms:
    """The model that the job is about: the one that it trains, or evaluates."""
    return spec.query.model if isinstance(spec.query, EvaluationTerms) else spec.model


def assert_would_run(case: Case) -> None:
    """Refuse to decide on a job that would be refused anyway.

    Raises:
        PolicyRefusal: with every finding.
    """
    if case.findings:
        raise PolicyRefusal(f"job {case.spec.job}, which would not run here", case.findings)


_NOT_REGISTERED = Digest("0" * 64)
"""No registration has this digest, so no approval of such a job ever counts once the name is registered."""


def _findings(office: Office, job: Verified[JobSpec]) -> list[Finding]:
    spec, charter, policy = job.message, office.charter, office.federation
    found: list[Finding] = []
    if charter.member(job.sender).role != "researcher":
        sentence = "the job is not signed by one who may: it takes an enrolled researcher"
        found.append(
            Finding("job_sender", sentence, "a researcher", job.sender, "have a researcher sign the job")
        )
    try:
        plan = plan_round(
            spec,
            charter,
            policy,
            silos=charter.silos,
            number=1,
            model=spec.initial_model,
            session=bytes(SESSION_BYTES),
        )
    except Unprocessable as impossible:
        sentence = "no round can have these terms in this federation"
        found.append(
            Finding("job_not_plannable", sentence, "terms that fit", str(impossible), "sign other terms")
        )
    else:
        found.extend(binding_findings(plan, spec, charter))
        for judge in {policy.digest: policy, office.own.digest: office.own}.values():
            if judge.model.spec.mode == "enforce":
                found.extend(limit_findings(judge, plan, charter))
                found.extend(attacks_released_by(policy.model, judge.model))
    try:
        registered_for(office.settings.datasets, ledger_unit(office.own), spec)
    except PolicyRefusal as refusal:
        found.extend(refusal.findings)
    return found
