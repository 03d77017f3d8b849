"""A silo's steps 4 and 5: sign one set of survivors, then hand out the shares that open their sum alone."""

from __future__ import annotations

from collections.abc import Sequence

from privacy.canonical import parse_canonical
from privacy.errors import SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import SiloId
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation
from privacy.secagg.pairwise.messages import (
    MAX_BYTES,
    ConsistencySignature,
    MaskedInput,
    UnmaskShares,
    open_from_silo,
    sign,
)
from privacy.secagg.pairwise.silo_state import SiloState, Step, answered, record
from privacy.wire.envelope import Envelope


def agree_survivors(state: SiloState, key: SigningKey, manifests: Sequence[Envelope]) -> Step:
    """Step 4: sign that exactly the senders of ``manifests`` are the survivors, U3.

    (1) Each manifest is signed by a member of the cohort, one a silo; (2) this silo's own is among them,
    unaltered; (3) all were made under the K, the set of dealers and the model that this silo has: masks
    under others do not cancel; (4) survivors are dealers; (5) |U3| ≥ max(t, minimum); (6) this silo has
    signed no other U3 (Bonawitz et al. 2017, Figure 4, round 3: what an active server would need).

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: (1), (2). Equivocation: (1), (3), (4), (6).
        BelowThreshold: (5). OutOfOrder: this silo has uploaded nothing.
    """
    terms, own = state.terms, state.sent("masked")[0]
    mine = _read(own)
    # (1)
    opened = {
        SiloId(item.sender): item for item in (open_from_silo(m, MaskedInput, terms) for m in manifests)
    }
    if len(opened) != len(manifests):
        raise Equivocation("masked: expected one manifest of each silo")
    # (2)
    if state.silo not in opened or opened[state.silo].envelope.body_digest != own.body_digest:
        raise SignatureRejected(
            f"masked: expected silo {state.silo}'s own manifest among them, as it was sent"
        )
    for silo, item in opened.items():
        theirs = item.message
        # (3)
        if (theirs.key_set, theirs.dealers, theirs.model) != (mine.key_set, mine.dealers, mine.model):
            raise Equivocation(
                f"masked: silo {silo} was shown other keys, dealers or another model than this silo"
            )
        if len(theirs.parts) != terms.places.total:
            raise Equivocation(f"masked: silo {silo} uploads vectors of another length")
        # (4)
        if silo not in mine.dealers:
            raise Equivocation(f"masked: silo {silo} dealt no shares")
        if theirs.silo != silo:
            raise Equivocation(f"masked: silo {silo} speaks for silo {theirs.silo}")
    # (5)
    if len(opened) < terms.required:
        raise BelowThreshold(
            f"survivors: expected at least {terms.required}, got {len(opened)}; nothing is opened"
        )
    survivors = tuple(sorted(opened))
    message = ConsistencySignature(
        key_set=mine.key_set,
        dealers=mine.dealers,
        survivors=survivors,
        inputs=tuple(opened[silo].envelope.body_digest for silo in survivors),
    )
    # (6)
    if (earlier := answered(state, "consistency", message.digest)) is not None:
        return earlier
    envelope = sign(message, terms, state.silo, key)
    return Step(record(state, "consistency", message.digest, [envelope]), (envelope,))


def unmask(state: SiloState, key: SigningKey, signatures: Sequence[Envelope]) -> Step:
    """Step 5: hand the server a seed share of each survivor and a key share of each dropout.

    Who is which follows from the U3 that this silo signed; the server cannot ask. (1) Each signature is by
    a survivor, one a silo; (2) each is over exactly that U3; (3) at least t are there (Figure 4, round 4).

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: (1). Equivocation: (1), (2). BelowThreshold: (3).
        OutOfOrder: this silo has signed no U3.
    """
    terms = state.terms
    mine = ConsistencySignature.model_validate(
        parse_canonical(state.sent("consistency")[0].body.encode(), MAX_BYTES[ConsistencySignature])
    )
    # (1)
    opened = [open_from_silo(signature, ConsistencySignature, terms) for signature in signatures]
    signers = {SiloId(item.sender) for item in opened}
    if len(signers) != len(opened):
        raise Equivocation("consistency: expected one signature of each silo")
    for item in opened:
        if item.sender not in mine.survivors:
            raise Equivocation(f"consistency: silo {item.sender} is not one of the survivors")
        # (2)
        if item.message != mine:
            raise Equivocation(f"consistency: silo {item.sender} has signed another set of survivors")
    # (3)
    if len(signers) < terms.threshold:
        raise BelowThreshold(
            f"consistency: expected at least {terms.threshold} signatures, got {len(signers)}"
        )
    if (earlier := answered(state, "unmask", mine.digest)) is not None:
        return earlier
    survivors = set(mine.survivors)
    message = UnmaskShares(
        key_set=mine.key_set,
        consistency=mine.digest,
        seed_shares={dealer: pair.seed for dealer, pair in state.held.items() if dealer in survivors},
        key_shares={dealer: pair.key for dealer, pair in state.held.items() if dealer not in survivors},
    )
    envelope = sign(message, terms, state.silo, key, terms.server)
    state = record(state, "unmask", mine.digest, [envelope])
    return Step(state.model_copy(update={"held": {}}), (envelope,))


def _read(own: Envelope) -> MaskedInput:
    """This silo's own manifest, from its own state."""
    return MaskedInput.model_validate(parse_canonical(own.body.encode(), MAX_BYTES[MaskedInput]))
