"""The only place where evidence is minted: what a dangerous step takes in place of a boolean.

An ``AdmittedPlan``, ``AdmittedUpdate`` or ``ClearedCohort`` exists only because every rule of its gate
was asked and none said no. Nothing outside this module can construct one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import final

from policies.findings import Finding, PolicyRefusal
from policies.institutions import Reader
from policies.loader import LoadedPolicy
from policies.rules_attacks import Attacked, attack_findings, attacks_released_by, never_attacked
from policies.rules_binding import binding_findings
from policies.rules_plan import limit_findings
from policies.rules_round import (
    agreement_findings,
    consistency_findings,
    opened_once,
    reader_findings,
    survivor_findings,
)
from policies.rules_selection import cohort_is_drawn
from policies.rules_submission import Manifest, submission_findings
from privacy.chain import EMPTY, Head
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter, Role
from privacy.secagg.pairwise.messages import ConsistencySignature
from privacy.wire.envelope import Verified
from privacy.wire.messages import RoundOffer, SurvivorSet, survivors_digest

_MINT = object()


class _Evidence:
    """Base of what only a gate hands out."""

    def _require(self, mint: object) -> None:
        if mint is not _MINT:
            raise TypeError(
                f"{type(self).__name__}: expected it from a gate of policies.gates, not constructed"
            )

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:
            raise TypeError(f"{cls.__name__}: evidence cannot be subclassed outside policies.gates")


@final
@dataclass(frozen=True)
class AdmittedPlan(_Evidence):
    """A plan that every threat model asked admits."""

    plan: RoundPlan
    job: JobSpec
    context: Context
    tolerated: tuple[Finding, ...]
    """What limits it breaks under threat models of mode ``audit``; whoever goes on must log each."""
    mint: InitVar[object] = None

    def __post_init__(self, mint: object) -> None:
        self._require(mint)


@final
@dataclass(frozen=True)
class AdmittedUpdate(_Evidence):
    """A manifest that may be counted in its round."""

    manifest: Manifest
    manifest_digest: Digest
    silo: SiloId
    mint: InitVar[object] = None

    def __post_init__(self, mint: object) -> None:
        self._require(mint)


@final
@dataclass(frozen=True)
class ClearedCohort(_Evidence):
    """The one set of silos whose sum may be opened, once."""

    admitted: AdmittedPlan
    survivors: tuple[SiloId, ...]
    survivors_digest: Digest
    mint: InitVar[object] = None

    def __post_init__(self, mint: object) -> None:
        self._require(mint)


def admit_plan(
    policies: Sequence[LoadedPolicy],
    offer: Verified[RoundOffer],
    job: Verified[JobSpec],
    charter: Charter,
) -> AdmittedPlan:
    """Judge an offered round, in this order; every finding is reported, not the first only:

    (1) the first of ``policies`` is the federation's, by its digest; (2) an aggregator of the roster
    signed the offer, under the context of this very plan; (3) a researcher of the roster signed the
    job, under this charter; (4) the plan is the job's and the charter's, field by field, and its cohort
    was drawn where the job asks for a part of the silos; (5) it keeps the limits of every threat model given,
    the federation's and a silo's own: the stricter one wins.

    Raises:
        PolicyRefusal: with all findings of (1) to (5). Mode ``audit`` moves those of (5) to ``tolerated``.
    """
    plan = offer.message.plan
    refused: list[Finding] = [
        # (1)
        *_federation_first(policies, charter),
        # (2)
        *_signed_by("offer", offer.sender, "aggregator", charter),
        *_signed_under("offer", offer.context, plan.context),
        # (3)
        *_signed_by("job", job.sender, "researcher", charter),
        *_signed_under("job", job.context, charter.digest),
        # (4)
        *binding_findings(plan, job.message, charter),
        *(finding for one in policies[:1] for finding in cohort_is_drawn(one, plan, job.message, charter)),
    ]
    tolerated: list[Finding] = []
    # (5)
    for policy in policies:
        broken = [_by(policy, finding) for finding in limit_findings(policy, plan, charter)]
        broken += [_by(policy, one) for one in attacks_released_by(policies[0].model, policy.model)]
        (tolerated if policy.model.spec.mode == "audit" else refused).extend(broken)
    _refuse_if(f"round {plan.round} of job {plan.job}", refused)
    return AdmittedPlan(plan, job.message, plan.context, tuple(tolerated), mint=_MINT)


def admit_update(
    admitted: AdmittedPlan, manifest: Verified[Manifest], witnessed: Head = EMPTY
) -> AdmittedUpdate:
    """Judge a silo's submission by its signed manifest, and by the last head that this server has
    ``witnessed`` of the silo's ledger of the job's dataset.

    Raises:
        PolicyRefusal: another scheme, round, silo, model, length, seeds or parameters than the plan's; a
            ledger that went back or forked.
    """
    findings = list(submission_findings(admitted.plan, manifest, witnessed))
    _refuse_if(f"submission of {manifest.sender}", findings)
    return AdmittedUpdate(manifest.message, manifest.envelope.body_digest, manifest.message.silo, mint=_MINT)


def check_survivors(
    admitted: AdmittedPlan, survivors: SurvivorSet, charter: Charter, policy: LoadedPolicy
) -> None:
    """A share server's own judgement of a set, before it signs: it believes no other server's count.

    Raises:
        PolicyRefusal: strangers, duplicates, too few silos or institutions, or too many dropouts.
    """
    plan = admitted.plan
    _refuse_if(f"survivors of round {plan.round}", list(survivor_findings(policy, plan, charter, survivors)))


def clear_cohort(
    admitted: AdmittedPlan,
    survivor_sets: Sequence[Verified[SurvivorSet]],
    charter: Charter,
    policy: LoadedPolicy,
    opened_before: bool,
    signatures: Sequence[Verified[ConsistencySignature]] = (),
) -> ClearedCohort:
    """Judge whether the round's one sum may be opened:

    (1) it was never opened; (2) every server that sums signed the same set, for this round; (3) that set
    holds invited silos only, enough of them, of enough institutions, with few enough dropouts; (4) where the
    scheme has silos confirm it (``signatures``), at least t of them signed this very set.

    Raises:
        PolicyRefusal: with all findings. Mode ``audit`` changes nothing here.
    """
    plan = admitted.plan
    refused: list[Finding] = [
        # (1)
        *opened_once(opened_before),
        # (2)
        *agreement_findings(plan, charter, survivor_sets),
    ]
    # (3)
    for message in {survivors_digest(signed.message): signed.message for signed in survivor_sets}.values():
        refused.extend(survivor_findings(policy, plan, charter, message))
        # (4)
        refused.extend(consistency_findings(plan, message, signatures))
    _refuse_if(f"opening of round {plan.round}", refused)
    agreed = survivor_sets[0].message
    return ClearedCohort(admitted, agreed.survivors, survivors_digest(agreed), mint=_MINT)


def check_reader(
    policy: LoadedPolicy,
    charter: Charter,
    reader: Reader,
    job_ended: bool,
    attacked: Sequence[Attacked] = (),
) -> None:
    """Judge whether a reader may be given a model that a job has produced; ``attacked`` are all finished jobs
    that ended with it.

    Raises:
        PolicyRefusal: a researcher outside ``release.model.to``, or before ``release.model.when``, or before
            the attacks of ``require.attack_suite`` have been tried and have come out as they must.
    """
    refused = list(reader_findings(policy, charter, reader, job_ended))
    if reader.role == "researcher":
        refused += [finding for job in attacked for finding in attack_findings(policy, charter, job)]
        refused += never_attacked(policy, attacked)
    _refuse_if(f"model for {reader.id}", refused)


def _federation_first(policies: Sequence[LoadedPolicy], charter: Charter) -> Iterator[Finding]:
    digest = policies[0].digest if policies else "no threat model"
    if digest != charter.policy:
        yield Finding(
            "federation_policy",
            "a plan is judged by the federation's threat model first",
            f"policy {charter.policy}",
            digest,
            "load the threat model from the charter's own text",
        )


def _signed_by(what: str, sender: PartyId, role: Role, charter: Charter) -> Iterator[Finding]:
    if not any(member.id == sender for member in charter.with_role(role)):
        yield Finding(
            f"{what}_sender",
            f"the {what} is not signed by one who may: it takes an enrolled {role}",
            f"one of {', '.join(member.id for member in charter.with_role(role)) or 'nobody'}",
            sender,
            f"have the {role} sign the {what}",
        )


def _signed_under(what: str, context: Digest, expected: Digest) -> Iterator[Finding]:
    if context != expected:
        yield Finding(
            f"{what}_context",
            f"the {what} was signed for another plan or charter than the one it carries",
            f"context {expected}",
            context,
            f"sign the {what} again under its own context",
        )


def _by(policy: LoadedPolicy, finding: Finding) -> Finding:
    """The finding, with the threat model whose limit it is."""
    named = policy.model.metadata
    return replace(finding, expected=f"{finding.expected} (threat model {named.name} v{named.version})")


def _refuse_if(subject: str, findings: list[Finding]) -> None:
    if findings:
        raise PolicyRefusal(subject, findings)
