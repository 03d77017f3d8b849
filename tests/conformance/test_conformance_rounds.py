"""Any silo, any time, any scheme: the sum of exactly the silos that a round names, or an end with a name."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import SealsumError
from privacy.ids import SiloId
from tests.conformance.scheme import (
    MOMENTS,
    InMemoryScheme,
    Leaves,
    Network,
    Opened,
    assert_honest,
    assert_sum,
    completed,
    play_step,
    roster,
    setting,
)
from tests.conformance.scheme import Setting as Round
from tests.conformance.table import SCHEMES

PRIMES = (1, 2, 3, 7, 127, 2039, 2053, 65_537)
EVERY = pytest.mark.parametrize("name", list(SCHEMES))


def moments(name: str) -> Iterator[tuple[str, Leaves]]:
    """Each scheme with each moment at which a silo can go away."""
    for step in SCHEMES[name](setting()).steps:
        for moment in MOMENTS:
            yield name, Leaves(step, moment)


def assert_as_predicted(scheme: InMemoryScheme, network: Network) -> None:
    """What must come of a round in which silos only go away: known beforehand, survivors and all."""
    ending = network.play(scheme)
    left = network.leaves
    if all(len(completed(scheme, step, left)) >= most for step, most in scheme.needed.items()):
        assert_sum(scheme, ending, completed(scheme, scheme.counted, left))
    else:
        assert isinstance(ending, SealsumError)
        assert_honest(scheme, ending)


@EVERY
def test_all_silos_sum_exactly(name: str) -> None:
    scheme = SCHEMES[name](setting())
    network = Network()
    assert_sum(scheme, network.play(scheme), scheme.setting.cohort)
    assert network.refused == []


@pytest.mark.parametrize(("name", "leaves"), [case for name in SCHEMES for case in moments(name)])
def test_a_silo_may_leave_before_during_or_after_each_step(name: str, leaves: Leaves) -> None:
    for silos in (2, 4):
        scheme = SCHEMES[name](setting(silos))
        assert_as_predicted(scheme, Network({scheme.setting.cohort[1]: leaves}))


@EVERY
@settings(max_examples=12)
@given(data=st.data())
def test_whoever_leaves_whenever_the_sum_is_exact_or_the_end_is_named(name: str, data: st.DataObject) -> None:
    silos = data.draw(st.integers(2, 9))
    minimum = data.draw(st.integers(2, silos))
    scheme = SCHEMES[name](setting(silos, minimum=minimum))
    leaves = st.builds(Leaves, st.sampled_from(scheme.steps), st.sampled_from(MOMENTS))
    left = data.draw(st.dictionaries(st.sampled_from(scheme.setting.cohort), leaves))
    network = Network(left, shuffles=random.Random(data.draw(st.integers(0, 2**32))))
    assert_as_predicted(scheme, network)


@EVERY
def test_pieces_that_come_twice_and_in_any_order_change_nothing(name: str) -> None:
    for seed in range(5):
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
        assert len(network.refused) > 0
        gone = {silo: Leaves(step, "before")}
        assert_sum(scheme, ending, completed(scheme, scheme.counted, gone))


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


@EVERY
@settings(max_examples=3)
@given(silos=st.integers(2, 11), seed=st.integers(0, 2**32))
def test_a_sampled_number_of_silos_sums_exactly(name: str, silos: int, seed: int) -> None:
    assert_sampled_dropouts(name, silos, seed)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("silos", range(2, 101))
def test_every_number_of_silos_sums_exactly(name: str, silos: int) -> None:
    if name == "pairwise" and silos > 20 and silos % 20:
        pytest.skip("pairwise: 10^4 sealed shares a round; every number is swept in test_conformance_masks")
    assert_sampled_dropouts(name, silos, silos)


def assert_sampled_dropouts(name: str, silos: int, seed: int) -> None:
    """One round without and one with as many dropouts as the scheme bears, at moments drawn from ``seed``."""
    draw = random.Random(seed)
    for share in (0.0, 1.0):
        scheme = SCHEMES[name](setting(silos, seed=seed))
        bearable = silos - max(scheme.needed.values())
        gone = draw.sample(scheme.setting.cohort, int(share * draw.randint(0, bearable)))
        leaves = {silo: Leaves(draw.choice(scheme.steps), draw.choice(MOMENTS)) for silo in gone}
        ending = Network(leaves, shuffles=draw).play(scheme)
        assert_sum(scheme, ending, completed(scheme, scheme.counted, leaves))


@pytest.mark.slow
@EVERY
def test_ten_million_coordinates_sum_exactly(name: str) -> None:
    dimension = 10**6 + 3 if name == "additive with validity" else 10**7
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
