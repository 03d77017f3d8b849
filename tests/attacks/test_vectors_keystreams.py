"""Attacks on rounds of several vectors: one keystream under two of them would give away their difference."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import MalformedMessage, OutOfOrder, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.secagg import additive, keystream
from privacy.secagg.additive import AdditiveSiloHalf, SeedSumHalf, unseal_seed
from privacy.secagg.he.framing import SEED_BYTES, he_stretch
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.pairwise.masks import Mask, own_mask, pair_mask
from privacy.secagg.validity.field import subtract
from privacy.secagg.validity.server import UpdateRejected, judge
from privacy.secagg.validity.sharing import SeedShares, field_stream
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.vectors import MODEL, VectorName, purpose_for
from tests import validity_cohort
from tests.he_cohort import silo_half

CTX, MODEL_DIGEST = Context(Digest("11" * 32)), Digest("22" * 32)
SILO, SERVER = SiloId(PartyId("a")), ServerId(PartyId("server-b"))
KEY = SealingKey.generate()
NAMES = [MODEL, *map(VectorName, ("control", "controls", "statistics", "m", "model_", "mask", "seed"))]
LENGTH = 4096
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True).map(VectorName)


def assert_nothing_in_common(streams: list[np.ndarray]) -> None:
    """Pairwise: neither equal nor shifted by one constant anywhere worth speaking of, nor negated."""
    for one, other in itertools.combinations(streams, 2):
        for combined in (one - other, one + other):
            assert len(np.unique(combined)) > 0.99 * len(combined)


def test_the_same_values_under_two_names_give_an_additive_server_no_difference() -> None:
    half = AdditiveSiloHalf(CTX, MODEL_DIGEST, SILO, {SERVER: KEY.public_hex}, NAMES)
    values = np.frombuffer(os.urandom(4 * LENGTH), dtype="<u4")
    assert_nothing_in_common([half.share(0, values, name) for name in NAMES])


def test_a_seed_expands_to_another_stream_for_each_vector_and_purpose() -> None:
    seed = os.urandom(32)
    streams = [
        SeedSumHalf([(SILO, seed)], CTX, MODEL_DIGEST, SERVER, name).total(0, LENGTH) for name in NAMES
    ]
    assert_nothing_in_common(streams)


def test_masks_of_two_vectors_have_nothing_in_common_in_pairwise() -> None:
    secret, key_set = os.urandom(32), Digest("33" * 32)
    other = SiloId(PartyId("b"))
    masks: list[Mask] = []
    for name in NAMES:
        masks.append(own_mask(secret, key_set, CTX, MODEL_DIGEST, SILO, name))
        masks.append(pair_mask(secret, key_set, CTX, MODEL_DIGEST, SILO, other, name))
    streams = []
    for mask in masks:
        streams.append(np.zeros(LENGTH, dtype="<u4"))
        mask.apply(0, streams[-1])
    assert_nothing_in_common(streams)


def test_shares_of_two_vectors_have_nothing_in_common_under_validity() -> None:
    seed = os.urandom(32)
    terms = ValidityTerms(dimension=LENGTH, norm_bound=4.0, scale_bits=16)
    first = SeedShares(SERVER, validity_cohort.binding_of(terms), seed)
    coin = Digest("44" * 32)
    shares = [first, *(first.for_vector(name, terms.digest) for name in NAMES[1:])]
    streams = [share.vector(0, LENGTH) for share in shares]
    streams += [blind for share in shares for blind in share.blinds(0, LENGTH)]
    streams += [share.witness(coin, LENGTH) for share in shares]
    assert_nothing_in_common(streams)


def test_every_ciphertext_of_every_vector_has_a_seed_of_its_own() -> None:
    for row, parameters in PARAMETERS.items():
        length = 3 * parameters.payload
        zeros = np.zeros(length, dtype=np.uint32)
        ciphertexts = []
        for _ in range(3):  # a vector each, under the one key
            part = silo_half(row, length, 2).encrypt(0, zeros)
            size = len(part) // he_stretch(parameters, 0, length).ciphertexts
            ciphertexts += [part[at : at + SEED_BYTES] for at in range(0, len(part), size)]
        assert len(set(ciphertexts)) == len(ciphertexts) == 9


def test_no_key_and_iv_meet_twice_in_a_round_of_several_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[bytes] = []
    plain = keystream.derive_key

    def noted(seed: bytes, info: bytes) -> bytes:
        used.append(plain(seed, info))
        return used[-1]

    monkeypatch.setattr(additive, "derive_key", noted)
    servers = {ServerId(PartyId(f"server-{letter}")): KEY.public_hex for letter in "bcd"}
    for silo in ("a", "b", "c"):
        AdditiveSiloHalf(CTX, MODEL_DIGEST, SiloId(PartyId(silo)), servers, NAMES)
    assert len(set(used)) == len(used) == 3 * 3 * len(NAMES)


@given(st.sets(NAME, min_size=2, max_size=12), st.sampled_from(["mask", "self", "vector", "blind-u/0"]))
def test_purposes_of_different_vectors_never_coincide(names: set[VectorName], purpose: str) -> None:
    purposes = [
        purpose_for(each, name) for name in names | {MODEL} for each in (purpose, "seed", "witness/00")
    ]
    assert len(set(purposes)) == len(purposes)


@pytest.mark.parametrize("name", ["", "Model", "a/b", "mask\x00", "x" * 33, "a\n", "é"])
def test_a_name_that_could_reach_into_the_next_field_makes_no_key(name: str) -> None:
    with pytest.raises(ValueError, match="expected a name of"):
        purpose_for("mask", VectorName(name))


def test_the_seed_of_a_round_opens_nothing_under_another_vectors_name() -> None:
    half = AdditiveSiloHalf(CTX, MODEL_DIGEST, SILO, {SERVER: KEY.public_hex}, NAMES)
    values = np.arange(LENGTH, dtype=np.uint32)
    seed = unseal_seed(half.sealed_seeds[SERVER], KEY, CTX, MODEL_DIGEST, SILO, SERVER)
    share = half.share(0, values, VectorName("control"))
    right, wrong = (
        SeedSumHalf([(SILO, seed)], CTX, MODEL_DIGEST, SERVER, name).total(0, LENGTH)
        for name in (VectorName("control"), MODEL)
    )
    assert np.array_equal(share + right, values)
    assert len(np.unique(share + wrong)) > 0.99 * LENGTH


# --- validity ---


def proven(vectors: dict[VectorName, ValidityTerms], bound_to: dict[VectorName, VectorName]) -> None:
    """A whole check in which each server takes vector ``name`` for ``bound_to[name]``. Raises if it fails."""
    servers = dict(list(validity_cohort.SEALING.items())[:2])
    first = vectors[MODEL]
    binding = validity_cohort.binding_of(first)
    further = {name: each for name, each in vectors.items() if name != MODEL}
    half = ValiditySiloHalf(first, binding, {s: k.public_hex for s, k in servers.items()}, further)
    halves = {MODEL: half, **half.further}
    encoded = {
        name: np.append(np.ones(each.dimension, dtype=np.int64), each.weight_scale)
        for name, each in vectors.items()
    }
    shares = {name: halves[name].share(0, encoded[name]) for name in vectors}
    unsealed = {
        server: validity_cohort.unseal_seed(half.sealed_seeds[server], key, binding, server)
        for server, key in servers.items()
    }
    coin = validity_cohort.toss(1, b"shares", tuple(servers))
    witnesses = {}
    for name, each in halves.items():
        each.commit()
        each.open_coin(coin)
        each.project(0, encoded[name])
        witnesses[name] = each.prove()
    coins = (coin, validity_cohort.toss(2, b"witnesses", tuple(servers)))
    for name, each in vectors.items():
        taken = bound_to[name]
        seeds = {
            server: seed if taken == MODEL else seed.for_vector(taken, each.digest)
            for server, seed in unsealed.items()
        }
        messages = validity_cohort.check(each, seeds, [(0, shares[name])], witnesses[name], coins)
        judge(each, coins[1], validity_cohort.SILO, messages, name)


def test_shares_of_one_vector_prove_nothing_as_another_even_under_the_same_terms() -> None:
    terms = ValidityTerms(dimension=33, norm_bound=4.0, scale_bits=16)
    control = VectorName("control")
    vectors = {MODEL: terms, control: terms}
    proven(vectors, {MODEL: MODEL, control: control})
    with pytest.raises(UpdateRejected):
        proven(vectors, {MODEL: control, control: MODEL})


def test_a_vector_cannot_be_opened_twice_under_one_seed() -> None:
    terms = ValidityTerms(dimension=5, norm_bound=4.0, scale_bits=16)
    servers = {s: key.public_hex for s, key in list(validity_cohort.SEALING.items())[:2]}
    binding = validity_cohort.binding_of(terms)
    with pytest.raises(Unprocessable, match="another vector than the first"):
        ValiditySiloHalf(terms, binding, servers, {MODEL: terms})
    half = ValiditySiloHalf(terms, binding, servers, {VectorName("control"): terms})
    half.further[VectorName("control")].share(0, np.zeros(6, dtype=np.int64))
    with pytest.raises(OutOfOrder, match="part: expected"):
        half.further[VectorName("control")].share(0, np.ones(6, dtype=np.int64))
    shares = SeedShares(SERVER, binding, os.urandom(32))
    with pytest.raises(Unprocessable, match="expected another one"):
        shares.for_vector(MODEL, terms.digest)
    moved = shares.for_vector(VectorName("control"), terms.digest)
    assert len(np.unique(subtract(moved.vector(0, 99), shares.vector(0, 99)))) == 99
    assert np.array_equal(shares.vector(0, 99), field_stream(shares._key("vector"), 0, 99))


def test_a_seed_sealed_for_a_round_is_sealed_to_its_first_vector_only() -> None:
    terms = ValidityTerms(dimension=5, norm_bound=4.0, scale_bits=16)
    servers = dict(list(validity_cohort.SEALING.items())[:2])
    binding = validity_cohort.binding_of(terms)
    half = ValiditySiloHalf(terms, binding, {s: key.public_hex for s, key in servers.items()})
    server, key = next(iter(servers.items()))
    shares = validity_cohort.unseal_seed(half.sealed_seeds[server], key, binding, server)
    elsewhere = shares.for_vector(VectorName("control"), terms.digest).binding
    with pytest.raises(MalformedMessage, match="does not open"):
        validity_cohort.unseal_seed(half.sealed_seeds[server], key, elsewhere, server)
