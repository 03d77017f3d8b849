"""Is this plan the one that everybody signed up to? Plan against job, charter and roster, field by field.

No threat model is asked and no mode waives these: a plan that differs from its signed job is forged
or altered, whatever its limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.rules_queries import answers_fit_the_query
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter, Member
from privacy.sent import count_sent


def binding_findings(plan: RoundPlan, job: JobSpec, charter: Charter) -> list[Finding]:
    """Every way in which ``plan`` is not a round of ``job`` in the federation of ``charter``."""
    return [
        *_bound_to_charter(plan, charter),
        *_job_bound_to_charter(job, charter),
        *_copied_from_job(plan, job),
        *_cohort_is_enrolled(plan, charter),
        *_servers_are_the_charters(plan, charter),
        *_minimum_is_the_jobs(plan, job),
        *answers_fit_the_query(job),
    ]


def _bound_to_charter(plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    terms = (
        ("federation", charter.federation, plan.federation),
        ("charter", charter.digest, plan.charter),
        ("roster_epoch", charter.epoch, plan.roster_epoch),
        ("policy", charter.policy, plan.policy),
    )
    for field, expected, got in terms:
        if got != expected:
            yield Finding(
                f"plan_{field}",
                "the plan belongs to another federation, roster or threat model than the pinned charter",
                f"{field} {expected}",
                str(got),
                "fetch the newest charter at both sides; if they agree, refuse this aggregator's plan",
            )


def _job_bound_to_charter(job: JobSpec, charter: Charter) -> Iterator[Finding]:
    terms = (("federation", charter.federation, job.federation), ("charter", charter.digest, job.charter))
    for field, expected, got in terms:
        if got != expected:
            yield Finding(
                f"job_{field}",
                "the job was signed for another federation, roster or threat model",
                f"{field} {expected}",
                got,
                "the researcher signs the job again under the newest charter",
            )


def _copied_from_job(plan: RoundPlan, job: JobSpec) -> Iterator[Finding]:
    """Whatever a plan repeats of its job must be equal to it: the researcher signed those terms only."""
    terms: tuple[tuple[str, object, object], ...] = (
        ("job", job.job, plan.job),
        ("job_digest", job.digest, plan.job_digest),
        ("rounds", job.rounds, plan.rounds),
        ("scheme", job.scheme, plan.scheme),
        ("architecture", job.model.architecture, plan.architecture),
        ("parameters", job.model.parameters, plan.parameters),
        ("sent", count_sent(job.training, job.model, plan.round), plan.sent),
        ("training", job.training, plan.training),
        ("dp", job.dp, plan.dp),
        ("vector", job.vector, plan.vector),
        ("further", job.further, plan.further),
        ("query", job.query, plan.query),
        ("validity", job.validity, plan.validity),
        ("deadline_s", job.round_deadline_s, plan.deadline_s),
    )
    for field, expected, got in terms:
        if got != expected:
            yield Finding(
                f"altered_{field}",
                f"the plan's {field} is not what the researcher signed",
                f"{field} {expected}",
                str(got),
                "the aggregator derives the plan from the signed job, unchanged",
            )
    if plan.round == 1 and plan.model != job.initial_model:
        yield Finding(
            "altered_model",
            "the first round starts from another model than the researcher signed",
            f"model {job.initial_model}",
            plan.model,
            "the aggregator offers round 1 with the job's initial model",
        )


def _cohort_is_enrolled(plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    silos = _keys(charter.with_role("silo"))
    for member in plan.cohort:
        expected = silos.get(member.silo)
        if expected is None:
            yield Finding(
                "cohort_stranger",
                "the cohort names a silo that is not enrolled: it could be the aggregator's own",
                f"silos of roster epoch {charter.epoch}",
                member.silo,
                "enrol the silo and seal a new charter, or leave it out",
            )
        elif expected != member.verify_key:
            yield Finding(
                "cohort_key",
                f"the cohort gives silo {member.silo} another key than the roster",
                f"key {expected}",
                member.verify_key,
                "the aggregator copies keys from the pinned charter",
            )


def _servers_are_the_charters(plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """All of them, same keys, same order: who holds the shares is not the aggregator's choice."""
    enrolled = charter.with_role("share_server") if plan.scheme == "additive" else ()
    expected = [(member.id, member.verify_key) for member in enrolled]
    got = [(slot.server, slot.verify_key) for slot in plan.servers]
    if got != expected:
        yield Finding(
            "share_servers",
            "the plan's share servers are not the roster's: a missing or replaced one may be a colluding one",
            ", ".join(f"{name} ({key[:16]}…)" for name, key in expected),
            ", ".join(f"{name} ({key[:16]}…)" for name, key in got),
            "the aggregator names every share server of the pinned charter, in the charter's order",
        )


def _minimum_is_the_jobs(plan: RoundPlan, job: JobSpec) -> Iterator[Finding]:
    if plan.min_survivors < job.min_silos:
        yield Finding(
            "minimum_below_job",
            "the plan would open a sum of fewer silos than the researcher signed",
            f"min_survivors of at least {job.min_silos}",
            str(plan.min_survivors),
            "the aggregator raises min_survivors to the job's min_silos",
        )


def _keys(members: tuple[Member, ...]) -> dict[str, str]:
    return {member.id: member.verify_key for member in members}
