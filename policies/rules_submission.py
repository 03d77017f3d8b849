"""May this submission be counted? A silo's one update of a round is judged by its signed manifest.

What is in the shares or ciphertexts nobody can see; what a manifest must name differs by scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from policies.findings import Finding, another_round
from privacy.chain import Head
from privacy.plan import RoundPlan
from privacy.secagg.he.framing import he_part_count
from privacy.secagg.he.messages import CiphertextManifest
from privacy.secagg.he.parameters import parameters_named
from privacy.secagg.pairwise.messages import MaskedInput
from privacy.secagg.parts import part_count
from privacy.secagg.threshold.messages import CiphertextManifest as JointKeyManifest
from privacy.secagg.threshold.parameters import threshold_parameters_named
from privacy.secagg.threshold.parts import threshold_part_count
from privacy.secagg.validity.cut import field_part_count
from privacy.secagg.validity.messages import SharesManifest
from privacy.secagg.validity.terms import terms_of
from privacy.secagg.vectors import vectors_of
from privacy.wire.envelope import Verified
from privacy.wire.messages import ShareManifest

Manifest = ShareManifest | SharesManifest | MaskedInput | CiphertextManifest | JointKeyManifest
"""A silo's signed claim to be a survivor of its round; which one a plan has says ``manifest_type``."""
MANIFESTS: dict[str, type[Manifest]] = {
    "additive": ShareManifest,
    "pairwise": MaskedInput,
    "bfv": CiphertextManifest,
    "ckks": CiphertextManifest,
    "threshold_bfv": JointKeyManifest,
    "threshold_ckks": JointKeyManifest,
}


def manifest_type(plan: RoundPlan) -> type[Manifest]:
    """What a silo of this plan signs: shares that are proven valid have a manifest of their own."""
    return MANIFESTS[plan.scheme] if plan.validity is None else SharesManifest


def submission_findings(plan: RoundPlan, manifest: Verified[Manifest], witnessed: Head) -> Iterator[Finding]:
    """Whether a manifest names one whole update of this round by the silo that signed it, and its ledger goes
    on from the head ``witnessed`` before."""
    body = manifest.message
    yield from _ledger_findings(body.silo, witnessed, body.ledger_head)
    if manifest.context != plan.context:
        yield another_round("manifest", plan.context, manifest.context)
    expected = manifest_type(plan)
    if not isinstance(body, expected):
        yield Finding(
            "manifest_scheme",
            "the submission belongs to another scheme than the plan's",
            f"{expected.__name__} ({plan.scheme})",
            type(body).__name__,
            "submit by the plan's scheme",
        )
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
    if isinstance(body, expected):
        yield from _length_findings(plan, body)
    if isinstance(body, ShareManifest | SharesManifest):
        yield from _seed_findings(plan, body)
    if isinstance(body, SharesManifest) and plan.validity is not None and body.terms != terms_of(plan).digest:
        yield Finding(
            "manifest_terms",
            "the update is shared for a proof of other terms than the plan's",
            f"terms {terms_of(plan).digest}",
            body.terms,
            "prove the bound that follows from the plan",
        )
    if isinstance(body, CiphertextManifest | JointKeyManifest) and body.parameters != plan.he:
        yield Finding(
            "manifest_parameters",
            "the update is encrypted under other parameters than the plan's",
            f"parameters {plan.he}",
            body.parameters,
            "encrypt under the plan's parameters",
        )


def _ledger_findings(silo: str, witnessed: Head, shown: Head) -> Iterator[Finding]:
    remedy = (
        f"stop {silo}'s agent; sealsum silo ledger restore, or write-off if entries are lost; a silo that "
        "was enrolled anew takes part under a new name only"
    )
    if shown.seq < witnessed.seq:
        yield Finding(
            "submission.ledger_rolled_back",
            "the silo's ledger is shorter than one it signed: an older copy was restored, or it began anew",
            f"entry {witnessed.seq} ({witnessed.hash[:16]}…) or a later one",
            f"entry {shown.seq} ({shown.hash[:16]}…)",
            remedy,
        )
    elif shown.seq == witnessed.seq and shown.hash != witnessed.hash:
        yield Finding(
            "submission.ledger_forked",
            "the silo signed another entry at this place of its ledger before: two copies of it are in use",
            f"entry {witnessed.seq} ({witnessed.hash[:16]}…)",
            f"entry {shown.seq} ({shown.hash[:16]}…)",
            remedy,
        )


def _length_findings(plan: RoundPlan, body: Manifest) -> Iterator[Finding]:
    cut: Callable[[int], int] = part_count
    if isinstance(body, CiphertextManifest) and plan.he is not None:
        cut = partial(he_part_count, parameters_named(plan.he))
    elif isinstance(body, JointKeyManifest) and plan.he is not None:
        cut = partial(threshold_part_count, threshold_parameters_named(plan.he))
    elif isinstance(body, SharesManifest):
        cut = field_part_count
    parts = vectors_of(plan).places(cut).total
    # A masked input says its length by its parts alone.
    length = plan.vector_length if isinstance(body, MaskedInput) else body.vector_length
    named = len(body.bodies if isinstance(body, JointKeyManifest) else body.parts)
    if length != plan.vector_length or named != parts:
        yield Finding(
            "manifest_length",
            "the share is not as long as the plan's vectors",
            f"{plan.vector_length} elements of the model's vector, and of all {parts} parts",
            f"{length} elements in {named} parts",
            "share the plan's parameters and one weight, then each further vector of the plan",
        )


def _seed_findings(plan: RoundPlan, body: ShareManifest | SharesManifest) -> Iterator[Finding]:
    # With validity the first server has a seed too: its shares of the blinds come from it.
    first = 0 if isinstance(body, SharesManifest) else 1
    servers = {slot.server for slot in plan.servers[first:]}
    if set(body.seeds) != servers:
        yield Finding(
            "manifest_seeds",
            "a share server lacks its sealed seed, or one too many has one; the sum could not be opened",
            f"seeds for {', '.join(sorted(servers))}",
            f"seeds for {', '.join(sorted(body.seeds))}",
            "seal one seed to each of these servers",
        )
