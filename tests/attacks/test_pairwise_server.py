"""A hostile server against the silo half: it shows different silos different things, or asks for too much."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from privacy.canonical import canonical_bytes
from privacy.errors import MalformedMessage, NotAllowed, OutOfOrder, SignatureRejected
from privacy.identity import SealingKey, SigningKey
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import CohortMember
from privacy.sealing import unseal
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation, WeakTerms
from privacy.secagg.pairwise.masks import sealing_info
from privacy.secagg.pairwise.messages import (
    ConsistencySignature,
    KeyAdvert,
    ShareBundle,
    UnmaskShares,
    open_from_silo,
    sign,
)
from privacy.secagg.pairwise.opening import accept_consistency
from privacy.secagg.pairwise.silo_keys import begin
from privacy.secagg.pairwise.silo_state import STEPS
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms
from privacy.wire.envelope import Envelope
from tests.pairwise_cohort import CURIOUS, MALICIOUS, MODEL, Cohort, Member, names


def first(cohort: Cohort) -> Member:
    return cohort.members[cohort.silos[0]]


def without(envelopes: tuple[Envelope, ...], silo: SiloId) -> tuple[Envelope, ...]:
    return tuple(envelope for envelope in envelopes if envelope.sender != silo)


def statement(envelope: Envelope) -> ConsistencySignature:
    return ConsistencySignature.model_validate_json(envelope.body)


# -- the terms: pitfalls 5, 6 and 32


@pytest.mark.parametrize(
    ("assumed", "threshold"),
    [
        (Assumption("malicious", 0), 4),  # 2t = n: two halves of eight could both find t signers
        (Assumption("malicious", 2), 5),
        (Assumption("honest_but_curious", 4), 4),
    ],
)
def test_a_threshold_too_low_for_the_silos_own_threat_model_is_refused(
    assumed: Assumption, threshold: int
) -> None:
    cohort = Cohort.of(8, assumed=assumed, threshold=threshold, minimum=8)
    with pytest.raises(WeakTerms, match=r"threshold: expected at least \d of 8 silos"):
        first(cohort).begin(cohort.terms, cohort.pinned)


def test_a_threshold_of_one_cannot_even_be_named() -> None:
    terms = Cohort.of(3).terms.model_dump()
    with pytest.raises(ValueError, match="threshold"):
        PairwiseTerms.model_validate({**terms, "threshold": 1})


def test_a_sum_in_which_colluders_would_leave_one_honest_silo_is_refused() -> None:
    cohort = Cohort.of(4, assumed=Assumption("honest_but_curious", 2), threshold=3, minimum=3)
    with pytest.raises(WeakTerms, match="two honest silos stay in every sum"):
        first(cohort).begin(cohort.terms, cohort.pinned)


def test_a_peer_under_a_key_that_the_roster_does_not_pin_is_refused() -> None:
    cohort = Cohort.of(3)
    swapped = cohort.terms.model_copy(
        update={
            "cohort": (
                *cohort.terms.cohort[:2],
                CohortMember(silo=cohort.silos[2], verify_key=SigningKey.generate().verify_key),
            )
        }
    )
    with pytest.raises(WeakTerms, match="not in the pinned roster under that key"):
        first(cohort).begin(swapped, cohort.pinned)


def test_an_unknown_silo_in_the_cohort_is_refused() -> None:
    cohort = Cohort.of(3)
    known = {silo: key for silo, key in cohort.pinned.items() if silo != cohort.silos[2]}
    with pytest.raises(WeakTerms, match="not in the pinned roster"):
        first(cohort).begin(cohort.terms, known)


def test_a_silo_signs_nothing_for_a_cohort_that_names_it_under_anothers_key() -> None:
    cohort = Cohort.of(3)
    with pytest.raises(WeakTerms, match="under its own key"):
        begin(cohort.terms, cohort.silos[0], SigningKey.generate(), cohort.pinned, CURIOUS)


# -- step 2: keys in the middle, too few keys, other terms


def test_a_key_that_the_server_puts_in_a_silos_place_is_refused() -> None:
    cohort = Cohort.of(3)
    keys = cohort.keys()
    victim = cohort.silos[1]
    forged = KeyAdvert(
        sealing_key=SealingKey.generate().public_hex,
        mask_key=os.urandom(32).hex(),
        seed_commitment=Digest("55" * 32),
    )
    for signer in (SigningKey.generate(), cohort.members[cohort.silos[2]].key):
        relay = (*without(keys.relay, victim), sign(forged, cohort.terms, victim, signer))
        with pytest.raises(SignatureRejected, match="not over these bytes"):
            first(cohort).share_keys(relay)


def test_an_advert_of_a_party_outside_the_cohort_is_refused() -> None:
    cohort = Cohort.of(3)
    keys = cohort.keys()
    foreign = sign(
        keys.adverts[cohort.silos[1]].message, cohort.terms, SiloId("silo-x"), SigningKey.generate()
    )
    with pytest.raises(NotAllowed, match="not in this round's cohort"):
        first(cohort).share_keys((*keys.relay, foreign))


def test_own_keys_left_out_or_altered_are_noticed() -> None:
    cohort = Cohort.of(4)
    keys = cohort.keys()
    member = first(cohort)
    other = begin(cohort.terms, member.silo, member.key, cohort.pinned, CURIOUS).messages
    for relay in (without(keys.relay, member.silo), (*without(keys.relay, member.silo), *other)):
        with pytest.raises(SignatureRejected, match="own advert among them"):
            member.share_keys(relay)


def test_two_adverts_of_one_silo_are_refused() -> None:
    cohort = Cohort.of(3)
    keys = cohort.keys()
    with pytest.raises(Equivocation, match="one advert of each silo"):
        first(cohort).share_keys((*keys.relay, keys.relay[1]))


def test_a_second_set_of_keys_gets_no_second_shares_and_the_first_set_gets_the_same_ones() -> None:
    """Two dealings of one secret under one threshold would give the server twice t points."""
    cohort = Cohort.of(4)
    keys = cohort.keys()
    member = first(cohort)
    dealt = member.share_keys(keys.relay)
    assert member.share_keys(keys.relay[::-1]) == dealt
    with pytest.raises(Equivocation, match="signs no second"):
        member.share_keys(without(keys.relay, cohort.silos[3]))


@pytest.mark.parametrize("step", ["shares", "masked", "consistency"])
def test_a_silo_refuses_a_step_with_fewer_silos_than_the_minimum(step: str) -> None:
    cohort = Cohort.of(4, minimum=4)
    keys = cohort.keys()
    member, gone = first(cohort), cohort.silos[3]
    if step == "shares":
        with pytest.raises(BelowThreshold, match="expected at least 4 silos, got 3"):
            member.share_keys(without(keys.relay, gone))
        return
    shares = cohort.shares(keys)
    if step == "masked":
        with pytest.raises(BelowThreshold, match="expected at least 4 dealers, got 3"):
            member.upload(without(shares.inbox(member.silo), gone))
        return
    masked = cohort.masked(shares)
    with pytest.raises(BelowThreshold, match="expected at least 4, got 3; nothing is opened"):
        member.agree(without(masked.relay, gone))


def test_terms_told_differently_to_two_silos_never_meet_under_one_set_of_keys() -> None:
    cohort = Cohort.of(3)
    other = cohort.terms.model_copy(update={"minimum": 3})
    cohort.keys()
    victim = cohort.members[cohort.silos[2]]
    adverts = tuple(member.state.sent("keys")[0] for member in cohort.members.values())
    bundles = first(cohort).share_keys(adverts)
    victim.stored = victim.state.model_copy(update={"terms": other}).to_bytes()
    for member in list(cohort.members.values())[1:]:
        member.share_keys(adverts)
    inbox = [
        next(b for b in m.state.sent("shares") if b.recipient == victim.silo) for m in cohort.members.values()
    ]
    assert inbox[0] in bundles
    with pytest.raises(SignatureRejected, match="bound to another set of keys"):
        victim.upload(inbox)


# -- step 3: shares of others


def test_a_share_sealed_for_one_silo_opens_for_no_other_use() -> None:
    cohort = Cohort.of(3)
    shares = cohort.shares(cohort.keys())
    dealer, holder, third = cohort.silos
    bundle = shares.bundles[dealer][holder].message
    key_set, context = shares.keys.key_set, cohort.terms.context

    def opens(who: SiloId, *bound: object) -> bytes:
        secrets = cohort.members[who].state.own_secrets()
        key = SealingKey.from_bytes(bytes.fromhex(secrets.sealing_key))
        return unseal(bytes.fromhex(bundle.sealed), key, sealing_info(*bound))  # type: ignore[arg-type]

    assert len(opens(holder, context, key_set, dealer, holder)) == 66
    for who, bound in (
        (third, (context, key_set, dealer, holder)),
        (third, (context, key_set, dealer, third)),
        (holder, (context, key_set, third, holder)),
        (holder, (context, Digest("33" * 32), dealer, holder)),
        (holder, (Context(Digest("33" * 32)), key_set, dealer, holder)),
    ):
        with pytest.raises(MalformedMessage, match="does not open"):
            opens(who, *bound)


def test_a_bundle_redirected_to_another_silo_is_refused() -> None:
    cohort = Cohort.of(3)
    shares = cohort.shares(cohort.keys())
    member, other = first(cohort), cohort.silos[1]
    inbox = (*without(shares.inbox(member.silo), other), shares.bundles[other][cohort.silos[2]].envelope)
    with pytest.raises(SignatureRejected, match=r"envelope\.recipient"):
        member.upload(inbox)
    relabelled = inbox[-1].model_copy(update={"recipient": PartyId(member.silo)})
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        member.upload((*inbox[:-1], relabelled))


def test_a_second_inbox_is_not_opened_and_own_bundle_cannot_be_withheld() -> None:
    cohort = Cohort.of(4)
    shares = cohort.shares(cohort.keys())
    member = first(cohort)
    inbox = shares.inbox(member.silo)
    with pytest.raises(SignatureRejected, match="own bundle among them"):
        member.upload(without(inbox, member.silo))
    with pytest.raises(Equivocation, match="one bundle of each dealer"):
        member.upload((*inbox, inbox[1]))
    member.upload(inbox)
    with pytest.raises(Equivocation, match="opens no second"):
        member.upload(without(inbox, cohort.silos[3]))


# -- steps 4 and 5: pitfalls 7, 8, 19 and 20


def test_a_second_set_of_survivors_is_refused_also_after_a_crash() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    masked = cohort.until_masked()
    member = first(cohort)
    signed = member.agree(masked.relay)
    assert member.agree(masked.relay[::-1]) == signed  # the same set again: the same message
    member.stored = bytes(member.stored)  # every call re-reads the stored bytes, as after kill -9
    with pytest.raises(Equivocation, match="signs no second"):
        member.agree(without(masked.relay, cohort.silos[4]))
    assert member.state.sent("consistency") == signed


def test_two_sets_of_survivors_shown_to_two_halves_open_neither() -> None:
    """Bonawitz et al. 2017, section 6.2: the victim survives in one set and drops out in the other."""
    cohort = Cohort.of(5, assumed=MALICIOUS)
    masked = cohort.until_masked()
    victim = cohort.silos[4]
    halves = {"with": masked.relay, "without": without(masked.relay, victim)}
    signatures: dict[str, list[Envelope]] = {"with": [], "without": []}
    for place, silo in enumerate(cohort.silos):
        side = "with" if place % 2 == 0 or silo == victim else "without"
        signatures[side] += cohort.members[silo].agree(halves[side])
    assert sorted(len(found) for found in signatures.values()) == [2, 3]
    for member in cohort.members.values():
        own = member.state.sent("consistency")[0]
        side = "with" if own in signatures["with"] else "without"
        other = "without" if side == "with" else "with"
        with pytest.raises(Equivocation, match="signed another set of survivors"):
            member.unmask((*signatures[side], *signatures[other]))
        with pytest.raises(Equivocation, match=r"not one of the survivors|signed another set"):
            member.unmask(signatures[other])
    assert len(signatures["without"]) < cohort.terms.threshold
    for silo in [envelope.sender for envelope in signatures["without"]]:
        with pytest.raises(BelowThreshold, match="expected at least 3 signatures, got 2"):
            cohort.members[SiloId(silo)].unmask(signatures["without"])


def test_a_server_that_asks_for_the_other_share_of_a_peer_too_gets_neither_a_second_time() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    masked = cohort.until_masked()
    agreed = cohort.agreed(masked)
    member, victim = first(cohort), cohort.silos[4]
    given = UnmaskShares.model_validate_json(member.unmask(agreed.relay)[0].body)
    assert set(given.seed_shares) == set(cohort.silos)
    assert not given.key_shares
    with pytest.raises(Equivocation, match="signs no second"):
        member.agree(without(masked.relay, victim))
    forged = statement(agreed.relay[0]).model_copy(
        update={
            "survivors": cohort.silos[:4],
            "inputs": statement(agreed.relay[0]).inputs[:4],
        }
    )
    colluders = [sign(forged, cohort.terms, silo, cohort.members[silo].key) for silo in cohort.silos[1:4]]
    with pytest.raises(Equivocation, match="signed another set of survivors"):
        member.unmask(colluders)
    assert member.state.held == {}
    assert member.state.sent("unmask") == member.unmask(agreed.relay)


def test_no_answer_holds_both_shares_of_any_silo_whatever_the_dropouts() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    cohort.drops = {cohort.silos[1]: "masked", cohort.silos[2]: "consistency"}
    masked = cohort.until_masked()
    cohort.opened(cohort.agreed(masked))
    for silo in (cohort.silos[0], cohort.silos[3], cohort.silos[4]):
        answer = UnmaskShares.model_validate_json(cohort.members[silo].state.sent("unmask")[0].body)
        assert set(answer.seed_shares) == set(masked.survivors)
        assert set(answer.key_shares) == {cohort.silos[1]}


def test_fewer_signatures_than_the_threshold_unmask_nothing_even_if_one_is_repeated() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    agreed = cohort.agreed(cohort.until_masked())
    member = first(cohort)
    few = agreed.relay[: cohort.terms.threshold - 1]
    with pytest.raises(BelowThreshold, match="expected at least 3 signatures, got 2"):
        member.unmask(few)
    with pytest.raises(Equivocation, match="one signature of each silo"):
        member.unmask((*few, few[0]))
    assert len(member.state.held) == 5


def test_a_signature_by_the_server_or_a_stranger_counts_for_nothing() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    agreed = cohort.agreed(cohort.until_masked())
    member = first(cohort)
    forged = sign(agreed.statement, cohort.terms, cohort.silos[1], SigningKey.generate())
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        member.unmask((*agreed.relay[:1], forged))


def test_a_dropouts_signature_does_not_count_towards_the_threshold() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS, drops={names(5)[4]: "masked"})
    agreed = cohort.agreed(cohort.until_masked())
    dropout = cohort.silos[4]
    word = sign(agreed.statement, cohort.terms, dropout, cohort.members[dropout].key)
    with pytest.raises(Equivocation, match=f"silo {dropout} is not one of the survivors"):
        first(cohort).unmask((*agreed.relay[:2], word))
    with pytest.raises(Equivocation, match="not a survivor's word"):
        accept_consistency(agreed.masked, word)


def test_an_update_that_was_uploaded_but_left_out_gets_no_signature_of_its_silo() -> None:
    cohort = Cohort.of(4)
    masked = cohort.until_masked()
    member = first(cohort)
    with pytest.raises(SignatureRejected, match="own manifest among them"):
        member.agree(without(masked.relay, member.silo))
    with pytest.raises(Equivocation, match="one manifest of each silo"):
        member.agree((*masked.relay, masked.relay[1]))


def test_a_silo_that_dealt_no_shares_is_no_survivor_for_the_others() -> None:
    cohort = Cohort.of(4, drops={names(4)[3]: "shares"})
    masked = cohort.until_masked()
    stranger = cohort.silos[3]
    copied = masked.manifests[cohort.silos[1]].message
    shown = sign(copied, cohort.terms, stranger, cohort.members[stranger].key)
    with pytest.raises(Equivocation, match=f"silo {stranger} dealt no shares"):
        first(cohort).agree((*masked.relay, shown))


@pytest.mark.parametrize("change", ["dealers", "model", "key_set", "parts"])
def test_a_survivor_who_was_shown_something_else_is_refused_by_the_others(change: str) -> None:
    cohort = Cohort.of(4)
    masked = cohort.until_masked()
    other = cohort.silos[2]
    theirs = masked.manifests[other].message
    changes = {
        "dealers": {"dealers": theirs.dealers[:3], "unusable": ()},
        "model": {"model": Digest("44" * 32)},
        "key_set": {"key_set": Digest("44" * 32)},
        "parts": {"parts": (*theirs.parts, *theirs.parts)},
    }
    shown = sign(theirs.model_copy(update=changes[change]), cohort.terms, other, cohort.members[other].key)
    with pytest.raises(Equivocation, match=f"silo {other}"):
        first(cohort).agree((*without(masked.relay, other), shown))


def test_a_silo_on_another_model_uploads_noise_that_no_sum_takes_in() -> None:
    """Pasquini et al. 2021 (arXiv 2111.07380): masks made under different models do not cancel."""
    cohort = Cohort.of(4)
    victim = cohort.silos[3]
    cohort.members[victim].model = Digest("44" * 32)
    survivors, total = cohort.run()
    assert victim not in survivors
    assert isinstance(cohort.refused[victim, "masked"], Equivocation)
    assert np.array_equal(total, cohort.oracle(survivors))


# -- replays and order: pitfalls 1 and 3


def test_a_message_of_another_round_is_refused_at_every_step() -> None:
    old, new = Cohort.of(3), Cohort.of(3)
    new.members = {s: replace(m, stored=b"", parts=[]) for s, m in old.members.items()}
    new.terms = old.terms.model_copy(update={"context": Context(Digest("ab" * 32))})
    old_masked = old.until_masked()
    old_agreed = old.agreed(old_masked)
    keys = new.keys()
    member, other = first(new), new.silos[1]
    with pytest.raises(SignatureRejected, match=r"envelope\.context"):
        member.share_keys((*without(keys.relay, other), old_masked.shares.keys.adverts[other].envelope))
    shares = new.shares(keys)
    inbox = shares.inbox(member.silo)
    stale = old_masked.shares.bundles[other][member.silo].envelope
    with pytest.raises(SignatureRejected, match=r"envelope\.context"):
        member.upload((*without(inbox, other), stale))
    masked = new.masked(shares)
    with pytest.raises(SignatureRejected, match=r"envelope\.context"):
        member.agree((*without(masked.relay, other), old_masked.manifests[other].envelope))
    new.agreed(masked)
    with pytest.raises(SignatureRejected, match=r"envelope\.context"):
        member.unmask(old_agreed.relay)


def test_a_message_of_one_step_is_no_message_of_another() -> None:
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    with pytest.raises(SignatureRejected, match=r"envelope\.kind"):
        open_from_silo(masked.relay[0], ConsistencySignature, cohort.terms)
    with pytest.raises(SignatureRejected, match=r"envelope\.kind"):
        open_from_silo(masked.shares.keys.relay[0], ShareBundle, cohort.terms)


def test_no_step_is_taken_before_the_one_before_it() -> None:
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    agreed = cohort.agreed(masked)
    member = first(cohort)
    member.stored = begin(cohort.terms, member.silo, member.key, cohort.pinned, CURIOUS).state.to_bytes()
    with pytest.raises(OutOfOrder, match="pairwise shares: this silo has not signed it"):
        member.upload(masked.shares.inbox(member.silo))
    with pytest.raises(OutOfOrder, match="pairwise masked: this silo has not signed it"):
        member.agree(masked.relay)
    with pytest.raises(OutOfOrder, match="pairwise consistency: this silo has not signed it"):
        member.unmask(agreed.relay)


def test_what_a_silo_sends_before_the_last_step_holds_no_secret_in_the_clear() -> None:
    cohort = Cohort.of(3)
    cohort.keys()
    member = first(cohort)
    secrets = member.state.own_secrets()
    keys = tuple(m.state.sent("keys")[0] for m in cohort.members.values())
    for each in cohort.members.values():
        each.share_keys(keys)
    inbox = [
        next(b for b in m.state.sent("shares") if b.recipient == member.silo) for m in cohort.members.values()
    ]
    member.upload(inbox)
    wire = b"".join(
        canonical_bytes(envelope) for step in STEPS[:3] for envelope in member.state.sent(step)
    ).decode()
    held = member.state.held.values()
    for secret in (secrets.seed, secrets.mask_key, *(p.key for p in held), *(p.seed for p in held)):
        assert secret not in wire
    assert MODEL in wire
