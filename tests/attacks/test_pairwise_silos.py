"""Hostile silos against the sum half: a round goes on without them or ends naming them; no sum is wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privacy.canonical import sha256_hex
from privacy.errors import MalformedMessage, NotFound, SignatureRejected, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import SiloId
from privacy.secagg.pairwise import shamir
from privacy.secagg.pairwise.collecting import (
    accept_keys,
    accept_masked,
    accept_shares,
    close_keys,
    close_masked,
    close_shares,
)
from privacy.secagg.pairwise.faults import BadKey, BadShare, BelowThreshold, Equivocation
from privacy.secagg.pairwise.messages import (
    ConsistencySignature,
    KeyAdvert,
    MaskedInput,
    PairwiseMessage,
    ShareBundle,
    UnmaskShares,
    sign,
)
from privacy.secagg.pairwise.opening import accept_unmask, close_consistency
from privacy.secagg.pairwise.silo_state import STEPS, Signed, StepName
from privacy.secagg.pairwise.unmasking import SumHalf, check_part
from privacy.wire.envelope import Envelope
from tests.pairwise_cohort import MALICIOUS, SERVER, Cohort, Tamper, names

P = 2**255 - 19
ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
LOW_ORDER = [value.to_bytes(32, "little").hex() for value in (0, 1, *ORDER_8, P - 1, P, P + 1)]


def altering(cohort: Cohort, silo: SiloId, shape: type[PairwiseMessage], /, **changes: Any) -> Tamper:
    """The silo's own message with other content, signed by the silo itself: a liar, not a forger."""

    def tamper(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        return tuple(
            sign(
                shape.model_validate({**shape.model_validate_json(each.body).model_dump(), **changes}),
                cohort.terms,
                silo,
                cohort.members[silo].key,
                each.recipient,
            )
            for each in messages
        )

    return tamper


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_low_order_mask_key_excludes_its_silo_at_the_server_and_stops_a_silo_shown_it(point: str) -> None:
    cohort = Cohort.of(4)
    liar = cohort.silos[1]
    cohort.tampers = {(liar, "keys"): altering(cohort, liar, KeyAdvert, mask_key=point)}
    keys = cohort.keys()
    assert liar not in keys.adverts
    assert isinstance(cohort.refused[liar, "keys"], BadKey)
    shown = altering(cohort, liar, KeyAdvert, mask_key=point)(cohort.members[liar].state.sent("keys"))
    with pytest.raises(BadKey, match="low-order point"):
        cohort.members[cohort.silos[0]].share_keys((*keys.relay, *shown))


@pytest.mark.parametrize(
    "key", ["00" * 1216, "ff" * 1216, SealingKey.generate().public_hex[:2368] + "00" * 32]
)
def test_a_sealing_key_that_nothing_can_be_sealed_to_excludes_its_silo(key: str) -> None:
    cohort = Cohort.of(3)
    liar = cohort.silos[1]
    cohort.tampers = {(liar, "keys"): altering(cohort, liar, KeyAdvert, sealing_key=key)}
    assert liar not in cohort.keys().adverts
    assert isinstance(cohort.refused[liar, "keys"], BadKey)


@pytest.mark.parametrize("name", ["sealing_key", "mask_key", "seed_commitment"])
def test_a_key_that_two_silos_claim_is_refused_on_both_sides(name: str) -> None:
    cohort = Cohort.of(3)
    keys = cohort.keys()
    liar, copied = cohort.silos[1], getattr(keys.adverts[cohort.silos[2]].message, name)
    shown = altering(cohort, liar, KeyAdvert, **{name: copied})((keys.adverts[liar].envelope,))
    relay = tuple(each for each in keys.relay if each.sender != liar)
    with pytest.raises(BadKey, match=f"the same {name}"):
        cohort.members[cohort.silos[0]].share_keys((*relay, *shown))
    adverts = [accept_keys(cohort.terms, each) for each in (*relay, *shown)]
    with pytest.raises(BadKey, match=f"the same {name}"):
        close_keys(cohort.terms, adverts)


# -- step 2: bad dealing


def test_a_dealer_who_leaves_a_holder_out_or_deals_for_others_is_no_dealer() -> None:
    cohort = Cohort.of(3)
    keys = cohort.keys()
    one, two = (cohort.members[silo].share_keys(keys.relay) for silo in cohort.silos[:2])
    for bundles in (one[:2], (*one[:2], one[0]), (*one, one[0]), (*one[:2], two[2]), ()):
        with pytest.raises(BadShare, match="expected"):
            accept_shares(keys, bundles)


def test_shares_under_other_keys_are_refused() -> None:
    cohort = Cohort.of(3)
    keys = cohort.keys()
    dealer = cohort.silos[0]
    bundles = cohort.members[dealer].share_keys(keys.relay)
    with pytest.raises(SignatureRejected, match="another set of keys"):
        accept_shares(keys, altering(cohort, dealer, ShareBundle, key_set="33" * 32)(bundles))


@pytest.mark.parametrize("field", ["sealed", "key_commitment", "seed_commitment"])
def test_a_dealer_whose_shares_are_unusable_is_named_and_nothing_is_opened(field: str) -> None:
    cohort = Cohort.of(4)
    liar = cohort.silos[1]
    junk = "00" * (1202 if field == "sealed" else 32)
    cohort.tampers = {(liar, "shares"): altering(cohort, liar, ShareBundle, **{field: junk})}
    shares = cohort.shares(cohort.keys())
    with pytest.raises(BadShare, match=f"shares of silo {liar}: 3 silos cannot use theirs"):
        cohort.masked(shares)


def test_one_share_that_one_holder_cannot_use_costs_nobody_else_the_round() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    liar, holder = cohort.silos[1], cohort.silos[0]
    spoil = altering(cohort, liar, ShareBundle, sealed="00" * 1202)

    def tamper(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        return tuple(spoil((each,))[0] if each.recipient == holder else each for each in messages)

    cohort.tampers = {(liar, "shares"): tamper}
    survivors, total = cohort.run()
    assert survivors == cohort.silos
    assert np.array_equal(total, cohort.oracle(survivors))
    answer = UnmaskShares.model_validate_json(cohort.members[holder].state.sent("unmask")[0].body)
    assert set(answer.seed_shares) == set(cohort.silos) - {liar}


@pytest.mark.parametrize(("secret", "gone"), [("seed", False), ("mask_key", True)])
def test_a_dealer_who_shares_another_secret_than_it_advertised_is_named(secret: str, gone: bool) -> None:
    """Every share fits its commitment, and what they rebuild does not: only the dealer can have done it."""
    cohort = Cohort.of(4)
    liar = cohort.silos[2]
    if gone:
        cohort.drops = {liar: "masked"}
    keys = cohort.keys()
    member = cohort.members[liar]
    honest = member.state
    lied = honest.own_secrets().model_copy(update={secret: os.urandom(32).hex()})
    member.stored = honest.model_copy(update={"secrets": lied}).to_bytes()
    shares = cohort.shares(keys)
    member.stored = member.state.model_copy(update={"secrets": honest.secrets}).to_bytes()
    agreed = cohort.agreed(cohort.masked(shares))
    with pytest.raises(BadShare, match=f"of silo {liar}: what its shares rebuild is not .*nothing is opened"):
        cohort.opened(agreed)


# -- step 3: bad uploads


def test_a_part_that_is_not_what_its_silo_signed_is_refused() -> None:
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    silo = cohort.silos[0]
    manifest, raw = masked.manifests[silo], cohort.members[silo].parts[0]
    for wrong in (raw[:-1] + bytes([raw[-1] ^ 1]), raw[:-4], raw + b"\0\0\0\0", b""):
        with pytest.raises(Unprocessable, match="not what the silo signed"):
            check_part(manifest, 0, wrong)
    for index in (-1, 1):
        with pytest.raises(NotFound, match="expected 0 to 0"):
            check_part(manifest, index, raw)


def test_a_missing_repeated_or_foreign_part_never_gives_a_sum() -> None:
    cohort = Cohort.of(4, drops={names(4)[3]: "masked"})
    masked = cohort.until_masked()
    half = cohort.opened(cohort.agreed(masked))
    parts = [check_part(masked.manifests[s], 0, cohort.members[s].parts[0]) for s in masked.survivors]
    with pytest.raises(Unprocessable, match="expected 3 survivors' parts, got 2"):
        half.total(0, parts[:2])
    with pytest.raises(Unprocessable, match="expected one of each survivor"):
        half.total(0, [*parts, parts[0]])
    with pytest.raises(Unprocessable, match="part: expected 0 to 0, got 1"):
        half.total(1, parts)
    assert np.array_equal(half.total(0, parts[::-1]), cohort.oracle(masked.survivors))


def test_a_part_of_another_length_that_its_silo_signed_gives_no_sum() -> None:
    cohort = Cohort.of(3)
    liar = cohort.silos[1]
    short = b"\0" * 16
    masked = cohort.until_masked()
    member = cohort.members[liar]
    lie = altering(cohort, liar, MaskedInput, parts=[sha256_hex(short)])(member.state.sent("masked"))
    manifests = [item for silo, item in masked.manifests.items() if silo != liar]
    member.stored = member.state.model_copy(
        update={"signed": {**member.state.signed, "masked": Signed(seen=lie[0].body_digest, messages=lie)}}
    ).to_bytes()
    member.parts = [short]
    masked = close_masked(masked.shares, [*manifests, accept_masked(masked.shares, *lie)])
    half = cohort.opened(cohort.agreed(masked))
    with pytest.raises(Unprocessable, match="expected 20 bytes, got 16"):
        cohort.total(masked, half)


@pytest.mark.parametrize("change", ["dealers", "model", "key_set", "parts"])
def test_a_manifest_that_does_not_match_the_others_excludes_its_silo(change: str) -> None:
    cohort = Cohort.of(4)
    shares = cohort.shares(cohort.keys())
    liar = cohort.silos[1]
    changes: dict[str, Any] = {
        "dealers": list(cohort.silos[:3]),
        "model": "44" * 32,
        "key_set": "44" * 32,
        "parts": ["44" * 32] * 2,
    }
    cohort.tampers = {(liar, "masked"): altering(cohort, liar, MaskedInput, **{change: changes[change]})}
    masked = cohort.masked(shares)
    assert liar in masked.dropouts
    assert isinstance(cohort.refused[liar, "masked"], Equivocation)
    total = cohort.total(masked, cohort.opened(cohort.agreed(masked)))
    assert np.array_equal(total, cohort.oracle(masked.survivors))


def test_two_different_uploads_of_one_silo_are_refused_before_a_set_is_frozen() -> None:
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    manifests = list(masked.manifests.values())
    with pytest.raises(Equivocation, match="sent two; expected one"):
        close_masked(masked.shares, [*manifests, manifests[0]])
    with pytest.raises(Equivocation, match="sent two; expected one"):
        close_shares(masked.shares.keys, [*masked.shares.bundles.items(), *masked.shares.bundles.items()])


def test_an_upload_of_a_silo_that_dealt_no_shares_is_refused() -> None:
    cohort = Cohort.of(4, drops={names(4)[3]: "shares"})
    shares = cohort.shares(cohort.keys())
    masked = cohort.masked(shares)
    stranger = cohort.silos[3]
    copied = masked.manifests[cohort.silos[0]].message
    with pytest.raises(Equivocation, match="dealt no shares"):
        accept_masked(shares, sign(copied, cohort.terms, stranger, cohort.members[stranger].key))


# -- steps 4 and 5: bad signatures and shares


def test_a_silo_that_signs_other_survivors_is_left_out_and_the_rest_open() -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    masked = cohort.until_masked()
    liar = cohort.silos[0]
    cohort.tampers = {
        (liar, "consistency"): altering(
            cohort,
            liar,
            ConsistencySignature,
            survivors=list(cohort.silos[:4]),
            inputs=[each.body_digest for each in masked.relay[:4]],
        )
    }
    agreed = cohort.agreed(masked)
    assert liar not in agreed.signatures
    assert isinstance(cohort.refused[liar, "consistency"], Equivocation)
    assert np.array_equal(cohort.total(masked, cohort.opened(agreed)), cohort.oracle(masked.survivors))
    with pytest.raises(Equivocation, match="sent two"):
        close_consistency(masked, [*agreed.signatures.values(), *agreed.signatures.values()])


@pytest.mark.parametrize("field", ["seed_shares", "key_shares"])
def test_a_tampered_share_names_its_holder_and_the_others_open_the_right_sum(field: str) -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    cohort.drops = {cohort.silos[4]: "masked"}
    liar = cohort.silos[0]

    def tamper(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        shares = dict(getattr(UnmaskShares.model_validate_json(messages[0].body), field))
        dealer = sorted(shares)[-1]
        altered = (int(shares[dealer], 16) + 1) % shamir.PRIME
        return altering(cohort, liar, UnmaskShares, **{field: {**shares, dealer: f"{altered:066x}"}})(
            messages
        )

    cohort.tampers = {(liar, "unmask"): tamper}
    survivors, total = cohort.run()
    assert np.array_equal(total, cohort.oracle(survivors))
    refusal = cohort.refused[liar, "unmask"]
    assert isinstance(refusal, BadShare)
    assert f"unmask of silo {liar}" in str(refusal)


def test_tampered_shares_of_more_silos_than_may_be_lost_end_the_round() -> None:
    cohort = Cohort.of(4, assumed=MALICIOUS)
    liars = cohort.silos[:2]
    cohort.tampers = {
        (liar, "unmask"): altering(
            cohort, liar, UnmaskShares, seed_shares=dict.fromkeys(cohort.silos, "00" * 33)
        )
        for liar in liars
    }
    with pytest.raises(BelowThreshold, match="expected at least 3, got 2; nothing is opened"):
        cohort.run()


def test_without_the_checks_on_shares_a_tampered_one_would_still_be_caught_by_what_was_advertised() -> None:
    """The second line: an answer that skipped ``accept_unmask`` rebuilds a seed nobody committed to."""
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    agreed = cohort.agreed(masked)
    answers = [accept_unmask(agreed, *cohort.members[silo].unmask(agreed.relay)) for silo in cohort.silos]
    dealer = cohort.silos[1]
    lie = answers[0].message.model_copy(
        update={"seed_shares": {**answers[0].message.seed_shares, dealer: "00" * 32 + "07"}}
    )
    with pytest.raises(BadShare, match=r"rebuild is (not|longer)|longer than any secret"):
        SumHalf(agreed, [replace(answers[0], message=lie), *answers[1:]])


def test_shares_of_both_kinds_for_one_silo_are_no_message() -> None:
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    agreed = cohort.agreed(masked)
    liar = cohort.silos[0]
    honest = cohort.members[liar].unmask(agreed.relay)[0]
    both = UnmaskShares.model_validate_json(honest.body).model_copy(
        update={"key_shares": {cohort.silos[1]: "00" * 33}}  # copied unchecked, as a liar would
    )
    forged = sign(both, cohort.terms, liar, cohort.members[liar].key, SERVER)
    with pytest.raises(MalformedMessage, match="would open its update"):
        accept_unmask(agreed, forged)


@pytest.mark.parametrize("missing", [True, False])
def test_an_answer_with_a_share_too_few_or_too_many_is_refused(missing: bool) -> None:
    cohort = Cohort.of(4)
    agreed = cohort.agreed(cohort.until_masked())
    liar = cohort.silos[0]
    honest = cohort.members[liar].unmask(agreed.relay)
    shares = UnmaskShares.model_validate_json(honest[0].body).seed_shares
    changed = (
        {"seed_shares": dict(list(shares.items())[1:])}
        if missing
        else {"key_shares": {"silo-unknown": "00" * 33}}
    )
    with pytest.raises(BadShare, match=f"unmask of silo {liar}: expected a (seed|key) share"):
        accept_unmask(agreed, *altering(cohort, liar, UnmaskShares, **changed)(honest))


def test_one_silo_cannot_answer_twice_to_stand_for_two_indices() -> None:
    cohort = Cohort.of(4, assumed=MALICIOUS)
    agreed = cohort.agreed(cohort.until_masked())
    answers = [accept_unmask(agreed, *cohort.members[silo].unmask(agreed.relay)) for silo in cohort.silos[:2]]
    with pytest.raises(Equivocation, match=r"unmask: silo .* sent two"):
        SumHalf(agreed, [*answers, answers[0]])
    with pytest.raises(BelowThreshold, match="expected at least 3, got 2"):
        SumHalf(agreed, answers)


def test_an_answer_about_other_survivors_or_to_another_server_is_refused() -> None:
    cohort = Cohort.of(3)
    agreed = cohort.agreed(cohort.until_masked())
    liar = cohort.silos[0]
    honest = cohort.members[liar].unmask(agreed.relay)
    with pytest.raises(SignatureRejected, match="another set of survivors"):
        accept_unmask(agreed, *altering(cohort, liar, UnmaskShares, consistency="44" * 32)(honest))
    with pytest.raises(SignatureRejected, match=r"envelope\.recipient"):
        accept_unmask(agreed, honest[0].model_copy(update={"recipient": "all"}))


@pytest.mark.parametrize("step", STEPS)
def test_unsigned_or_foreign_messages_are_refused_in_every_step(step: StepName) -> None:
    cohort = Cohort.of(5, assumed=MALICIOUS)
    liar = cohort.silos[0]

    def flip(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        return tuple(each.model_copy(update={"signature": "00" * 64}) for each in messages)

    cohort.tampers = {(liar, step): flip}
    survivors, total = cohort.run()
    assert isinstance(cohort.refused[liar, step], SignatureRejected)
    assert np.array_equal(total, cohort.oracle(survivors))
