"""Honest silos always pass, the sum is exact, and weak terms cannot be written down."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.errors import MalformedMessage, OutOfOrder, Unprocessable
from privacy.ids import SiloId
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.keystream import Dither
from privacy.secagg.validity.encoding import decode, encode, encode_weight
from privacy.secagg.validity.field import MODULUS, from_signed
from privacy.secagg.validity.projection import Projection, weights
from privacy.secagg.validity.server import CheckShare, ValidityServerHalf
from privacy.secagg.validity.sharing import PART_ELEMENTS, field_stream
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.squares import SquaresProver
from privacy.secagg.validity.terms import ValidityTerms
from tests.validity_cohort import (
    SEALING,
    SILO,
    at_the_bound,
    binding_of,
    exact_squares,
    run,
    share,
    sum_opened,
    toss,
    verdict,
)

SERVERS = tuple(SEALING)[:2]


def terms_of(dimension: int, scale_bits: int = 20) -> ValidityTerms:
    return ValidityTerms(dimension=dimension, norm_bound=1.0, scale_bits=scale_bits)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("dimension", [1, 2, 7, 8, 9, 31, 997, 4096])
def test_a_vector_exactly_at_the_bound_passes(dimension: int, servers: int) -> None:
    terms = terms_of(dimension)
    if dimension < 5:
        x = np.zeros(dimension + 1, dtype=np.int64)
        x[0] = -terms.encoded_bound
    else:
        x = at_the_bound(terms, np.random.default_rng(dimension))
    assert sum(int(v) ** 2 for v in x[:-1]) == terms.encoded_bound**2
    evidence = verdict(terms, run(terms, x, servers))
    assert (evidence.silo, evidence.terms) == (SILO, terms.digest)


def test_a_zero_vector_passes() -> None:
    terms = terms_of(100)
    assert verdict(terms, run(terms, np.zeros(101, dtype=np.int64))).silo == SILO


@pytest.mark.slow
def test_honest_vectors_pass_every_time() -> None:
    """At the largest B that T allows, zero and at the bound, with fresh coins each time."""
    terms = ValidityTerms(dimension=40, norm_bound=0.999, scale_bits=24, projection_bits=28)
    rng = np.random.default_rng(5)
    for _ in range(100):
        for x in (at_the_bound(terms, rng), np.zeros(41, dtype=np.int64)):
            assert verdict(terms, run(terms, x)).silo == SILO


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.randoms(use_true_random=False), st.integers(0, 1 << 20))
def test_any_vector_within_the_bound_passes(dimension: int, random: Random, weight: int) -> None:
    terms = terms_of(dimension)
    rng = np.random.default_rng(random.getrandbits(32))
    x = np.trunc(rng.standard_normal(dimension) * terms.encoded_bound / dimension**0.5 / 2)
    assert float(np.dot(x, x)) <= terms.encoded_bound**2 * 4
    if float(np.dot(x, x)) > terms.encoded_bound**2:
        x = np.trunc(x / 4)
    assert verdict(terms, run(terms, np.append(x.astype(np.int64), weight))).silo == SILO


def test_several_parts_pass_and_are_checked_in_order() -> None:
    terms = terms_of(PART_ELEMENTS)  # the weight alone fills the second part
    x = np.zeros(PART_ELEMENTS + 1, dtype=np.int64)
    x[[0, 5, PART_ELEMENTS - 1, PART_ELEMENTS]] = [3, -4, 12, 9]
    assert verdict(terms, run(terms, x)).silo == SILO
    half = ValiditySiloHalf(terms, binding_of(terms), {s: SEALING[s].public_hex for s in SERVERS})
    with pytest.raises(OutOfOrder, match="part: expected"):
        half.share(PART_ELEMENTS, x[PART_ELEMENTS:])
    with pytest.raises(OutOfOrder, match="share all parts"):
        half.commit()
    half.share(0, x[:PART_ELEMENTS])
    half.share(PART_ELEMENTS, x[PART_ELEMENTS:])
    half.commit()
    coins = (toss(1, b"a", SERVERS), toss(2, b"b", SERVERS))
    server = ValidityServerHalf(terms, share(terms, x).seeds[SERVERS[1]], coins, first=False)
    with pytest.raises(OutOfOrder, match="part: expected"):
        server.absorb(PART_ELEMENTS)
    with pytest.raises(OutOfOrder, match="after all parts"):
        server.message()


@pytest.mark.parametrize("servers", [2, 3])
def test_the_opened_sum_is_the_sum_of_the_vectors(servers: int) -> None:
    terms = terms_of(300)
    rng = np.random.default_rng(3)
    vectors = [at_the_bound(terms, rng) for _ in range(5)]
    shared = [share(terms, x, servers, SiloId(f"silo-{n}")) for n, x in enumerate(vectors)]
    assert np.array_equal(sum_opened(terms, shared), np.sum(vectors, axis=0))


def test_a_silo_beyond_the_bound_refuses_before_anything_leaves_it() -> None:
    terms = terms_of(50)
    for large in (terms.encoded_bound + 1, 1 << 40, (MODULUS - 1) // 2):
        x = np.zeros(51, dtype=np.int64)
        x[7] = large
        with pytest.raises(UpdateOutOfRange, match="norm is beyond norm_bound"):
            share(terms, x)
    by_one = np.zeros(51, dtype=np.int64)
    by_one[:2] = [terms.encoded_bound, 1]
    with pytest.raises(UpdateOutOfRange, match="norm is beyond norm_bound"):
        share(terms, by_one)
    for weight in (-1, terms.weight_scale + 1):
        x = np.zeros(51, dtype=np.int64)
        x[-1] = weight
        with pytest.raises(UpdateOutOfRange, match="weight"):
            share(terms, x)


def test_the_gram_matrix_gives_the_coefficients_of_the_polynomial() -> None:
    terms = terms_of(300)
    x = at_the_bound(terms, np.random.default_rng(2))[:-1]
    u, w = (field_stream(bytes([k]) * 32, 0, terms.rows) for k in (1, 2))
    prover = SquaresProver(terms)
    prover.absorb(x, u, w)
    n = terms.columns
    flat = [int(v) for v in x] + [0] * (-len(x) % n)
    rows = [flat[at : at + n] for at in range(0, len(flat), n)]
    exact = exact_squares(rows, u.tolist(), w.tolist(), n)
    assert exact[n - 1] == terms.encoded_bound**2 == prover.squared_norm()
    assert prover.proof().tolist() == exact[: n - 1] + exact[n:]


def test_projections_are_those_of_the_weights() -> None:
    coin = toss(1, b"x", SERVERS)
    x = field_stream(bytes(32), 0, 9_001)
    z = weights(coin, 64, len(x))
    projection = Projection(coin, 64)
    projection.absorb(0, x)
    signed = [sum(int(a) * int(b) for a, b in zip(x, column, strict=True)) % MODULUS for column in z.T]
    assert projection.values() == signed
    counts = [int(np.sum(z == value)) for value in (-1, 0, 1)]
    for count, share_of in zip(counts, (0.25, 0.5, 0.25), strict=True):
        assert abs(count - z.size * share_of) < 6 * (z.size * 0.25) ** 0.5


def test_projections_of_a_stretch_do_not_depend_on_how_it_was_cut() -> None:
    coin = toss(1, b"x", SERVERS)
    x = field_stream(bytes(32), 0, (1 << 18) + 77)
    whole, cut = Projection(coin, 48), Projection(coin, 48)
    whole.absorb(0, x)
    cut.absorb(1 << 18, x[1 << 18 :])
    cut.absorb(0, x[: 1 << 18])
    assert whole.values() == cut.values()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"projection_bits": 29}, "T ≤ √p/8"),
        ({"projections": 32}, "projections"),
        ({"projections": 56}, "projections"),
        ({"norm_bound": 3.0, "scale_bits": 24}, "norm_bound: expected C"),
        ({"projection_bits": 22}, "norm_bound: expected C"),
        ({"norm_bound": 0}, "norm_bound"),
        ({"dimension": 0}, "dimension"),
        ({"scale_bits": 25}, "scale_bits"),
    ],
)
def test_weak_terms_cannot_be_written_down(change: dict[str, object], sentence: str) -> None:
    """With the draft's own inequalities a vector of 1.85·B was accepted (docs: protocols)."""
    good = {"dimension": 1000, "norm_bound": 1.0, "scale_bits": 20}
    with pytest.raises(ValidationError, match=sentence):
        ValidityTerms.model_validate({**good, **change})


@pytest.mark.parametrize("dimension", [1, 1000, 10**6, 10**8])
def test_errors_are_as_small_as_stated(dimension: int) -> None:
    terms = terms_of(dimension, 24 if dimension < 10 else 23)
    assert terms.soundness_error <= 2.0**-47
    assert terms.completeness_error <= 2.0**-84
    assert 2 * terms.encoded_bound**2 < MODULUS
    assert terms.rows * terms.columns >= dimension > (terms.rows - 1) * terms.columns
    assert terms.bit_count <= terms.domain < 2 * terms.bit_count


def test_berry_esseen_leaves_room_below_one_half() -> None:
    """The second case of the wraparound lemma, at the largest T that the terms admit."""
    sigma, edge = (MODULUS / 2) ** 0.5, MODULUS**0.5 / 8
    assert 2 * edge / (sigma * (2 * np.pi) ** 0.5) + 2 * 0.56 * edge / sigma < 0.35


def test_a_float_update_at_the_bound_encodes_within_it_and_comes_back() -> None:
    terms = terms_of(10_000, 22)
    delta = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
    delta = (delta / np.linalg.norm(delta.astype(np.float64)) * 0.9999999).astype(np.float32)
    encoded = np.append(encode(delta, 1.0, terms, Dither().at(0, 10_000)), encode_weight(1.0, terms))
    shared = share(terms, encoded)
    values = decode(from_signed(sum_opened(terms, [shared])), terms, 1)
    assert np.max(np.abs(values[:-1] - delta)) < 2.0**-22
    assert values[-1] == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1.5])
def test_what_cannot_be_encoded_is_refused(bad: float) -> None:
    with pytest.raises(UpdateOutOfRange, match="update: "):
        encode(np.array([bad], dtype=np.float32), 1.0, terms_of(4), Dither().at(0, 1))


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.01, float("nan")])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(UpdateOutOfRange, match=r"weight in \(0, 1\]"):
        encode_weight(weight, terms_of(4))


def test_a_sum_out_of_range_is_refused() -> None:
    terms = terms_of(4)
    edge = 3 * max(terms.encoded_bound, terms.weight_scale)
    assert decode(np.array([edge, MODULUS - edge], dtype=np.uint64), terms, 3).tolist() == [
        edge / 2**20,
        -edge / 2**20,
    ]
    with pytest.raises(Unprocessable, match="sum: expected one of 3"):
        decode(np.array([edge + 1], dtype=np.uint64), terms, 3)


def test_messages_survive_the_wire_and_bad_ones_do_not() -> None:
    terms = terms_of(100)
    finished = run(terms, at_the_bound(terms, np.random.default_rng(1)))
    for server, message in finished.messages.items():
        raw = message.to_bytes()
        back = CheckShare.from_bytes(raw, server, terms)
        assert back.to_bytes() == raw
        with pytest.raises(MalformedMessage, match="field elements"):
            CheckShare.from_bytes(raw[:-8], server, terms)
        with pytest.raises(MalformedMessage, match="below"):
            CheckShare.from_bytes(raw[:-8] + b"\xff" * 8, server, terms)


def test_only_server_zero_passes_explicit_shares() -> None:
    terms = terms_of(20)
    shared = share(terms, np.zeros(21, dtype=np.int64))
    coins = (toss(1, b"a", SERVERS), toss(2, b"b", SERVERS))
    zero, one = (
        ValidityServerHalf(terms, shared.seeds[server], coins, first=place == 0)
        for place, server in enumerate(SERVERS)
    )
    with pytest.raises(Unprocessable, match="server 0 passes"):
        zero.absorb(0)
    with pytest.raises(Unprocessable, match="server 0 passes"):
        one.absorb(0, shared.parts[0][1])
    with pytest.raises(Unprocessable, match="expected 21 elements"):
        zero.absorb(0, shared.parts[0][1][:-1])
    with pytest.raises(OutOfOrder, match="steps 1 and 2"):
        ValidityServerHalf(terms, shared.seeds[SERVERS[0]], (coins[1], coins[0]), first=True)
