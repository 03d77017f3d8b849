"""A network that does anything at any time: drawn losses, delays, repeats, alterations, mix-ups and replays.

Hypothesis shrinks a failing sequence and keeps it (``.hypothesis``, and the blob that it prints).
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from privacy.errors import SealsumError
from privacy.ids import SiloId
from tests.conformance.scheme import (
    InMemoryScheme,
    Maker,
    Opened,
    Piece,
    assert_honest,
    setting,
)
from tests.conformance.table import EVERY, SCHEMES, THRESHOLD

PLACE = st.integers(0, 10**6)


class Storm(RuleBasedStateMachine):
    """One round of one scheme; ``past`` is all that was sent in an earlier round of the same parties."""

    maker: ClassVar[Maker]

    @initialize(silos=st.integers(2, 4), minimum=st.integers(2, 4), seed=st.integers(0, 2**32))
    def start(self, silos: int, minimum: int, seed: int) -> None:
        terms = setting(silos, dimension=3, seed=seed, minimum=min(minimum, silos))
        earlier = self.maker(terms)
        self.past: list[Piece] = []
        for _ in earlier.steps:
            sent = [piece for silo in terms.cohort for piece in earlier.act(silo)]
            self.past += sent
            for piece in sent:
                earlier.take(piece)
            earlier.close()
        self.scheme: InMemoryScheme = self.maker(terms.next_round())
        self.wire: list[Piece] = []
        self.gone: set[SiloId] = set()
        self.ended: SealsumError | None = None

    def silo(self, place: int) -> SiloId:
        cohort = self.scheme.setting.cohort
        return cohort[place % len(cohort)]

    def take(self, piece: Piece) -> None:
        with suppress(SealsumError):  # a refusal is an answer; what counts is the sum at the end
            self.scheme.take(piece)

    @precondition(lambda self: self.scheme.step)
    @rule(place=PLACE)
    def a_silo_sends(self, place: int) -> None:
        silo = self.silo(place)
        if silo in self.gone:
            return
        try:
            self.wire += self.scheme.act(silo)
        except SealsumError:
            self.gone.add(silo)

    @precondition(lambda self: self.scheme.step)
    @rule()
    def all_silos_send(self) -> None:
        for place in range(len(self.scheme.setting.cohort)):
            self.a_silo_sends(place)

    @rule(place=PLACE)
    def a_silo_leaves(self, place: int) -> None:
        self.gone.add(self.silo(place))

    @precondition(lambda self: self.wire)
    @rule(place=PLACE)
    def a_piece_comes_and_may_come_again(self, place: int) -> None:
        self.take(self.wire[place % len(self.wire)])

    @precondition(lambda self: self.wire)
    @rule(seed=st.integers(0, 2**32))
    def all_that_is_on_the_wire_comes_in_any_order(self, seed: int) -> None:
        random.Random(seed).shuffle(self.wire)
        for piece in self.wire:
            self.take(piece)

    @precondition(lambda self: self.wire)
    @rule(place=PLACE)
    def a_piece_is_lost(self, place: int) -> None:
        self.wire.pop(place % len(self.wire))

    @precondition(lambda self: self.wire)
    @rule(place=PLACE, bit=PLACE)
    def a_bit_of_a_piece_is_flipped(self, place: int, bit: int) -> None:
        piece = self.wire[place % len(self.wire)]
        raw = bytearray(piece.raw)
        raw[bit // 8 % len(raw)] ^= 1 << bit % 8
        self.wire[place % len(self.wire)] = replace(piece, raw=bytes(raw))

    @precondition(lambda self: self.wire)
    @rule(one=PLACE, other=PLACE)
    def two_pieces_are_mixed_up(self, one: int, other: int) -> None:
        piece, label = self.wire[one % len(self.wire)], self.wire[other % len(self.wire)].label
        self.take(replace(piece, label=label))

    @rule(place=PLACE)
    def a_piece_of_an_earlier_round_comes(self, place: int) -> None:
        self.take(self.past[place % len(self.past)])

    @rule(place=PLACE, other=PLACE)
    def a_silo_sends_what_another_silo_has_sent(self, place: int, other: int) -> None:
        pool = self.wire + self.past
        self.take(replace(pool[place % len(pool)], silo=self.silo(other)))

    @precondition(lambda self: self.scheme.step and self.wire)
    @rule()
    def the_step_ends(self) -> None:
        try:
            self.scheme.close()
        except SealsumError as ended:
            self.ended = ended

    @invariant()
    def nothing_is_opened_before_its_time(self) -> None:
        if self.scheme.step or self.ended is not None:
            with pytest.raises(SealsumError):
                self.scheme.opened()

    def teardown(self) -> None:
        """The calm after it: whoever is left does what is right, and the round ends one way or the other."""
        if not hasattr(self, "scheme"):
            return
        while self.scheme.step:
            self.all_silos_send()
            for piece in self.wire:
                self.take(piece)
            self.the_step_ends()
        assert_honest(self.scheme, self.ended or opened(self.scheme))


def opened(scheme: InMemoryScheme) -> Opened | SealsumError:
    """What comes out."""
    try:
        return scheme.opened()
    except SealsumError as ended:
        return ended


def storm_over(name: str, examples: int) -> None:
    machine = type("StormOver", (Storm,), {"maker": staticmethod(SCHEMES[name])})
    terms = settings(max_examples=examples, stateful_step_count=25, print_blob=True, deadline=None)
    run_state_machine_as_test(machine, settings=terms)


@EVERY
def test_no_storm_makes_a_sum_wrong(name: str) -> None:
    storm_over(name, 2 if name in THRESHOLD else 8)


@pytest.mark.slow
@EVERY
def test_no_long_storm_makes_a_sum_wrong(name: str) -> None:
    storm_over(name, 15 if name in THRESHOLD else 150)
