"""Several named vectors in one round: each sums exactly under its own terms, weighted where it says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.canonical import canonical_bytes
from privacy.chain import EMPTY
from privacy.errors import NotFound, OutOfOrder, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.plan import VectorTerms
from privacy.secagg.additive import AdditiveSiloHalf, SeedSumHalf, VectorSumHalf, ring_to_bytes, unseal_seed
from privacy.secagg.encoding import decode
from privacy.secagg.he.framing import he_part_count, he_stretches
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.silo_half import HeSiloHalf
from privacy.secagg.he.sum_half import HeSumHalf
from privacy.secagg.keystream import Dither
from privacy.secagg.pairwise.faults import Equivocation
from privacy.secagg.pairwise.messages import MaskedInput, open_from_silo, sign
from privacy.secagg.pairwise.silo_masking import masker, open_shares, sign_masked
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.secagg.pairwise.unmasking import check_part
from privacy.secagg.parts import PART_ELEMENTS, part_count, stretch
from privacy.secagg.validity.field import centred
from privacy.secagg.validity.server import ValidUpdate, judge
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.vectors import (
    MODEL,
    NamedVector,
    Places,
    RoundVectors,
    VectorLength,
    VectorName,
    WeightImplausible,
    mean,
    total_weight,
)
from privacy.wire.envelope import Envelope
from tests import validity_cohort
from tests.he_cohort import KEYS, USES
from tests.pairwise_cohort import Cohort, Member

CTX = Context(Digest("11" * 32))
MODEL_DIGEST = Digest("22" * 32)
CONTROL, STATISTICS = VectorName("control"), VectorName("statistics")
SERVER, KEY = ServerId(PartyId("server-b")), SealingKey.generate()


def terms(bound: float, scale_bits: int) -> VectorTerms:
    return VectorTerms(coordinate_bound=bound, scale_bits=scale_bits)


ROUND = RoundVectors(
    vectors=(
        NamedVector(name=MODEL, coordinates=40, terms=terms(4.0, 20)),
        NamedVector(name=CONTROL, coordinates=7, terms=terms(0.5, 22)),
        NamedVector(name=STATISTICS, coordinates=3, terms=terms(1000.0, 8), weighted=False),
    )
)


@dataclass
class Silo:
    """One silo's plain values, its weight, and what encoding made of them."""

    name: SiloId
    weight: float
    values: dict[VectorName, np.ndarray] = field(default_factory=dict)
    encoded: dict[VectorName, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def drawn(name: str, weight: float, vectors: RoundVectors = ROUND) -> Silo:
        silo = Silo(SiloId(PartyId(name)), weight)
        generator = np.random.default_rng()
        for vector in vectors.vectors:
            bound = vector.terms.coordinate_bound
            values = generator.uniform(-bound, bound, vector.coordinates).astype(np.float32)
            dither = Dither().at(0, vector.coordinates)
            silo.values[vector.name] = values
            silo.encoded[vector.name] = vector.encode(0, values, weight, dither)
        return silo


def shared_and_summed(silos: Sequence[Silo]) -> dict[VectorName, np.ndarray]:
    """A whole additive round: one seed a silo serves all its vectors."""
    names = tuple(ROUND.lengths)
    shares: dict[VectorName, list[bytes]] = {name: [] for name in names}
    seeds = []
    for silo in silos:
        half = AdditiveSiloHalf(CTX, MODEL_DIGEST, silo.name, {SERVER: KEY.public_hex}, names)
        assert len(half.sealed_seeds) == 1
        for name in names:
            shares[name].append(ring_to_bytes(half.share(0, silo.encoded[name], name)))
        seed = unseal_seed(half.sealed_seeds[SERVER], KEY, CTX, MODEL_DIGEST, silo.name, SERVER)
        seeds.append((silo.name, seed))
    return {
        name: VectorSumHalf.total(shares[name], length)
        + SeedSumHalf(seeds, CTX, MODEL_DIGEST, SERVER, name).total(0, length)
        for name, length in ROUND.lengths.items()
    }


@settings(max_examples=40)
@given(st.lists(st.floats(2**-6, 1.0), min_size=2, max_size=9))
def test_weighted_means_are_the_plain_ones_within_the_quantisation(weights: list[float]) -> None:
    silos = [Silo.drawn(f"silo-{n}", weight) for n, weight in enumerate(weights)]
    opened = shared_and_summed(silos)
    for name in (MODEL, CONTROL):
        vector = ROUND.named(name)
        weight = total_weight(vector, opened[name], len(silos))
        step = len(silos) * 2.0**-vector.terms.scale_bits / sum(weights)
        got = mean(vector, opened[name][:-1], weight)
        oracle = sum(s.weight * s.values[name].astype(np.float64) for s in silos) / sum(weights)
        bound = vector.terms.coordinate_bound
        assert np.max(np.abs(got - oracle)) <= step * (1 + bound), name


def test_an_unweighted_vector_opens_to_its_plain_sum() -> None:
    silos = [Silo.drawn(f"silo-{n}", weight) for n, weight in enumerate((1.0, 0.25, 0.5))]
    vector = ROUND.named(STATISTICS)
    got = decode(shared_and_summed(silos)[STATISTICS], vector.terms)
    oracle = sum(s.values[STATISTICS].astype(np.float64) for s in silos)
    assert got.shape == (3,)
    assert np.max(np.abs(got - oracle)) <= 3 * 2.0**-8
    with pytest.raises(ValueError, match="it carries no weight"):
        total_weight(vector, shared_and_summed(silos)[STATISTICS], 3)


@pytest.mark.parametrize("encoded", [0, 1 << 31, (3 << 20) + 1, -1 % 2**32])
def test_a_weight_that_no_survivors_can_have_is_never_divided_by(encoded: int) -> None:
    opened = np.append(np.zeros(40, dtype=np.uint32), np.uint32(encoded))
    with pytest.raises(WeightImplausible, match="nothing is divided by it"):
        total_weight(ROUND.named(MODEL), opened, 3)


def test_a_vector_is_divided_by_its_own_weight_only() -> None:
    opened = shared_and_summed([Silo.drawn("a", 1.0), Silo.drawn("b", 1.0)])
    weight = total_weight(ROUND.named(MODEL), opened[MODEL], 2)
    with pytest.raises(ValueError, match="expected its own weight, got that of model"):
        mean(ROUND.named(CONTROL), opened[CONTROL][:-1], weight)


def test_a_vector_encoded_in_stretches_is_the_vector_encoded_at_once() -> None:
    vector, values = ROUND.named(MODEL), np.linspace(-4, 4, 40, dtype=np.float32)
    dither = Dither().at(0, 40)
    whole = vector.encode(0, values, 0.5, dither)
    pieces = [vector.encode(at, values[at : at + 16], 0.5, dither[at : at + 16]) for at in (0, 16, 32)]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert len(whole) == vector.length == 41
    with pytest.raises(ValueError, match="expected 40 coordinates, got 56"):
        vector.encode(40, values[:16], 0.5, dither[:16])


def test_each_vector_must_fit_the_ring_by_its_own_terms() -> None:
    ROUND.assert_fit(8)
    wide = NamedVector(name=CONTROL, coordinates=1, terms=terms(1000.0, 20))
    with pytest.raises(Unprocessable, match="reaches 2\\^31"):
        RoundVectors(vectors=(ROUND.vectors[0], wide)).assert_fit(8)


@pytest.mark.parametrize("names", [("control",), ("model", "model"), ("control", "model"), ("model", "A")])
def test_vectors_have_distinct_lower_case_names_and_the_model_is_first(names: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        RoundVectors(
            vectors=tuple(
                NamedVector(name=VectorName(name), coordinates=1, terms=terms(1.0, 8)) for name in names
            )
        )


def test_an_unknown_vector_is_refused_by_name() -> None:
    half = AdditiveSiloHalf(CTX, MODEL_DIGEST, SiloId(PartyId("a")), {SERVER: KEY.public_hex})
    with pytest.raises(NotFound, match="vector 'control': this round has none of that name"):
        half.share(0, np.zeros(1, dtype=np.uint32), CONTROL)
    with pytest.raises(NotFound, match="this round has none of that name"):
        ROUND.named(VectorName("other"))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_every_part_of_every_vector_has_one_place(counts: list[int]) -> None:
    names = [MODEL, *(VectorName(f"v{n}") for n in range(1, len(counts)))]
    places = Places(dict(zip(names, counts, strict=True)))
    assert [places.place(name, index) for name, index in places] == list(range(places.total))
    for name, count in zip(names, counts, strict=True):
        for beyond in (-1, count):
            with pytest.raises(NotFound, match=f"part: expected 0 to {count - 1} of vector {name}"):
                places.place(name, beyond)
    with pytest.raises(NotFound, match="none of that name"):
        places.place(VectorName("other"), 0)


# --- pairwise ---

LENGTHS = {MODEL: PART_ELEMENTS + 3, CONTROL: 5, STATISTICS: 1}


@dataclass
class ManyVectors(Member):
    """A silo that masks all vectors of its round."""

    vectors: dict[VectorName, np.ndarray] = field(default_factory=dict)

    def upload(self, inbox: Sequence[Envelope]) -> tuple[Envelope, ...]:
        self.stored = open_shares(self.state, inbox).to_bytes()
        masks = masker(self.state, self.model)
        self.parts = []
        for name, index in self.state.terms.places:
            piece = stretch(index, LENGTHS[name])
            here = self.vectors[name][piece.start : piece.start + piece.length]
            self.parts.append(masks.mask(index, here, name))
        return self.keep(sign_masked(self.state, self.key, masks, EMPTY))


def cohort_of_vectors(drops: dict[SiloId, str]) -> Cohort:
    cohort = Cohort.of(4, LENGTHS[MODEL], threshold=2, drops=drops)  # type: ignore[arg-type]  # step names
    further = [VectorLength(name=name, length=LENGTHS[name]) for name in (CONTROL, STATISTICS)]
    cohort.terms = PairwiseTerms.model_validate({**cohort.terms.model_dump(), "further": further})
    cohort.members = {
        silo: ManyVectors(
            silo,
            member.key,
            member.update,
            member.assumed,
            vectors={
                name: np.frombuffer(os.urandom(4 * length), dtype="<u4") for name, length in LENGTHS.items()
            },
        )
        for silo, member in cohort.members.items()
    }
    return cohort


def test_pairwise_sums_every_vector_exactly_with_a_dropout_to_recover() -> None:
    silos = Cohort.of(4).silos
    cohort = cohort_of_vectors({silos[1]: "masked"})
    masked = cohort.until_masked()
    half = cohort.opened(cohort.agreed(masked))
    assert cohort.terms.places.total == 4
    for name, length in LENGTHS.items():
        pieces = []
        for index in range(part_count(length)):
            place = cohort.terms.places.place(name, index)
            parts = [
                check_part(manifest, place, cohort.members[silo].parts[place])
                for silo, manifest in masked.manifests.items()
            ]
            pieces.append(half.total(index, parts, name))
        plain = [cohort.members[silo].vectors[name] for silo in masked.survivors]  # type: ignore[attr-defined]
        assert np.array_equal(np.concatenate(pieces), np.sum(plain, axis=0, dtype=np.uint32)), name


def test_pairwise_masks_vectors_in_their_order_and_leaves_none_out() -> None:
    cohort = cohort_of_vectors({})
    shares = cohort.shares(cohort.keys())
    member = cohort.members[cohort.silos[0]]
    member.stored = open_shares(member.state, shares.inbox(member.silo)).to_bytes()
    masks = masker(member.state, member.model)
    with pytest.raises(OutOfOrder, match="expected 0, got 2"):
        masks.mask(0, np.zeros(5, dtype="<u4"), CONTROL)
    for index in range(2):
        piece = stretch(index, LENGTHS[MODEL])
        masks.mask(index, np.zeros(piece.length, dtype="<u4"))
    with pytest.raises(OutOfOrder, match="parts: 2 are not masked yet"):
        sign_masked(member.state, member.key, masks, EMPTY)


def test_a_manifest_that_leaves_out_a_vector_makes_its_silo_a_dropout() -> None:
    cohort = cohort_of_vectors({})
    silo = cohort.silos[0]

    def shorter(messages: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        opened = open_from_silo(messages[0], MaskedInput, cohort.terms).message
        short = opened.model_copy(update={"parts": opened.parts[:-1]})
        return (sign(short, cohort.terms, silo, cohort.members[silo].key),)

    cohort.tampers = {(silo, "masked"): shorter}
    masked = cohort.until_masked()
    assert isinstance(cohort.refused[silo, "masked"], Equivocation)
    assert masked.survivors == cohort.silos[1:]


def test_terms_of_one_vector_are_spelled_as_before() -> None:
    terms = Cohort.of(3).terms
    assert b"further" not in canonical_bytes(terms)
    with pytest.raises(ValidationError, match="expected distinct names of vectors"):
        PairwiseTerms.model_validate({**terms.model_dump(), "further": [VectorLength(name=MODEL, length=1)]})


# --- validity ---


def test_each_vector_is_proven_and_summed_under_one_sealed_seed() -> None:
    first = ValidityTerms(dimension=33, norm_bound=4.0, scale_bits=16)
    second = ValidityTerms(dimension=5, norm_bound=1.0, scale_bits=12)
    both = {MODEL: first, CONTROL: second}
    servers = dict(list(validity_cohort.SEALING.items())[:2])
    generator = np.random.default_rng()
    encoded = {
        name: np.append(generator.integers(-300, 301, each.dimension), each.weight_scale)
        for name, each in both.items()
    }
    binding = validity_cohort.binding_of(first)
    half = ValiditySiloHalf(
        first, binding, {s: key.public_hex for s, key in servers.items()}, {CONTROL: second}
    )
    halves = {MODEL: half, CONTROL: half.further[CONTROL]}
    shares = {name: halves[name].share(0, encoded[name]) for name in both}
    for each in halves.values():
        each.commit()
    assert halves[CONTROL].sealed_seeds is half.sealed_seeds
    unsealed = {
        server: validity_cohort.unseal_seed(half.sealed_seeds[server], key, binding, server)
        for server, key in servers.items()
    }
    seeds = {
        MODEL: unsealed,
        CONTROL: {server: seed.for_vector(CONTROL, second.digest) for server, seed in unsealed.items()},
    }
    coin_1 = validity_cohort.toss(1, b"all shares", tuple(servers))
    witnesses = {}
    for name, each in halves.items():
        each.open_coin(coin_1)
        each.project(0, encoded[name])
        witnesses[name] = each.prove()
    coins = (coin_1, validity_cohort.toss(2, b"all witnesses", tuple(servers)))
    for name, each in both.items():
        messages = validity_cohort.check(each, seeds[name], [(0, shares[name])], witnesses[name], coins)
        verdict = judge(each, coins[1], validity_cohort.SILO, messages, name)
        assert verdict == ValidUpdate(validity_cohort.CTX, each.digest, validity_cohort.SILO, name)
        last = list(servers)[1]
        opened = validity_cohort.add(shares[name], seeds[name][last].vector(0, each.vector_length))
        assert np.array_equal(centred(opened), encoded[name])


# --- bfv, ckks ---


@pytest.mark.parametrize("row", ["bfv-2048-40", "ckks-4096-36"])
def test_one_key_serves_vectors_of_several_scales_and_lengths(row: str) -> None:
    parameters = PARAMETERS[row]
    vectors = {MODEL: (terms(1.0, 12), 2 * parameters.payload + 5), CONTROL: (terms(0.25, 8), 3)}
    places = Places.of({n: length for n, (_, length) in vectors.items()}, partial(he_part_count, parameters))
    assert places.total == 2
    for name, (its, length) in vectors.items():
        bound = 1 << its.scale_bits
        updates = np.random.default_rng().integers(-bound, bound + 1, (3, length), dtype=np.int32)
        halves = [HeSiloHalf(KEYS[row], USES[row], its, length, 3) for _ in range(3)]
        (piece,) = he_stretches(parameters, length)
        uploads = [
            half.encrypt(0, update.view(np.uint32)) for half, update in zip(halves, updates, strict=True)
        ]
        opened = halves[0].open(0, HeSumHalf(row, 3).total(uploads, piece), 3)
        assert np.array_equal(opened, np.sum(updates, axis=0, dtype=np.int32).view(np.uint32)), name
