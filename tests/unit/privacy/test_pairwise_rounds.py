"""Whoever drops out, and when: the opened sum is the survivors' sum, bit for bit, or a named refusal."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.errors import OutOfOrder
from privacy.ids import Context, Digest, SiloId
from privacy.plan import CohortMember
from privacy.secagg.keystream import CHUNK_ELEMENTS, keystream
from privacy.secagg.pairwise.faults import BelowThreshold, StateDamaged
from privacy.secagg.pairwise.masks import Mask, own_mask, pair_mask
from privacy.secagg.pairwise.silo_masking import masker, open_shares
from privacy.secagg.pairwise.silo_state import STEPS, SiloState, StepName
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms, least_threshold
from privacy.secagg.parts import PART_ELEMENTS
from tests.pairwise_cohort import CURIOUS, MALICIOUS, MODEL, Cohort, names

EARLY: tuple[StepName, ...] = ("keys", "shares", "masked")


def expected_survivors(cohort: Cohort) -> tuple[SiloId, ...]:
    return tuple(silo for silo in cohort.silos if cohort.drops.get(silo) not in EARLY)


def patterns(silos: tuple[SiloId, ...], most: int) -> Iterator[dict[SiloId, StepName]]:
    """Every way in which up to ``most`` silos can drop out, each at every step."""
    for gone in range(most + 1):
        for who in itertools.combinations(silos, gone):
            for when in itertools.product(STEPS, repeat=gone):
                yield dict(zip(who, when, strict=True))


def assert_a_drawn_round_sums_exactly(data: st.DataObject, most: int) -> None:
    silos = data.draw(st.integers(2, most))
    length = data.draw(st.sampled_from([1, 2, 7, 65_537]))
    assumed = data.draw(st.sampled_from([CURIOUS, MALICIOUS]))
    threshold = data.draw(st.integers(least_threshold(silos, assumed), silos))
    gone = data.draw(st.lists(st.sampled_from(names(silos)), max_size=silos - threshold, unique=True))
    drops = {silo: data.draw(st.sampled_from(STEPS)) for silo in gone}
    cohort = Cohort.of(silos, length, assumed, threshold=threshold, drops=drops)
    survivors, total = cohort.run()
    assert survivors == expected_survivors(cohort)
    assert np.array_equal(total, cohort.oracle(survivors))


@settings(max_examples=8)
@given(st.data())
def test_the_opened_sum_is_the_survivors_sum_bit_for_bit(data: st.DataObject) -> None:
    assert_a_drawn_round_sums_exactly(data, 7)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.data())
def test_the_opened_sum_of_up_to_twenty_silos_is_the_survivors_sum_bit_for_bit(data: st.DataObject) -> None:
    assert_a_drawn_round_sums_exactly(data, 20)


def test_every_dropout_pattern_of_four_silos_opens_the_survivors_sum() -> None:
    for drops in patterns(names(4), 1):
        cohort = Cohort.of(4, assumed=MALICIOUS, drops=drops)
        survivors, total = cohort.run()
        assert survivors == expected_survivors(cohort)
        assert np.array_equal(total, cohort.oracle(survivors)), drops


@pytest.mark.slow
def test_every_dropout_pattern_of_five_silos_opens_the_survivors_sum() -> None:
    for drops in patterns(names(5), 2):
        cohort = Cohort.of(5, assumed=MALICIOUS, drops=drops)
        survivors, total = cohort.run()
        assert survivors == expected_survivors(cohort)
        assert np.array_equal(total, cohort.oracle(survivors)), drops


@pytest.mark.parametrize("step", STEPS)
def test_one_dropout_more_than_the_threshold_allows_ends_the_round_at_that_step(step: StepName) -> None:
    cohort = Cohort.of(4, assumed=MALICIOUS, drops=dict.fromkeys(names(4)[:2], step))
    with pytest.raises(BelowThreshold, match="expected at least 3"):
        cohort.run()


def test_a_vector_of_several_parts_sums_exactly_with_a_dropout_to_recover() -> None:
    silos = names(3)
    cohort = Cohort.of(3, PART_ELEMENTS + CHUNK_ELEMENTS + 7, threshold=2, drops={silos[1]: "masked"})
    survivors, total = cohort.run()
    assert survivors == (silos[0], silos[2])
    assert np.array_equal(total, cohort.oracle(survivors))


@pytest.mark.slow
def test_a_hundred_silos_sum_exactly_with_as_many_dropouts_as_the_threshold_allows() -> None:
    silos = names(100)
    assumed = Assumption("malicious", 20)
    threshold = least_threshold(100, assumed)
    drops = {silo: STEPS[place % 5] for place, silo in enumerate(silos[: 100 - threshold])}
    cohort = Cohort.of(100, 11, assumed, minimum=22, drops=drops)
    survivors, total = cohort.run()
    assert threshold == 61
    assert survivors == expected_survivors(cohort)
    assert np.array_equal(total, cohort.oracle(survivors))


def test_masks_cancel_for_every_pair_of_names_whatever_their_order() -> None:
    shared, key_set, context = os.urandom(32), Digest("33" * 32), Context(Digest("11" * 32))
    for one, other in itertools.permutations(["a", "a-1", "b", "silo-10", "silo-9"], 2):
        total = np.zeros(9, dtype="<u4")
        pair_mask(shared, key_set, context, MODEL, SiloId(one), SiloId(other)).apply(0, total)
        assert total.any()
        pair_mask(shared, key_set, context, MODEL, SiloId(other), SiloId(one)).apply(0, total)
        assert not total.any()


def test_no_two_masks_share_a_key_across_pairs_rounds_models_or_purposes() -> None:
    secret = bytes(32)
    a, b, c = SiloId("a"), SiloId("b"), SiloId("c")
    streams: list[Mask] = []
    for key_set, context, model in itertools.product(["33", "44"], ["11", "12"], ["22", "23"]):
        bound = (Digest(key_set * 32), Context(Digest(context * 32)), Digest(model * 32))
        streams += [own_mask(secret, *bound, silo) for silo in (a, b, c)]
        streams += [pair_mask(secret, *bound, *pair) for pair in ((a, b), (a, c), (b, c))]
    first = {keystream(mask._key, 0, 8).tobytes() for mask in streams}
    assert len(first) == len(streams) == 48


def test_a_masked_update_of_zeros_is_uniform() -> None:
    cohort = Cohort.of(2, 1 << 18)
    for member in cohort.members.values():
        member.update = np.zeros(1 << 18, dtype="<u4")
    cohort.until_masked()
    for member in cohort.members.values():
        counts = np.bincount(np.frombuffer(member.parts[0], dtype=np.uint8), minlength=256)
        expected = counts.sum() / 256
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert 255 - 6 * (2 * 255) ** 0.5 < chi_square < 255 + 6 * (2 * 255) ** 0.5


@pytest.mark.parametrize(
    ("silos", "assumed", "least"),
    [
        (8, Assumption("malicious", 2), 6),  # design/protocols.md: two dropouts of eight
        (8, Assumption("honest_but_curious", 2), 3),
        (2, Assumption("honest_but_curious", 0), 2),
        (3, Assumption("malicious", 0), 2),
        (100, Assumption("malicious", 33), 67),
    ],
)
def test_the_threshold_follows_from_whom_the_silo_assumes_hostile(
    silos: int, assumed: Assumption, least: int
) -> None:
    assert least_threshold(silos, assumed) == least


@given(st.integers(2, 100), st.integers(0, 98))
def test_the_least_threshold_against_a_malicious_server_is_the_least_with_2t_above_n_plus_c(
    silos: int, colluders: int
) -> None:
    least = least_threshold(silos, Assumption("malicious", colluders))
    assert 2 * least > silos + colluders
    assert least > colluders or silos <= colluders
    assert least == 2 or 2 * (least - 1) <= silos + colluders


def test_terms_are_refused_where_silos_are_unsorted_or_repeated_or_too_few() -> None:
    cohort = Cohort.of(3)
    terms = cohort.terms.model_dump()
    for change in (
        {"cohort": terms["cohort"][::-1]},
        {"cohort": [*terms["cohort"][:1], *terms["cohort"][:1], terms["cohort"][2]]},
        {"cohort": terms["cohort"][:1]},
        {"threshold": 1},
        {"threshold": 4},
        {"minimum": 4},
        {"vector_length": 0},
    ):
        with pytest.raises(ValidationError):
            PairwiseTerms.model_validate({**terms, **change})
    same_key = [
        CohortMember(silo=m.silo, verify_key=cohort.terms.cohort[0].verify_key) for m in cohort.terms.cohort
    ]
    with pytest.raises(ValidationError, match="distinct keys"):
        PairwiseTerms.model_validate({**terms, "cohort": [m.model_dump() for m in same_key]})


def test_a_part_is_masked_once_in_order_and_a_state_hands_out_no_masks_after_signing() -> None:
    cohort = Cohort.of(2)
    shares = cohort.shares(cohort.keys())
    member = cohort.members[cohort.silos[0]]
    with pytest.raises(OutOfOrder, match="not opened yet"):
        masker(member.state, MODEL)
    opened = open_shares(member.state, shares.inbox(member.silo))
    masks = masker(opened, MODEL)
    with pytest.raises(OutOfOrder, match="not masked yet"):
        _ = masks.parts
    with pytest.raises(ValueError, match=r"expected uint32\[5\]"):
        masks.mask(0, np.zeros(4, dtype="<u4"))
    with pytest.raises(ValueError, match=r"expected uint32\[5\]"):
        masks.mask(0, np.zeros(5, dtype=np.float32))  # type: ignore[arg-type]
    masks.mask(0, member.update)
    with pytest.raises(OutOfOrder, match="a part is masked once"):
        masks.mask(0, member.update)
    member.upload(shares.inbox(member.silo))
    with pytest.raises(OutOfOrder, match="send that one again"):
        masker(member.state, MODEL)


def test_secrets_leave_the_state_with_the_last_step_that_needs_them() -> None:
    cohort = Cohort.of(3)
    masked = cohort.until_masked()
    member = cohort.members[cohort.silos[0]]
    assert member.state.secrets is None
    assert len(member.state.held) == 3
    cohort.opened(cohort.agreed(masked))
    assert not member.state.held


def test_secrets_do_not_print() -> None:
    cohort = Cohort.of(2)
    cohort.shares(cohort.keys())
    state = cohort.members[cohort.silos[0]].state
    assert state.secrets is not None
    printed = repr(state) + str(state) + repr(state.secrets) + repr(cohort.terms)
    for secret in (state.secrets.seed, state.secrets.mask_key, state.secrets.sealing_key):
        assert secret not in printed
    masked = cohort.masked(cohort.shares(cohort.keys()))
    half = cohort.opened(cohort.agreed(masked))
    answer = cohort.members[cohort.silos[0]].state.sent("unmask")[0]
    assert "seed_shares" in answer.body
    assert "seed_shares" not in repr(answer) + str(answer) + repr(cohort.members[cohort.silos[0]].state)
    assert "_key" not in repr(half)
    assert repr(Mask(True, b"secret")) == "Mask(adds=True)"


@pytest.mark.parametrize("raw", [b"", b"{}", b"null", b'{"terms":1}', b"[" * 100_000])
def test_a_damaged_state_is_refused_without_quoting_it(raw: bytes) -> None:
    with pytest.raises(StateDamaged, match="take no further part") as refusal:
        SiloState.from_bytes(raw)
    assert refusal.value.__cause__ is None
