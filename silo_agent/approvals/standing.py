"""Is a job approved here, rejected, or waiting? Counts decisions by the stricter of the threat models.

Values in, values out: knows no files, no network and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from policies.findings import Finding, PolicyRefusal
from policies.loader import LoadedPolicy
from privacy.approval import RULE, ApprovalTerms, JobApproval
from privacy.errors import ConfigurationError
from privacy.people import Person, PersonRole
from privacy.roster import Member
from silo_agent.approvals.decisions import Decision, damaged
from silo_agent.approvals.rules import ApprovalRule

State = Literal["approved", "rejected", "waiting"]
MAY_REJECT: tuple[PersonRole, ...] = ("site_admin", "data_steward", "dpo", "security")
"""Stopping a job takes no quorum."""
_ROUNDING = 1 + 1e-9
"""ε is computed again here, in floating point, perhaps by a later release."""


_NOT_YET = "This silo has not approved the job, or its approval has expired or was for other terms."


@dataclass(frozen=True)
class Requirement:
    """What the federation's and the silo's own threat model ask for, the stricter of both."""

    n: int
    roles: tuple[PersonRole, ...]
    automatic: bool


@dataclass(frozen=True)
class Bench:
    """Before whom jobs come at this silo."""

    silo: Member
    people: Mapping[str, Person]
    rules: Mapping[str, ApprovalRule]
    requirement: Requirement


@dataclass(frozen=True)
class Request:
    """What is decided about, and who asks."""

    terms: ApprovalTerms
    purpose: str
    researcher: Member
    epsilon_alone: float | None
    """ε of all rounds by the silo's own noise alone, which is what is left should the secure sum fail."""


@dataclass(frozen=True)
class Standing:
    """Where a job stands, and why, in words for the silo's own people: they name names."""

    state: State
    why: str
    counted: tuple[JobApproval, ...] = ()
    until: str = ""
    """When the first of the counted decisions expires."""


def requirement_of(policies: Sequence[LoadedPolicy]) -> Requirement:
    """The stricter of all: most approvers, roles that all name, rules only where all allow them.

    Raises:
        ConfigurationError: together they ask for more roles than they share.
    """
    asked = [policy.model.spec.require.approvals for policy in policies]
    n = max(one.n for one in asked)
    roles = tuple(role for role in asked[0].roles if all(role in one.roles for one in asked))
    if len(roles) < n:
        raise ConfigurationError(
            f"threat_model: require.approvals: the federation's and the silo's own ask for {n} approvals in "
            f"roles that both name, of which there are {len(roles)}; let the silo's own name the same roles"
        )
    return Requirement(n, roles, all(one.automatic == "allowed" for one in asked))


def standing_of(bench: Bench, request: Request, decisions: Sequence[Decision], now: str) -> Standing:
    """Count decisions about a job, in this order:

    (1) each is about this very job at this silo; (2) of each author only the latest counts; (3) each is
    signed by the key that is registered for its author, or by the silo's own for a rule; (4) one rejection
    ends it; (5) a rule that still holds decides alone; (6) else n persons in as many different roles, none
    of whom asked for the job.

    Raises:
        PolicyRefusal: (1) or (3) does not hold: a file was forged or replayed; it is named.
    """
    latest: dict[tuple[bool, str], Decision] = {}
    for decision in decisions:
        # (1)
        _assert_about(decision, request.terms)
        # (2)
        latest[decision.approval.role == RULE, decision.approval.by] = decision
    counted: list[JobApproval] = []
    notes: list[str] = []
    for decision in latest.values():
        one = decision.approval
        # (3)
        _assert_signed(decision, bench)
        objection = objection_to(bench, request, one, now)
        # (4)
        if one.decision == "reject" and not objection:
            return Standing(
                "rejected", f"rejected by {one.by} ({one.role}) at {one.at}{_because(one)}", (one,)
            )
        if objection:
            notes.append(f"{one.by} ({one.role}): {objection}")
        elif one.decision == "approve":
            counted.append(one)
    # (5)
    rules = [one for one in counted if one.role == RULE]
    if rules:
        return _approved(rules[:1])
    # (6)
    by_role = {one.role: one for one in counted}
    needed = bench.requirement.n
    if len(by_role) >= needed:
        return _approved(list(by_role.values()))
    missing = f"{len(by_role)} of {needed} approvals by {' or '.join(bench.requirement.roles)}"
    return Standing("waiting", "; ".join([missing, *notes]), tuple(counted))


def objection_to(bench: Bench, request: Request, one: JobApproval, now: str) -> str:
    """Why a decision does not count, though it is genuine; empty if it does."""
    if one.role == RULE:
        objection = _objection_to_rule(bench, request, one)
    else:
        objection = _objection_to_person(bench, request, one)
    if objection or one.decision == "reject":
        return objection
    if one.expires_at <= now:
        return f"expired at {one.expires_at}"
    changed = changed_terms(one, request.terms)
    return f"given for other terms: {', '.join(changed)}" if changed else ""


def changed_terms(one: ApprovalTerms, terms: ApprovalTerms) -> list[str]:
    """Names of the terms that are no longer those decided on; a lower ε or fewer rounds are no change."""
    changed = []
    for name in ApprovalTerms.model_fields:
        approved, asked = getattr(one, name), getattr(terms, name)
        if name == "rounds_max":
            kept = asked <= approved
        elif name == "epsilon_job" and approved is not None and asked is not None:
            kept = asked <= approved * _ROUNDING
        else:
            kept = asked == approved
        if not kept:
            changed.append(name)
    return changed


def _objection_to_rule(bench: Bench, request: Request, one: JobApproval) -> str:
    rule = bench.rules.get(one.by)
    if rule is None:
        return "the rule is in silo.yaml no more"
    if not bench.requirement.automatic:
        return "a threat model refuses approval by rules"
    broken = rule.broken_by(request.terms, request.researcher.id, request.purpose, request.epsilon_alone)
    return f"the rule does not cover it any more: {broken}" if broken else ""


def _objection_to_person(bench: Bench, request: Request, one: JobApproval) -> str:
    person = bench.people.get(one.by)
    if person is None:
        return "is not among silo.yaml's people any more"
    if one.role not in person.roles:
        return f"does not have the role {one.role} any more"
    may = MAY_REJECT if one.decision == "reject" else bench.requirement.roles
    if one.role not in may:
        return f"{one.role} decides nothing here; expected {' or '.join(may)}"
    return "" if one.decision == "reject" else conflict_of(bench, request, one.by, person)


def conflict_of(bench: Bench, request: Request, name: str, person: Person) -> str:
    """Why this person may not approve this job: whoever asks does not decide. Empty if she may.

    A researcher of the silo's own institution is a colleague: there, whoever also has the role researcher
    counts as one who asks.
    """
    researcher = request.researcher
    if person.verify_key == researcher.verify_key:
        return "signed the job herself: whoever asks does not approve"
    if name == researcher.id:
        return "bears the researcher's name: whoever asks does not approve"
    if researcher.legal_entity == bench.silo.legal_entity and "researcher" in person.roles:
        return f"is a researcher of {researcher.legal_entity}, which asks: whoever asks does not approve"
    return ""


def refuse_unless_approved(standing: Standing, job: str) -> None:
    """Let only an approved job pass.

    Raises:
        PolicyRefusal: it is waiting or rejected; in words that may leave the silo, so without names.
    """
    if standing.state == "approved":
        return
    rejected = standing.state == "rejected"
    rule = "approval.rejected" if rejected else "approval.missing"
    sentence = "This silo's people have rejected the job." if rejected else _NOT_YET
    remedy = "ask the silo's data protection officer" if rejected else "wait, or ask the silo to decide"
    raise PolicyRefusal(
        f"job {job}", [Finding(rule, sentence, "an approval that holds now", standing.state, remedy)]
    )


def _assert_about(decision: Decision, terms: ApprovalTerms) -> None:
    one = decision.approval
    for field in ("federation", "silo", "job_digest", "job"):
        if getattr(one, field) != getattr(terms, field):
            raise damaged(
                decision.file, f"{field} {getattr(terms, field)}", f"one for {getattr(one, field)}: replayed"
            )


def _assert_signed(decision: Decision, bench: Bench) -> None:
    one = decision.approval
    if one.role == RULE:
        expected = bench.silo.verify_key
    elif one.by in bench.people:
        expected = bench.people[one.by].verify_key
    else:
        return  # counts for nothing
    if decision.verify_key != expected:
        raise damaged(decision.file, "the key that is registered for its author", "another key")


def _approved(counted: list[JobApproval]) -> Standing:
    names = ", ".join(f"{one.by} ({one.role})" for one in counted)
    until = min(one.expires_at for one in counted)
    return Standing("approved", f"approved by {names}, until {until}", tuple(counted), until)


def _because(one: JobApproval) -> str:
    return f": {one.reason}" if one.reason else ""
