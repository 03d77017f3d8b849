"""Inside a round: may this submission be counted, may this set of silos be summed, may she read this model?

What a silo submitted is judged by its signed manifest; what is in the shares nobody can see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies.findings import Finding
from policies.institutions import distinct_entities, same_institution
from policies.loader import LoadedPolicy
from privacy.plan import RoundPlan
from privacy.roster import Charter, Member
from privacy.secagg.parts import part_count
from privacy.wire.envelope import Verified
from privacy.wire.messages import ShareManifest, SurvivorSet, survivors_digest


def submission_findings(plan: RoundPlan, manifest: Verified[ShareManifest]) -> Iterator[Finding]:
    """Whether a manifest names one whole update of this round by the silo that signed it."""
    body = manifest.message
    if manifest.context != plan.context:
        yield _not_this_round("manifest", plan, manifest.context)
    if body.silo != manifest.sender:
        yield Finding(
            "manifest_sender",
            "a silo submits for itself only",
            f"silo {manifest.sender}, who signed",
            body.silo,
            "sign the manifest with the key of the silo that it names",
        )
    if body.silo not in plan.silos:
        yield Finding(
            "manifest_stranger",
            "the silo was not invited to this round",
            f"one of {', '.join(plan.silos)}",
            body.silo,
            "wait for a round that invites this silo",
        )
    if body.model != plan.model:
        yield Finding(
            "manifest_model",
            "the silo started from another model than the plan's: somebody sent it another one",
            f"model {plan.model}",
            body.model,
            "fetch the plan's model again and ask the aggregator why it differed",
        )
    parts = part_count(plan.vector_length)
    if body.vector_length != plan.vector_length or len(body.parts) != parts:
        yield Finding(
            "manifest_length",
            "the share is not as long as the plan's vector",
            f"{plan.vector_length} elements in {parts} parts",
            f"{body.vector_length} elements in {len(body.parts)} parts",
            "share a vector of the plan's parameters and one weight",
        )
    servers = {slot.server for slot in plan.servers[1:]}
    if set(body.seeds) != servers:
        yield Finding(
            "manifest_seeds",
            "every share server but the first holds one sealed seed; else the sum could not be opened",
            f"seeds for {', '.join(sorted(servers))}",
            f"seeds for {', '.join(sorted(body.seeds))}",
            "seal one seed to each of these servers",
        )


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


def agreement_findings(plan: RoundPlan, survivor_sets: Sequence[Verified[SurvivorSet]]) -> Iterator[Finding]:
    """Whether all share servers signed one and the same set for this round."""
    for signed in survivor_sets:
        if signed.context != plan.context:
            yield _not_this_round("survivor set", plan, signed.context)
        if signed.sender != signed.message.server:
            yield Finding(
                "survivors_sender",
                "a share server signs for itself only",
                f"server {signed.sender}, who signed",
                signed.message.server,
                "collect each set from the server that it names",
            )
    servers = sorted(slot.server for slot in plan.servers)
    signers = sorted(signed.sender for signed in survivor_sets)
    if signers != servers:
        yield Finding(
            "survivors_signers",
            "a sum is opened only when every share server has agreed to it, once",
            f"one signed set each of {', '.join(servers)}",
            f"sets of {', '.join(signers) or 'nobody'}",
            "collect the signed set of every share server",
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
    policy: LoadedPolicy, charter: Charter, reader: Member, job_ended: bool
) -> Iterator[Finding]:
    """Whether this member may read the job's newest model.

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


def _not_this_round(what: str, plan: RoundPlan, context: str) -> Finding:
    return Finding(
        "another_round",
        f"the {what} was signed for another round",
        f"context {plan.context}",
        context,
        "send what belongs to this round",
    )
