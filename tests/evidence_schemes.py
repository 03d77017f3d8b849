"""What the parties of each scheme sign in one round, for evidence packs: real keys, coins and masks.

Where a message names bytes that no pack holds (ciphertexts, proofs), a random digest stands in.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from privacy.canonical import sha256_hex
from privacy.chain import EMPTY, Head
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.plan import JobSpec, RoundPlan, ValidityClaim, VectorTerms
from privacy.secagg.he.framing import he_part_count
from privacy.secagg.he.messages import CiphertextManifest, OpenedSum, SumManifest
from privacy.secagg.he.parameters import parameters_named
from privacy.secagg.pairwise.silo_masking import masker, open_shares, sign_masked
from privacy.secagg.pairwise.terms import Assumption, least_threshold, terms_of
from privacy.secagg.parts import part_count, stretches
from privacy.secagg.rows import row_for
from privacy.secagg.threshold.messages import CiphertextManifest as JointKeyManifest
from privacy.secagg.threshold.messages import KeyCommit, PartialDecryption
from privacy.secagg.threshold.messages import SumManifest as JointKeySum
from privacy.secagg.threshold.parameters import threshold_parameters_named
from privacy.secagg.threshold.parts import threshold_part_count
from privacy.secagg.validity.coins import Coin, CoinHalf, Reveals, Step, Toss, settle
from privacy.secagg.validity.messages import (
    COIN_KINDS,
    CoinCommitment,
    CoinReveal,
    ProofManifest,
    SharesManifest,
    SiloVerdict,
    Verdicts,
    frozen_digest,
)
from privacy.secagg.validity.terms import terms_of as validity_terms_of
from privacy.wire.envelope import Envelope
from privacy.wire.messages import AcceptedSet, OpeningShare, SurvivorSet, survivors_digest
from tests.federation import AGGREGATOR, Federation, demo_policy_text
from tests.pairwise_cohort import Cohort, Member

Protocol = Literal["additive", "validity", "pairwise", "bfv", "ckks", "threshold_bfv", "threshold_ckks"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
HOSTILE = Assumption("malicious", 1)
"""What ``demo-pairwise`` assumes."""
Sections = dict[str, Any]
EMPTY_SECTIONS: Mapping[str, type] = {
    **dict.fromkeys(("manifests", "refusals", "keys", "consistency", "opened", "proofs"), dict),
    **dict.fromkeys(("accepted", "survivors", "openings", "sum", "coins", "verdicts"), list),
}


def federation_for(protocol: Protocol) -> Federation:
    """Four hospitals under the threat model that ships for the scheme."""
    if protocol in ("additive", "validity"):
        return Federation()
    return Federation(servers=0, policy_text=demo_policy_text(protocol))


def job_terms(protocol: Protocol) -> dict[str, Any]:
    """What a job of the scheme says beyond the common terms."""
    if protocol == "validity":
        return {"scheme": "additive", "validity": ValidityClaim(norm_bound=3.0)}
    if protocol in ("ckks", "threshold_ckks"):
        return {"scheme": protocol, "vector": VectorTerms(coordinate_bound=4.0, scale_bits=12)}
    return {"scheme": protocol}


def plan_terms(job: JobSpec, silos: int) -> dict[str, Any]:
    """What a plan of the job derives from the scheme."""
    return {
        "validity": job.validity,
        "threshold": least_threshold(silos, HOSTILE) if job.scheme == "pairwise" else None,
        "he": row_for(job.scheme, job.vector, silos),
    }


def some_digest() -> Digest:
    """Of bytes that nobody keeps."""
    return Digest(os.urandom(32).hex())


def digests_of(count: int) -> tuple[Digest, ...]:
    """Of that many parts."""
    return tuple(some_digest() for _ in range(count))


@dataclass
class RoundMessages:
    """Writes one round's sections as honest parties sign them."""

    federation: Federation
    plan: RoundPlan
    heads: Mapping[SiloId, Head]
    """Who uploads, and its ledger's head."""
    opening: bool = True
    failing: Collection[str] = ()
    """Silos whose proof of validity fails."""
    silent: Collection[str] = ()
    """Silos that share and then prove nothing."""
    sections: Sections = field(init=False)

    def __post_init__(self) -> None:
        self.sections = {name: make() for name, make in EMPTY_SECTIONS.items()}
        if self.plan.validity is not None:
            self._validity()
        else:
            write = {
                "additive": self._additive,
                "pairwise": self._pairwise,
                **dict.fromkeys(("bfv", "ckks"), self._he),
                **dict.fromkeys(("threshold_bfv", "threshold_ckks"), self._threshold),
            }
            write[self.plan.scheme]()

    def sign(self, message: Any, kind: Any, sender: str) -> Envelope:
        """As any party."""
        return self.federation.sign(message, kind, self.plan.context, sender)

    @property
    def servers(self) -> tuple[ServerId, ...]:
        """Share servers."""
        return tuple(slot.server for slot in self.plan.servers)

    @property
    def manifests(self) -> dict[SiloId, Digest]:
        """Silo → digest of its manifest."""
        return {silo: sent.body_digest for silo, sent in self.sections["manifests"].items()}

    # --- who is in the sum ---

    def survivors(self, server: str, manifests: Mapping[SiloId, Digest]) -> SurvivorSet:
        """Signed by a server that sums."""
        signed = SurvivorSet(
            server=ServerId(server), survivors=tuple(manifests), manifests=tuple(manifests.values())
        )
        self.sections["survivors"].append(self.sign(signed, "survivors", server))
        return signed

    def accepted(self) -> None:
        """Every share server holds all shares."""
        for server in self.servers:
            frozen = AcceptedSet(server=server, manifests=self.manifests)
            self.sections["accepted"].append(self.sign(frozen, "accepted", server))

    def openings(self, manifests: Mapping[SiloId, Digest]) -> None:
        """Every share server signs the survivors and its share of their sum."""
        for server in self.servers:
            signed = self.survivors(server, manifests)
            share = OpeningShare(server=server, survivors=survivors_digest(signed), parts=digests_of(1))
            self.sections["openings"].append(self.sign(share, "opening", server))

    # --- schemes ---

    def _additive(self) -> None:
        for silo, head in self.heads.items():
            update = self.federation.share(self.plan, silo, ledger_head=head)
            self.sections["manifests"][silo] = update.envelope
        if self.opening:
            self.accepted()
            self.openings(self.manifests)

    def _validity(self) -> None:
        terms = validity_terms_of(self.plan)
        for silo, head in self.heads.items():
            manifest = SharesManifest(
                silo=silo,
                terms=terms.digest,
                model=self.plan.model,
                vector_length=terms.vector_length,
                parts=digests_of(1),
                seeds={server: some_digest() for server in self.servers},
                ledger_head=head,
            )
            self.sections["manifests"][silo] = self.sign(manifest, "validity_manifest", silo)
        if not self.opening:
            return
        self.accepted()
        first = self.toss(1, self.manifests)
        proven = [silo for silo in self.heads if silo not in self.silent]
        for silo in proven:
            proof = ProofManifest(
                silo=silo, shares=self.manifests[silo], coin=first.digest, witness=some_digest()
            )
            self.sections["proofs"][silo] = self.sign(proof, "validity_proof", silo)
        second = self.toss(2, {silo: sent.body_digest for silo, sent in self.sections["proofs"].items()})
        checks = {silo: some_digest() for silo in proven}
        for server in self.servers:
            found = tuple(
                SiloVerdict(silo=silo, check=check, failed="norm" if silo in self.failing else None)
                for silo, check in checks.items()
            )
            verdicts = Verdicts(server=server, coin=second.digest, verdicts=found)
            self.sections["verdicts"].append(self.sign(verdicts, "validity_verdict", server))
        self.openings(
            {
                silo: digest
                for silo, digest in self.manifests.items()
                if silo in set(proven) - set(self.failing)
            }
        )

    def toss(self, step: Step, manifests: Mapping[SiloId, Digest]) -> Coin:
        """A coin of honest share servers."""
        frozen = frozen_digest(manifests)
        what = Toss(Context(self.plan.context), step, frozen, self.servers)
        halves = {server: CoinHalf(what, server) for server in self.servers}
        commitments = {server: half.commitment for server, half in halves.items()}
        values = {server: half.reveal(commitments) for server, half in halves.items()}
        kinds = COIN_KINDS[step]
        for server in self.servers:
            bound = CoinCommitment(server=server, step=step, frozen=frozen, commitment=commitments[server])
            said = CoinReveal(server=server, step=step, frozen=frozen, value=Digest(values[server].hex()))
            self.sections["coins"].append(self.sign(bound, kinds[0], server))
            self.sections["coins"].append(self.sign(said, kinds[1], server))
        return settle(what, Reveals(commitments, values))

    def _pairwise(self) -> None:
        """Silos without a head drop out after they have dealt, so that masks must come off for them."""
        terms = terms_of(self.plan, AGGREGATOR)
        update = next(iter(Cohort.of(2, terms.vector_length).members.values())).update
        members: dict[SiloId, Member] = {
            silo: PayingMember(
                silo,
                self.federation.key(silo),
                update,
                HOSTILE,
                self.plan.model,
                head=self.heads.get(silo, EMPTY),
            )
            for silo in self.plan.silos
        }
        gone = {silo: "masked" for silo in self.plan.silos if silo not in self.heads}
        cohort = Cohort(members, terms, gone)  # type: ignore[arg-type]
        keys = cohort.keys()
        masked = cohort.masked(cohort.shares(keys)) if len(self.heads) >= terms.required else None
        if masked is None:  # nothing of an aborted round is stored but what silos submitted
            return
        self.sections["manifests"] = {silo: one.envelope for silo, one in masked.manifests.items()}
        if self.opening:
            self.sections["keys"] = {silo: one.envelope for silo, one in keys.adverts.items()}
            agreed = cohort.agreed(masked)
            self.sections["consistency"] = {silo: one.envelope for silo, one in agreed.signatures.items()}
            self.survivors(AGGREGATOR, self.manifests)

    def _he(self) -> None:
        plan, key = self.plan, some_digest()
        assert plan.he is not None
        parts = he_part_count(parameters_named(plan.he), plan.vector_length)
        under: dict[str, Any] = {"parameters": plan.he, "key": key, "vector_length": plan.vector_length}
        for silo, head in self.heads.items():
            manifest = CiphertextManifest(
                silo=silo, model=plan.model, parts=digests_of(parts), ledger_head=head, **under
            )
            self.sections["manifests"][silo] = self.sign(manifest, "he_manifest", silo)
        if not self.opening:
            return
        signed = self.survivors(AGGREGATOR, self.manifests)
        summed = SumManifest(
            survivors=signed.survivors, manifests=signed.manifests, parts=digests_of(parts), **under
        )
        envelope = self.sign(summed, "he_sum", AGGREGATOR)
        self.sections["sum"].append(envelope)
        opened = digests_of(part_count(plan.vector_length))
        for silo in signed.survivors:
            word = OpenedSum(silo=silo, sum=envelope.body_digest, parts=opened)
            self.sections["opened"][silo] = self.sign(word, "he_opened", silo)

    def _threshold(self) -> None:
        plan, joint = self.plan, some_digest()
        assert plan.he is not None
        parts = threshold_part_count(threshold_parameters_named(plan.he), plan.vector_length)
        for silo, head in self.heads.items():
            manifest = JointKeyManifest(
                silo=silo,
                model=plan.model,
                parameters=plan.he,
                joint_key=joint,
                vector_length=plan.vector_length,
                bodies=digests_of(parts),
                masks=digests_of(parts),
                ledger_head=head,
            )
            self.sections["manifests"][silo] = self.sign(manifest, "threshold_manifest", silo)
        if not self.opening:
            return
        for silo in plan.silos:  # also those who then showed no share
            commit = KeyCommit(commitment=some_digest())
            self.sections["keys"][silo] = self.sign(commit, "threshold_commit", silo)
        signed = self.survivors(AGGREGATOR, self.manifests)
        summed = JointKeySum(
            joint_key=joint,
            silos=signed.survivors,
            manifests=signed.manifests,
            bodies=digests_of(parts),
            masks=digests_of(parts),
        )
        envelope = self.sign(summed, "threshold_sum", AGGREGATOR)
        self.sections["sum"].append(envelope)
        for silo in signed.survivors:
            word = PartialDecryption(sum=envelope.body_digest, parts=digests_of(parts))
            self.sections["opened"][silo] = self.sign(word, "threshold_partial", silo)


@dataclass
class PayingMember(Member):
    """A silo of a pairwise round whose manifest names the head of its ledger."""

    head: Head = EMPTY

    def upload(self, inbox: Sequence[Envelope]) -> tuple[Envelope, ...]:
        state = open_shares(self.state, inbox)
        masks = masker(state, self.model)
        for piece in stretches(len(self.update)):
            masks.mask(piece.index, self.update[piece.start : piece.start + piece.length])
        return self.keep(sign_masked(state, self.key, masks, self.head))


def model_of(number: int) -> Digest:
    """Digest of the model that round ``number`` publishes."""
    return sha256_hex(f"model {number}".encode())
