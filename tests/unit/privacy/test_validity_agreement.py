"""What parties work out of signed messages, and how vectors are cut: the same at every party, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import OutOfOrder, Unprocessable
from privacy.ids import Digest, PartyId, ServerId, SiloId
from privacy.plan import ValidityClaim
from privacy.secagg.parts import stretches
from privacy.secagg.validity.agreement import passed_everywhere, settled, toss_over
from privacy.secagg.validity.coins import CoinHalf, Toss
from privacy.secagg.validity.cut import field_part_count, field_stretch, field_stretches, within
from privacy.secagg.validity.encoding import from_ring, to_ring
from privacy.secagg.validity.field import from_signed
from privacy.secagg.validity.messages import CoinCommitment, CoinReveal, SiloVerdict, Verdicts
from privacy.secagg.validity.terms import terms_of
from privacy.wire.messages import AcceptedSet, accepted_by_all
from tests.federation import Federation

FEDERATION = Federation()
SPEC = FEDERATION.job_spec(parameters=60, validity=ValidityClaim(norm_bound=2.0))
PLAN = FEDERATION.plan(SPEC, validity=SPEC.validity)
TERMS = terms_of(PLAN)
A, B = Digest("aa" * 32), Digest("bb" * 32)
ONE, TWO = SiloId(PartyId("silo-1")), SiloId(PartyId("silo-2"))
FIRST, SECOND = (slot.server for slot in PLAN.servers)


def accepted(server: ServerId, **silos: Digest) -> AcceptedSet:
    return AcceptedSet.model_validate({"server": server, "manifests": silos})


def verdicts(server: ServerId, *found: tuple[SiloId, Digest, Any], coin: Digest = A) -> Verdicts:
    said = tuple(SiloVerdict(silo=silo, check=check, failed=failed) for silo, check, failed in found)
    return Verdicts(server=server, coin=coin, verdicts=said)


def test_only_what_every_server_accepted_alike_is_fixed() -> None:
    sets = [accepted(FIRST, a=A, b=A, c=A), accepted(SECOND, a=A, b=B)]
    assert accepted_by_all(sets) == {"a": A}


def test_nothing_is_tossed_over_nothing() -> None:
    with pytest.raises(Unprocessable, match="coin 1: expected at least one silo whose shares"):
        toss_over(PLAN, 1, {})
    with pytest.raises(Unprocessable, match="coin 2: expected at least one silo that has proven"):
        toss_over(PLAN, 2, {})


def said(toss: Toss) -> tuple[list[CoinCommitment], list[CoinReveal]]:
    halves = [CoinHalf(toss, server) for server in toss.servers]
    committed = {server: half.commitment for server, half in zip(toss.servers, halves, strict=True)}
    return (
        [
            CoinCommitment(server=server, step=toss.step, frozen=toss.frozen, commitment=half.commitment)
            for server, half in zip(toss.servers, halves, strict=True)
        ],
        [
            CoinReveal(
                server=server, step=toss.step, frozen=toss.frozen, value=Digest(half.reveal(committed).hex())
            )
            for server, half in zip(toss.servers, halves, strict=True)
        ],
    )


def test_everybody_settles_the_same_coin_and_nobody_a_partial_or_foreign_one() -> None:
    toss = toss_over(PLAN, 1, {ONE: A, TWO: B})
    commitments, reveals = said(toss)
    coin = settled(toss, commitments, reveals)
    assert coin == settled(toss, commitments[::-1], reveals[::-1])
    with pytest.raises(OutOfOrder, match="differing: server-1"):
        settled(toss, commitments[:1], reveals)
    with pytest.raises(OutOfOrder, match="the toss is not over"):
        settled(toss, commitments, reveals[:1])
    for other in (toss_over(PLAN, 1, {ONE: A}), toss_over(PLAN, 2, {ONE: A, TWO: B})):
        with pytest.raises(Unprocessable, match="speaks of another toss"):
            settled(other, commitments, reveals)


def test_a_half_that_was_stored_reveals_what_it_had_committed_to() -> None:
    toss = toss_over(PLAN, 1, {ONE: A})
    half, other = CoinHalf(toss, FIRST), CoinHalf(toss, SECOND)
    again = CoinHalf.stored(toss, FIRST, half.to_store)
    commitments = {FIRST: half.commitment, SECOND: other.commitment}
    assert (again.commitment, again.reveal(commitments)) == (half.commitment, half.reveal(commitments))


def test_survivors_are_those_that_no_server_fails() -> None:
    both = {ONE: A, TWO: B}
    good, bad = (ONE, A, None), (TWO, A, "norm")
    assert passed_everywhere([verdicts(FIRST, good, bad), verdicts(SECOND, good, (TWO, A, None))], both) == {
        ONE: A
    }
    assert passed_everywhere([verdicts(FIRST, good, (TWO, A, None)), verdicts(SECOND, good, bad)], both) == {
        ONE: A
    }


@pytest.mark.parametrize(
    "other",
    [
        verdicts(SECOND, (ONE, B, None)),
        verdicts(SECOND, (ONE, A, None), coin=B),
        verdicts(SECOND, (ONE, A, None), (TWO, A, None)),
        verdicts(SECOND),
    ],
    ids=["check", "coin", "more", "fewer"],
)
def test_servers_that_were_told_different_things_agree_on_nobody(other: Verdicts) -> None:
    with pytest.raises(Unprocessable, match="told them different things"):
        passed_everywhere([verdicts(FIRST, (ONE, A, None)), other], {ONE: A, TWO: B})


def test_a_silo_without_shares_is_in_no_verdict() -> None:
    found = [verdicts(server, (TWO, A, None)) for server in (FIRST, SECOND)]
    with pytest.raises(Unprocessable, match="with shares only, got silo-2"):
        passed_everywhere(found, {ONE: A})


@given(length=st.integers(2, 1 << 23))
def test_field_parts_cover_a_vector_once_and_each_ring_part_is_whole_ones(length: int) -> None:
    pieces = list(field_stretches(length))
    assert len(pieces) == field_part_count(length)
    assert [piece.index for piece in pieces] == list(range(len(pieces)))
    ends = [0, *(piece.start + piece.length for piece in pieces)]
    assert ends[:-1] == [piece.start for piece in pieces]
    assert ends[-1] == length
    assert [part for piece in stretches(length) for part in within(piece, length)] == pieces
    for piece in stretches(length):
        assert sum(part.length for part in within(piece, length)) == piece.length
    with pytest.raises(Unprocessable, match="part: expected"):
        field_stretch(len(pieces), length)


@given(values=st.lists(st.integers(-(2**31) + 1, 2**31 - 1), min_size=1, max_size=20))
def test_a_sum_in_range_is_the_same_integers_in_field_and_ring(values: list[int]) -> None:
    signed = np.array(values, dtype=np.int64)
    contributors = int(np.abs(signed).max()) // TERMS.encoded_bound + 1
    ring = to_ring(from_signed(signed), TERMS, contributors)
    np.testing.assert_array_equal(ring.view(np.int32), signed)
    np.testing.assert_array_equal(from_ring(ring), signed)


@pytest.mark.parametrize("beyond", [2 * TERMS.encoded_bound + 1, -2 * TERMS.encoded_bound - 1, 2**62, 2**31])
def test_a_sum_that_no_valid_updates_have_is_refused_not_wrapped(beyond: int) -> None:
    contributors = 2 if abs(beyond) != 2**31 else 10_000
    with pytest.raises(Unprocessable, match="valid updates, got an element out of range"):
        to_ring(from_signed(np.array([0, beyond], dtype=np.int64)), TERMS, contributors)
