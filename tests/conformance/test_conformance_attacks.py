"""One silo's bytes altered, replayed, forged or made for another model, over every catalogued scheme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from privacy.chain import EMPTY
from privacy.errors import SealsumError
from privacy.ids import SiloId
from privacy.plan import VectorTerms
from privacy.secagg.additive import AdditiveSiloHalf, unseal_seed
from privacy.secagg.keystream import Dither
from privacy.secagg.pairwise.silo_masking import masker, open_shares, sign_masked
from privacy.secagg.vectors import MODEL as MODEL_VECTOR
from privacy.secagg.vectors import NamedVector, WeightImplausible, total_weight
from tests.conformance.additive_scheme import SEALING, AdditiveRound
from tests.conformance.pairwise_scheme import PairwiseRound
from tests.conformance.scheme import (
    MODEL,
    OTHER_MODEL,
    Leaves,
    Network,
    Opened,
    Piece,
    Setting,
    assert_as_predicted,
    assert_sum,
    play_step,
    roster,
    setting,
)
from tests.conformance.table import EVERY, SCHEMES

# --- a tampered piece ---


def pieces_of(name: str) -> Iterator[tuple[str, str]]:
    """Step and label of everything that the first silo sends."""
    scheme = SCHEMES[name](setting(4))
    first = scheme.setting.cohort[0]
    for step in scheme.steps:
        for piece in scheme.act(first):
            yield step, piece.label
        play_step(scheme)


def flipped(raw: bytes, at: float) -> bytes:
    out = bytearray(raw)
    out[int(at * (len(out) - 1))] ^= 1
    return bytes(out)


def altering(step: str, label: str, silo: SiloId, at: float) -> Network:
    """A network that flips one bit of one piece of one silo."""

    def alter(now: str, piece: Piece) -> Piece:
        hit = (now, piece.label, piece.silo) == (step, label, silo)
        return replace(piece, raw=flipped(piece.raw, at)) if hit else piece

    return Network(alters=alter)


@EVERY
def test_one_altered_bit_anywhere_takes_its_silo_out_and_nobody_else(name: str) -> None:
    for number, (step, label) in enumerate(pieces_of(name)):
        scheme = SCHEMES[name](setting(4))
        victim = scheme.setting.cohort[0]
        ending = altering(step, label, victim, (0.0, 0.5, 1.0)[number % 3]).play(scheme)
        assert_as_predicted(scheme, ending, {victim: Leaves(step, "before")})


# --- replay ---


@EVERY
def test_what_a_silo_sent_in_another_round_is_nothing_in_this_one(name: str) -> None:
    earlier = SCHEMES[name](setting(4))
    victim = earlier.setting.cohort[0]
    sent: dict[tuple[str, str], Piece] = {}
    for step in earlier.steps:
        sent |= {(step, piece.label): piece for piece in earlier.act(victim)}
        play_step(earlier)
    for step in earlier.steps:
        scheme = SCHEMES[name](earlier.setting.next_round())

        def replayed(now: str, piece: Piece, step: str = step) -> Piece:
            return sent[now, piece.label] if (now, piece.silo) == (step, victim) else piece

        network = Network(alters=replayed)
        ending = network.play(scheme)
        assert network.refused or isinstance(ending, SealsumError)
        assert_as_predicted(scheme, ending, {victim: Leaves(step, "before")})


# --- a foreign silo ---


@EVERY
def test_a_silo_of_the_roster_that_was_not_invited_gets_nothing_into_the_round(name: str) -> None:
    keys = roster(f"silo-{number}" for number in range(1, 6))
    everyone = tuple(sorted(keys))
    invited = Setting(keys, everyone[:4], 5)
    scheme = SCHEMES[name](invited)
    wider = SCHEMES[name](replace(invited, cohort=everyone))  # the same context, as a forger would claim it
    stranger = everyone[4]
    refused = 0
    for _ in scheme.steps:
        signed = [piece for piece in wider.act(stranger) if piece.raw.startswith(b'{"body"')]
        for piece in signed:
            refused += 1
            with pytest.raises(SealsumError):
                scheme.take(piece)
            with pytest.raises(SealsumError):
                scheme.take(replace(piece, silo=everyone[0]))
        play_step(scheme)
        play_step(wider)
    assert_sum(scheme, scheme.opened(), invited.cohort)
    assert refused


# --- another model at one silo (Pasquini et al. 2021) ---


@EVERY
def test_a_silo_that_was_sent_another_model_is_out_by_name_and_its_update_unread(name: str) -> None:
    terms = setting(4)
    victim = terms.cohort[1]
    scheme = SCHEMES[name](replace(terms, models={victim: OTHER_MODEL}))
    network = Network()
    ending = network.play(scheme)
    named = [*network.refused, *([ending] if isinstance(ending, SealsumError) else [])]
    assert any(victim in str(refusal) for refusal in named)
    assert_as_predicted(scheme, ending, {victim: Leaves(scheme.names_model, "before")})


def test_a_seed_under_another_model_does_not_open_even_if_the_manifest_lies() -> None:
    scheme = AdditiveRound(setting(4))
    victim = scheme.setting.cohort[1]
    seed_servers = {server: key.public_hex for server, key in SEALING.items()}
    half = AdditiveSiloHalf(scheme.setting.context, OTHER_MODEL, victim, seed_servers)
    server, key = next(iter(SEALING.items()))
    with pytest.raises(SealsumError, match="does not open"):
        unseal_seed(half.sealed_seeds[server], key, scheme.setting.context, MODEL, victim, server)


def test_masks_made_under_another_model_make_noise_whose_weight_ends_the_round() -> None:
    """A silo whose manifest hides that it was sent another model: its masks do not come off."""
    vector = NamedVector(
        name=MODEL_VECTOR, coordinates=5, terms=VectorTerms(coordinate_bound=1.0, scale_bits=8)
    )
    scheme = PairwiseRound(setting(4))
    for member in scheme.members.values():
        values = np.full(5, 0.5, dtype=np.float32)
        member.update = vector.encode(0, values, 1.0, Dither().at(0, 5))
    liar = scheme.members[scheme.setting.cohort[1]]

    def upload(inbox: list[object]) -> tuple[object, ...]:
        liar.stored = open_shares(liar.state, inbox).to_bytes()  # type: ignore[arg-type]  # envelopes
        masks = masker(liar.state, OTHER_MODEL)
        liar.parts = [masks.mask(0, liar.update)]
        masks.model = MODEL
        return liar.keep(sign_masked(liar.state, liar.key, masks, EMPTY))

    liar.upload = upload  # type: ignore[method-assign, assignment]  # it misbehaves
    ending = Network().play(scheme)
    assert isinstance(ending, Opened)
    assert not np.array_equal(ending.total, scheme.oracle(ending.survivors))
    with pytest.raises(WeightImplausible, match="nothing is divided by it"):
        total_weight(vector, ending.total.astype(np.uint32), len(ending.survivors))
