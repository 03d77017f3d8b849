"""Inside a round: may this set of silos be summed, and may she read this model?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies.findings import Finding, another_round
from policies.institutions import Reader, distinct_entities, same_institution
from policies.loader import LoadedPolicy
from privacy.ids import PartyId
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.secagg.pairwise.messages import ConsistencySignature
from privacy.wire.envelope import Verified
from privacy.wire.messages import SurvivorSet, survivors_digest


def survivor_findings(
    policy: LoadedPolicy, plan: RoundPlan, charter: Charter, survivors: SurvivorSet
) -> Iterator[Finding]:
    """Whether this set of silos may be summed: what every share server asks before it signs."""
    silos = survivors.survivors
    spec = policy.model.spec
    if policy.digest != plan.policy:
        yield Finding(
            "release_policy",
            "the set is judged by another threat model than the plan's",
            f"policy {plan.policy}",
            policy.digest,
            "judge it by the threat model of the pinned charter",
        )
    if list(silos) != sorted(set(silos)) or len(survivors.manifests) != len(silos):
        yield Finding(
            "survivors_form",
            "each silo is summed once, under one manifest",
            "distinct silos, sorted, with a manifest each",
            f"{len(silos)} names, {len(set(silos))} distinct, {len(survivors.manifests)} manifests",
            "name each survivor once",
        )
    strangers = sorted(set(silos) - set(plan.silos))
    if strangers:
        yield Finding(
            "survivors_strangers",
            "a silo that was not invited is in the sum",
            f"survivors among {', '.join(plan.silos)}",
            ", ".join(strangers),
            "leave it out",
        )
    counted = set(silos) & set(plan.silos)
    minimum = max(plan.min_survivors, spec.limits.min_silos_open)
    if len(counted) < minimum:
        yield Finding(
            "survivors_below_minimum",
            "the sum of so few silos says too much of each",
            f"at least {minimum} survivors",
            str(len(counted)),
            "abort the round; it stays charged at the silos that took part",
        )
    dropouts = len(plan.cohort) - len(counted)
    if dropouts > spec.limits.max_dropouts:
        yield Finding(
            "dropouts_above_maximum",
            "whoever may drop silos at will chooses which sum is opened",
            f"at most {spec.limits.max_dropouts} dropouts",
            str(dropouts),
            "abort the round",
        )
    entities = distinct_entities(charter, counted)
    if spec.assume.silos.distinct_legal_entities and entities < spec.limits.min_silos_open:
        yield Finding(
            "survivors_legal_entities",
            "the survivors belong to too few institutions to hide one among them",
            f"at least {spec.limits.min_silos_open} legal entities",
            str(entities),
            "abort the round",
        )


def summing_servers(plan: RoundPlan, charter: Charter) -> list[PartyId]:
    """Who signs the survivors: the plan's share servers, or the one server of a scheme without them."""
    if plan.servers:
        return sorted(slot.server for slot in plan.servers)
    return [member.id for member in charter.with_role("aggregator")]


def agreement_findings(
    plan: RoundPlan, charter: Charter, survivor_sets: Sequence[Verified[SurvivorSet]]
) -> Iterator[Finding]:
    """Whether all servers that sum signed one and the same set for this round."""
    for signed in survivor_sets:
        if signed.context != plan.context:
            yield another_round("survivor set", plan.context, signed.context)
        if signed.sender != signed.message.server:
            yield Finding(
                "survivors_sender",
                "a server signs for itself only",
                f"server {signed.sender}, who signed",
                signed.message.server,
                "collect each set from the server that it names",
            )
    servers = summing_servers(plan, charter)
    signers = sorted(signed.sender for signed in survivor_sets)
    if signers != servers:
        yield Finding(
            "survivors_signers",
            "a sum is opened only when every server has agreed to it, once",
            f"one signed set each of {', '.join(servers)}",
            f"sets of {', '.join(signers) or 'nobody'}",
            "collect the signed set of every server",
        )
    digests = {survivors_digest(signed.message) for signed in survivor_sets}
    if len(digests) > 1:
        yield Finding(
            "survivors_disagree",
            "share servers signed different sets: their shares add up to noise",
            "one set, the same at every server",
            f"{len(digests)} different sets",
            "abort the round and compare the servers' logs",
        )


def consistency_findings(
    plan: RoundPlan, agreed: SurvivorSet, signatures: Sequence[Verified[ConsistencySignature]]
) -> Iterator[Finding]:
    """``pairwise``: whether t survivors signed this very set (Bonawitz et al. 2017, Figure 4, round 3)."""
    if plan.scheme != "pairwise":
        return
    wanted = (agreed.survivors, agreed.manifests)
    signers = {
        signed.sender
        for signed in signatures
        if signed.context == plan.context
        and signed.sender in agreed.survivors
        and (signed.message.survivors, signed.message.inputs) == wanted
    }
    if plan.threshold is None or len(signers) < plan.threshold:
        yield Finding(
            "survivors_unconfirmed",
            "masks come off only for a set that enough of its silos have signed",
            f"signatures of {plan.threshold} survivors on this set",
            f"{len(signers)}",
            "abort the round",
        )


def opened_once(opened_before: bool) -> Iterator[Finding]:
    """Two sums over the same updates differ by single silos."""
    if opened_before:
        yield Finding(
            "second_opening",
            "a round is opened once: the difference of two sums is one silo's update",
            "a round that was never opened",
            "a round with a recorded opening",
            "start a new round",
        )


def reader_findings(
    policy: LoadedPolicy, charter: Charter, reader: Reader, job_ended: bool
) -> Iterator[Finding]:
    """Whether this reader may have the job's newest model.

    Silos and servers need it to run the job. A researcher counts as a silo's where their institution has one.
    """
    if reader.role != "researcher":
        return
    release = policy.model.spec.release.model
    own = any(same_institution(silo.legal_entity, reader.legal_entity) for silo in charter.with_role("silo"))
    if release.to == "silos" and not own:
        yield Finding(
            "model_recipient",
            "models go to the silos' institutions only",
            "a researcher of an institution that owns a silo (release.model.to: silos)",
            reader.legal_entity,
            "ask a silo's institution, or agree on release.model.to: researchers",
        )
    if release.when == "job_end" and not job_ended:
        yield Finding(
            "model_not_yet",
            "only the last model of a job is released, when the job has ended",
            "a job that has ended (release.model.when: job_end)",
            "a running job, or an earlier one of its models",
            "wait for the end of the job, and ask for its last model",
        )
