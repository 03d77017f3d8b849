"""Any silo, any time, any scheme: the sum of exactly the silos that a round names, or an end with a name."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import SealsumError
from privacy.ids import SiloId
from tests.conformance.scheme import (
    MOMENTS,
    InMemoryScheme,
    Leaves,
    Moment,
    Network,
    Opened,
    assert_as_predicted,
    assert_sum,
    play_step,
    roster,
    setting,
)
from tests.conformance.scheme import Setting as Round
from tests.conformance.table import EVERY, SCHEMES, THRESHOLD, WITHOUT_OPENFHE

PRIMES = (1, 2, 3, 7, 127, 2039, 2053, 65_537)


@EVERY
def test_all_silos_sum_exactly(name: str) -> None:
    scheme = SCHEMES[name](setting())
    network = Network()
    assert_sum(scheme, network.play(scheme), scheme.setting.cohort)
    assert network.refused == []


@EVERY
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_silo_may_leave_before_during_or_after_each_step(name: str, moment: Moment) -> None:
    for step in SCHEMES[name](setting()).steps:
        for silos in (3,) if name in THRESHOLD else (2, 4):
            scheme = SCHEMES[name](setting(silos))
            leaves = {scheme.setting.cohort[1]: Leaves(step, moment)}
            assert_as_predicted(scheme, Network(leaves).play(scheme), leaves)


@WITHOUT_OPENFHE
@settings(max_examples=12)
@given(data=st.data())
def test_whoever_leaves_whenever_the_sum_is_exact_or_the_end_is_named(name: str, data: st.DataObject) -> None:
    silos = data.draw(st.integers(2, 9))
    minimum = data.draw(st.integers(2, silos))
    scheme = SCHEMES[name](setting(silos, minimum=minimum))
    leaves = st.builds(Leaves, st.sampled_from(scheme.steps), st.sampled_from(MOMENTS))
    left = data.draw(st.dictionaries(st.sampled_from(scheme.setting.cohort), leaves))
    network = Network(left, shuffles=random.Random(data.draw(st.integers(0, 2**32))))
    assert_as_predicted(scheme, network.play(scheme), left)


@EVERY
def test_pieces_that_come_twice_and_in_any_order_change_nothing(name: str) -> None:
    for seed in range(1 if name in THRESHOLD else 5):
        scheme = SCHEMES[name](setting(seed=seed))
        network = Network(doubles=True, shuffles=random.Random(seed))
        assert_sum(scheme, network.play(scheme), scheme.setting.cohort)
        assert network.refused == []


@EVERY
def test_a_silo_that_is_asked_twice_answers_the_same_bytes(name: str) -> None:
    scheme = SCHEMES[name](setting(3))
    for _ in scheme.steps:
        for silo in scheme.setting.cohort:
            pieces = scheme.act(silo)
            assert scheme.act(silo) == pieces
            for piece in pieces:
                scheme.take(piece)
        scheme.close()
    assert_sum(scheme, scheme.opened(), scheme.setting.cohort)


@EVERY
def test_what_comes_late_is_refused_and_its_silo_is_a_dropout(name: str) -> None:
    for step in SCHEMES[name](setting()).steps:
        scheme = SCHEMES[name](setting())
        silo = scheme.setting.cohort[2]
        network = Network(late={silo: step})
        ending = network.play(scheme)
        assert isinstance(ending, SealsumError) or network.refused
        assert_as_predicted(scheme, ending, {silo: Leaves(step, "before")})


@EVERY
def test_what_comes_early_is_refused_and_may_come_again_in_time(name: str) -> None:
    later = SCHEMES[name](setting())
    for step in later.steps[1:]:
        ahead, behind = SCHEMES[name](later.setting), SCHEMES[name](later.setting)
        while ahead.step != step:
            play_step(ahead)
        for piece in ahead.act(ahead.setting.cohort[0]):
            with pytest.raises(SealsumError):
                behind.take(piece)
        assert_sum(behind, Network().play(behind), behind.setting.cohort)


@EVERY
def test_a_silo_that_says_two_things_in_one_step_is_believed_in_the_first_or_not_at_all(name: str) -> None:
    for step in SCHEMES[name](setting()).steps:
        scheme = SCHEMES[name](setting())
        twin = SCHEMES[name](scheme.setting)
        while scheme.step != step:
            play_step(scheme)
            play_step(twin)
        for silo in scheme.setting.cohort:
            for piece in scheme.act(silo):
                scheme.take(piece)
        for piece in twin.act(twin.setting.cohort[0]):
            with pytest.raises(SealsumError):
                scheme.take(piece)
        assert_sum(scheme, finish(scheme), scheme.setting.cohort)


@EVERY
def test_two_rounds_interleaved_take_nothing_from_each_other(name: str) -> None:
    one = SCHEMES[name](setting())
    other = SCHEMES[name](one.setting.next_round())
    for step in one.steps:
        sent = {
            id(scheme): [piece for silo in scheme.setting.cohort for piece in scheme.act(silo)]
            for scheme in (one, other)
        }
        for here, there in ((one, other), (other, one)):
            for piece in sent[id(there)]:
                if is_signed(piece.raw):
                    with pytest.raises(SealsumError):
                        here.take(piece)
            for piece in sent[id(here)]:
                here.take(piece)
            for piece in sent[id(there)]:
                with pytest.raises(SealsumError):
                    here.take(piece)
        assert one.step == other.step == step
        one.close()
        other.close()
    for scheme in (one, other):
        assert_sum(scheme, scheme.opened(), scheme.setting.cohort)


@EVERY
def test_a_cohort_is_any_part_of_the_roster(name: str) -> None:
    keys = roster(f"silo-{number}" for number in range(1, 11))
    for chosen in ((2, 5, 9), (1, 10), (10, 2, 9, 3)):
        cohort = tuple(sorted(SiloId(f"silo-{number}") for number in chosen))
        scheme = SCHEMES[name](Round(keys, cohort, 5))
        assert_sum(scheme, Network().play(scheme), cohort)


@EVERY
@pytest.mark.parametrize("dimension", PRIMES)
def test_any_dimension_sums_exactly(name: str, dimension: int) -> None:
    scheme = SCHEMES[name](setting(2, dimension))
    assert_sum(scheme, Network().play(scheme), scheme.setting.cohort)


@WITHOUT_OPENFHE
@settings(max_examples=3)
@given(silos=st.integers(2, 11), seed=st.integers(0, 2**32))
def test_a_sampled_number_of_silos_sums_exactly(name: str, silos: int, seed: int) -> None:
    assert_sampled_dropouts(name, silos, seed)


SAMPLED: dict[str, tuple[int, ...]] = {
    # n² sealed shares: test_conformance_masks has every n, test_pairwise_rounds 100.
    "pairwise": (*range(2, 21), 33, 60),
    # Each silo is proven by itself, so that tens stand for what is between them.
    "additive with validity": (*range(2, 21), *range(30, 101, 10)),
    # Every silo reads every other's ciphertexts.
    "threshold_bfv": (2, 3, 5, 12),
    "threshold_ckks": (2, 3, 5, 12),
}
"""Numbers of silos where not every one from 2 to 100 is tried."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "silos"), [(name, n) for name in SCHEMES for n in SAMPLED.get(name, tuple(range(2, 101)))]
)
def test_every_number_of_silos_sums_exactly(name: str, silos: int) -> None:
    assert_sampled_dropouts(name, silos, silos)


def assert_sampled_dropouts(name: str, silos: int, seed: int) -> None:
    """A round with up to as many dropouts as the scheme bears, who and when drawn from ``seed``."""
    draw = random.Random(seed)
    scheme = SCHEMES[name](setting(silos, seed=seed))
    bearable = silos - max(scheme.needed(step, 2) for step in scheme.steps)
    gone = draw.sample(scheme.setting.cohort, draw.randint(0, bearable))
    steps = scheme.steps[: scheme.steps.index(scheme.counted) + 1] if name in THRESHOLD else scheme.steps
    leaves = {silo: Leaves(draw.choice(steps), draw.choice(("before", "during"))) for silo in gone}
    assert_as_predicted(scheme, Network(leaves, shuffles=draw).play(scheme), leaves)


@pytest.mark.slow
@EVERY
def test_ten_million_coordinates_sum_exactly(name: str) -> None:
    dimension = 10**6 + 3 if name in ("additive with validity", *THRESHOLD) else 10**7
    scheme = SCHEMES[name](setting(2, dimension))
    assert_sum(scheme, Network().play(scheme), scheme.setting.cohort)


def finish(scheme: InMemoryScheme) -> Opened:
    """Close the step whose pieces are there, then play the rest."""
    scheme.close()
    while scheme.step:
        play_step(scheme)
    return scheme.opened()


def is_signed(raw: bytes) -> bool:
    """Whether a piece is an envelope; parts and seeds are bytes that an envelope names by digest."""
    return raw.startswith(b'{"body"')
