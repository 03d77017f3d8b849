"""A silo's steps 1 and 2: a fresh key share, first committed to, then shown; and the joint key of all
shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privacy.errors import SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.faults import Equivocation
from privacy.secagg.threshold.joint_key import commitments_of, joint_key
from privacy.secagg.threshold.messages import (
    KeyCommit,
    KeyReveal,
    M,
    commits_digest,
    open_from_silo,
    share_commitment,
    sign_silo,
)
from privacy.secagg.threshold.polynomials import common_polynomial, to_wire
from privacy.secagg.threshold.silo_state import SiloState, Step, answered, record, to_text
from privacy.secagg.threshold.terms import ThresholdTerms, judge_terms
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope, Verified


def begin(
    terms: ThresholdTerms,
    silo: SiloId,
    key: SigningKey,
    worker: Worker,
    *,
    pinned: Mapping[SiloId, str],
    pinned_server: str,
    colluding_silos: int,
) -> Step:
    """Step 1: judge the terms, make this round's key share and commit to it.

    Args:
        pinned: silo → verify key, of every silo in this silo's own copy of the roster.
        pinned_server: the server's verify key, from the same roster.
        colluding_silos: how many this silo's own threat model takes to put what they know together.

    Raises:
        WeakTerms, Unprocessable: this silo must not take part on these terms. WorkerFailed.
    """
    judge_terms(terms, silo, key.verify_key, pinned, pinned_server, colluding_silos)
    secret, public = worker.keygen(common_polynomial(terms.row, terms.context))
    share = to_wire(terms.row, public)
    commit = KeyCommit(commitment=share_commitment(terms, silo, share))
    messages = (sign_silo(commit, terms, silo, key),)
    state = SiloState(
        terms=terms, silo=silo, secret=to_text(to_wire(terms.row, secret)), share=to_text(share)
    )
    return Step(record(state, "commit", terms.digest, messages), messages)


def reveal(state: SiloState, key: SigningKey, commits: Sequence[Envelope]) -> Step:
    """Step 2: show this silo's share, once everybody's commitment is known.

    (1) Each is signed by a member of the cohort, one a silo; (2) this silo's own is among them, unaltered;
    (3) no two are equal, and enough are there. (4) This silo has shown its share against no other set.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed, Equivocation: (1) to (4). BelowThreshold: (3).
    """
    terms = state.terms
    # (1), (2)
    opened = _one_each(state, KeyCommit, commits, state.sent("commit")[0].body_digest)
    # (3)
    commitments = commitments_of(terms, opened)
    seen = commits_digest(terms, commitments)
    # (4)
    if (earlier := answered(state, "reveal", seen)) is not None:
        return earlier
    messages = (sign_silo(KeyReveal(commits=seen, share=state.share), terms, state.silo, key),)
    state = state.model_copy(update={"commitments": commitments})
    return Step(record(state, "reveal", seen, messages), messages)


def join(state: SiloState, reveals: Sequence[Envelope]) -> SiloState:
    """The joint key, added up by this silo itself. Nobody's word is taken for it.

    (1) Each share is signed by a member of the cohort, one a silo; (2) this silo's own is among them, so
    that its secret is needed to open; (3) each is what was committed to, under the same commitments; (4)
    enough are there. (5) This silo has joined no other key.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed, Equivocation: (1), (2), (5). BadJointKey,
        Equivocation: (3). BelowThreshold: (4).
    """
    # (1), (2)
    opened = _one_each(state, KeyReveal, reveals, state.sent("reveal")[0].body_digest)
    # (3), (4)
    key = joint_key(state.terms, {silo: Digest(it) for silo, it in state.commitments.items()}, opened)
    # (5)
    if state.joint_key is not None and state.joint_key != key.digest:
        raise Equivocation("reveal: this silo has joined another key in this round")
    joint = to_text(to_wire(state.terms.row, key.polynomial))
    return state.model_copy(update={"joint": joint, "joint_key": key.digest, "holders": key.holders})


def _one_each(
    state: SiloState, model: type[M], envelopes: Sequence[Envelope], own: Digest
) -> dict[SiloId, Verified[M]]:
    """One verified message of each silo, this silo's own among them, unaltered."""
    opened = [open_from_silo(envelope, model, state.terms) for envelope in envelopes]
    by_silo = {SiloId(item.sender): item for item in opened}
    if len(by_silo) != len(opened):
        raise Equivocation(f"{model.__name__}: expected one message of each silo")
    if state.silo not in by_silo or by_silo[state.silo].envelope.body_digest != own:
        raise SignatureRejected(
            f"{model.__name__}: expected silo {state.silo}'s own message among them, as it was sent"
        )
    return by_silo
