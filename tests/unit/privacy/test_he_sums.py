"""What silos open is the sum of what survivors encrypted, exactly, or a refusal with a name."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.chain import EMPTY
from privacy.errors import Conflict, NotAllowed, OutOfOrder, Unprocessable
from privacy.ids import Digest, SiloId
from privacy.plan import VectorTerms
from privacy.secagg.encoding import UpdateOutOfRange, decode, encode
from privacy.secagg.he.framing import (
    CIPHERTEXTS_PER_PART,
    Form,
    he_part_count,
    he_stretch,
    he_stretches,
    part_bytes,
)
from privacy.secagg.he.keys import KeyUse
from privacy.secagg.he.messages import CiphertextManifest, SumManifest
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.silo_half import HeSiloHalf, admit_sum
from privacy.secagg.he.sum_half import HeSumHalf, assert_one_key
from privacy.secagg.keystream import Dither
from tests.he_cohort import JOB, KEYS, USES, add, open_sum, random_update, silo_half, terms_for, upload

ROWS = list(PARAMETERS)
BFV, CKKS = "bfv-2048-40", "ckks-4096-36"


def oracle(updates: list[np.ndarray]) -> np.ndarray:
    return np.sum(np.stack(updates), axis=0, dtype=np.uint32)


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=6, deadline=None)
@given(
    st.integers(2, 9), st.integers(0, 3), st.sampled_from([1, 2, 7, 2046, 2047, 2048, 4095, 4096, 4099, 9973])
)
def test_the_opened_sum_is_the_sum_bit_for_bit(name: str, cohort: int, dropouts: int, length: int) -> None:
    survivors = max(1, cohort - dropouts)
    updates = [random_update(name, length) for _ in range(survivors)]
    sums = add(name, [upload(name, update, cohort) for update in updates], length, cohort)
    assert np.array_equal(open_sum(name, sums, length, cohort, survivors), oracle(updates))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_vector_of_several_parts_sums_exactly(name: str) -> None:
    length = CIPHERTEXTS_PER_PART * PARAMETERS[name].payload + 5
    updates = [random_update(name, length) for _ in range(3)]
    sums = add(name, [upload(name, update, 3) for update in updates], length, 3)
    assert len(sums) == he_part_count(PARAMETERS[name], length) == 2
    assert np.array_equal(open_sum(name, sums, length, 3, 3), oracle(updates))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("sign", [1, -1])
def test_thirty_silos_at_the_bound_do_not_overflow(name: str, sign: int) -> None:
    length, cohort = 3, 30
    update = np.full(length, sign << terms_for(name).scale_bits, dtype=np.int32).view(np.uint32)
    sums = add(name, [upload(name, update, cohort) for _ in range(cohort)], length, cohort)
    assert np.array_equal(open_sum(name, sums, length, cohort, cohort), oracle([update] * cohort))


@pytest.mark.parametrize("name", ROWS)
def test_floats_come_back_within_one_grid_step_a_silo(name: str) -> None:
    terms, length, cohort = terms_for(name), 1000, 5
    grid = np.random.default_rng(1)
    values = [grid.uniform(-0.9, 0.9, length).astype(np.float32) for _ in range(cohort)]
    encoded = [encode(value, 0.5, terms, Dither().at(0, length)) for value in values]
    sums = add(name, [upload(name, update, cohort) for update in encoded], length, cohort)
    got = decode(open_sum(name, sums, length, cohort, cohort), terms)
    exact = 0.5 * np.sum(np.stack(values).astype(np.float64), axis=0)
    assert np.max(np.abs(got - exact)) < cohort / 2.0**terms.scale_bits


@pytest.mark.slow
@pytest.mark.parametrize("name", [BFV, CKKS])
def test_worker_processes_encrypt_what_one_process_would(name: str) -> None:
    length = 3 * PARAMETERS[name].payload
    updates = [random_update(name, length) for _ in range(2)]
    with silo_half(name, length, 2, workers=2) as half:
        uploads = [[half.encrypt(0, updates[0])], upload(name, updates[1], 2)]
    sums = add(name, uploads, length, 2)
    assert np.array_equal(open_sum(name, sums, length, 2, 2), oracle(updates))


@pytest.mark.parametrize("name", ROWS)
def test_two_encryptions_of_one_update_have_nothing_in_common(name: str) -> None:
    update = random_update(name, 100)
    first, second = (np.frombuffer(upload(name, update, 2)[0][64:6000], dtype=np.uint8) for _ in range(2))
    assert np.mean(first == second) < 0.05


@pytest.mark.parametrize(("name", "most"), [(BFV, 5.04), ("bfv-2048-54", 6.80), (CKKS, 4.54)])
def test_an_upload_takes_few_bytes_a_parameter(name: str, most: float) -> None:
    """At d = 10^6; sizes do not depend on values, so that they reveal nothing of them."""
    pieces = list(he_stretches(PARAMETERS[name], 1_000_000))
    assert sum(part_bytes(PARAMETERS[name], piece, Form.UPDATE) for piece in pieces) / 1e6 < most
    for update in (np.zeros(9, dtype=np.uint32), random_update(name, 9)):
        assert len(upload(name, update, 2)[0]) == part_bytes(
            PARAMETERS[name], he_stretch(PARAMETERS[name], 0, 9), Form.UPDATE
        )


def test_parts_cover_a_vector_exactly_once() -> None:
    for parameters in PARAMETERS.values():
        whole = CIPHERTEXTS_PER_PART * parameters.payload
        for length in (1, parameters.payload + 1, whole - 1, whole, whole + 1, 3 * whole):
            pieces = list(he_stretches(parameters, length))
            assert [piece.start for piece in pieces] == [n * whole for n in range(len(pieces))]
            assert sum(piece.length for piece in pieces) == length
            assert sum(piece.ciphertexts for piece in pieces) == -(-length // parameters.payload)
            with pytest.raises(Unprocessable, match="part: expected 0 to"):
                he_stretch(parameters, len(pieces), length)


def test_a_silo_refuses_a_key_of_another_epoch_federation_or_row() -> None:
    for use in (
        KeyUse("hearts", 2, JOB, PARAMETERS[BFV]),
        KeyUse("lungs", 1, JOB, PARAMETERS[BFV]),
        USES[CKKS],
    ):
        with pytest.raises(OutOfOrder, match="key: expected one for"):
            HeSiloHalf(KEYS[BFV], use, terms_for(BFV), 4, 2)


def test_a_silo_refuses_terms_whose_worst_sum_would_wrap() -> None:
    with pytest.raises(Unprocessable, match="lower scale_bits or coordinate_bound"):
        HeSiloHalf(KEYS[BFV], USES[BFV], VectorTerms(coordinate_bound=1.0, scale_bits=20), 4, 8)


def test_an_element_beyond_the_bound_is_refused_not_clipped() -> None:
    limit = (1 << terms_for(BFV).scale_bits) + 1
    for value in (limit + 1, -limit - 1, -(1 << 31)):
        with pytest.raises(UpdateOutOfRange, match="beyond the plan's coordinate_bound"):
            silo_half(BFV, 1, 2).encrypt(0, np.array([value], dtype=np.int32).view(np.uint32))


def test_a_part_is_encrypted_once_and_opened_once() -> None:
    update = random_update(BFV, 4)
    half = silo_half(BFV, 4, 2)
    sums = add(BFV, [[half.encrypt(0, update)], upload(BFV, update, 2)], 4, 2)
    with pytest.raises(OutOfOrder, match="resend the same bytes"):
        half.encrypt(0, update)
    half.open(0, sums[0], 2)
    with pytest.raises(OutOfOrder, match="a round opens one sum"):
        half.open(0, sums[0], 2)


def test_a_sum_over_nobody_or_over_too_many_is_refused() -> None:
    part = upload(BFV, random_update(BFV, 4), 2)[0]
    piece = he_stretch(PARAMETERS[BFV], 0, 4)
    with pytest.raises(Unprocessable, match="at least one"):
        HeSumHalf(BFV, 2).total([], piece)
    with pytest.raises(Unprocessable, match="at most one of each of 2 silos"):
        HeSumHalf(BFV, 2).total([part] * 3, piece)


def manifest(silo: str, key: str = KEYS[BFV].id, name: str = BFV, length: int = 4) -> CiphertextManifest:
    return CiphertextManifest(
        silo=SiloId(silo),
        model=Digest("22" * 32),
        parameters=name,
        key=Digest(key),
        vector_length=length,
        parts=(Digest("44" * 32),),
        ledger_head=EMPTY,
    )


def digest_for(silo: str) -> Digest:
    return Digest(hashlib.sha256(silo.encode()).hexdigest())


def sum_over(*survivors: str, **changes: object) -> SumManifest:
    fields = {
        "parameters": BFV,
        "key": KEYS[BFV].id,
        "vector_length": 4,
        "survivors": survivors,
        "manifests": tuple(digest_for(silo) for silo in survivors),
        "parts": ("55" * 32,),
    }
    return SumManifest.model_validate(fields | changes)


def test_a_silo_opens_only_a_sum_over_enough_invited_silos_with_its_own_update() -> None:
    cohort = tuple(SiloId(silo) for silo in "abcd")

    def admit(summed: SumManifest) -> int:
        return admit_sum(summed, manifest("a"), digest_for("a"), cohort, 3)

    assert admit(sum_over("a", "c", "d")) == 3
    for survivors in ("acx", "aac", "cab"):
        with pytest.raises(NotAllowed, match="distinct invited silos"):
            admit(sum_over(*survivors))
    with pytest.raises(NotAllowed, match="each with its manifest"):
        admit(sum_over(*"abc", manifests=(digest_for("a"),)))
    with pytest.raises(NotAllowed, match="at least 3, got 2"):
        admit(sum_over("a", "b"))
    with pytest.raises(Conflict, match="that a signed is not among them"):
        admit(sum_over("b", "c", "d"))
    with pytest.raises(Conflict, match="that a signed is not among them"):
        admit(sum_over(*"abc", manifests=tuple(digest_for(silo) for silo in "bbc")))
    for change in (
        {"key": "66" * 32},
        {"vector_length": 5},
        {"parameters": CKKS},
        {"parts": ("55" * 32,) * 2},
    ):
        with pytest.raises(Conflict, match="of our own manifest"):
            admit(sum_over(*"abc", **change))


def test_updates_under_two_keys_are_never_added() -> None:
    good = {SiloId("a"): manifest("a"), SiloId("b"): manifest("b")}
    assert assert_one_key(good, BFV, 4) == KEYS[BFV].id
    with pytest.raises(Unprocessable, match="expected one key, got 2"):
        assert_one_key(good | {SiloId("c"): manifest("c", key="66" * 32)}, BFV, 4)
    with pytest.raises(Unprocessable, match="manifest of c: expected 4 elements"):
        assert_one_key(good | {SiloId("c"): manifest("c", length=5)}, BFV, 4)
    with pytest.raises(Unprocessable, match="under ckks-4096-36"):
        assert_one_key(good | {SiloId("c"): manifest("c", name=CKKS)}, BFV, 4)
