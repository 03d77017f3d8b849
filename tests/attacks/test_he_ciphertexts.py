"""Whoever lies about ciphertexts is refused by name; nobody's process falls over, no wrong sum passes."""

from __future__ import annotations

import contextlib
import gc
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import MalformedMessage, PeerFault, Unprocessable
from privacy.secagg.he.door import Adder
from privacy.secagg.he.framing import Form, HeStretch, he_stretch, join_part, split_part
from privacy.secagg.he.keys import HeKey, make_key
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.sum_half import HeSumHalf
from privacy.secagg.he.workers import BlockCipher
from tests.he_cohort import KEYS, USES, add, open_sum, packed, random_update, silo_half, upload

ROWS = list(PARAMETERS)
BFV, CKKS = "bfv-2048-40", "ckks-4096-36"
UPLOADS = {name: [upload(name, random_update(name, 5), 2) for _ in range(2)] for name in ROWS}
SUMS = {name: add(name, UPLOADS[name], 5, 2)[0] for name in ROWS}


def piece(name: str) -> HeStretch:
    return he_stretch(PARAMETERS[name], 0, 5)


def receive(name: str, part: bytes) -> bytes:
    """The aggregator adds a hostile part to an honest one."""
    return HeSumHalf(name, 2).total([UPLOADS[name][0][0], part], piece(name))


def read(name: str, part: bytes) -> np.ndarray:
    """A silo opens a hostile sum."""
    return open_sum(name, [part], 5, 2, 2)


@pytest.mark.parametrize("name", ROWS)
def test_ciphertexts_of_another_row_are_refused(name: str) -> None:
    for other in ROWS:
        if other != name:
            with pytest.raises(MalformedMessage, match=rf"bytes \(update, {name}\)"):
                receive(name, UPLOADS[other][0][0])
            with pytest.raises(MalformedMessage, match=rf"bytes \(sum, {name}\)"):
                read(name, SUMS[other])


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("change", [b"", -1, 1], ids=["empty", "cut short", "too long"])
def test_a_part_of_another_size_is_refused_before_it_is_read(name: str, change: bytes | int) -> None:
    part = UPLOADS[name][1][0]
    wrong = change if isinstance(change, bytes) else part[:change] if change < 0 else part + bytes(change)
    with pytest.raises(MalformedMessage, match=f"part 0: expected {len(part)} bytes"):
        receive(name, wrong)


@pytest.mark.parametrize("name", ROWS)
def test_a_secret_key_is_no_ciphertext(name: str) -> None:
    """A silo that blunders its key into an upload is told so; sizes keep them apart."""
    with pytest.raises(MalformedMessage, match=r"bytes \(update"):
        receive(name, KEYS[name].secret)
    assert len({form.size(PARAMETERS[name]) for form in Form}) == len(Form)


@pytest.mark.parametrize("name", ROWS)
def test_a_plaintext_in_ciphertexts_clothes_is_refused(name: str) -> None:
    degree = PARAMETERS[name].degree
    with pytest.raises(MalformedMessage, match="it is transparent"):
        read(name, packed(PARAMETERS[name], [7] * degree + [0] * degree))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("beyond", ["the modulus itself", "all bits"])
def test_coefficients_at_or_above_the_modulus_are_refused(name: str, beyond: str) -> None:
    row = PARAMETERS[name]
    value = row.modulus if beyond == "the modulus itself" else (1 << row.modulus.bit_length()) - 1
    for place in (0, 1, 17, row.degree - 1):
        words = [row.modulus - 1] * row.degree
        words[place] = value
        with pytest.raises(MalformedMessage, match="a coefficient is not below the modulus"):
            receive(name, bytes(64) + packed(row, words))
        with pytest.raises(MalformedMessage, match="a coefficient is not below the modulus"):
            read(name, packed(row, words + words))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("seed", [bytes(64), b"\xff" * 64, b"\x5e\xa1\x10\x04" * 16])
def test_any_seed_is_a_ciphertext_and_nothing_else(name: str, seed: bytes) -> None:
    """In SEAL's own streams a hostile header before the seed ends the process; here there is none."""
    row = PARAMETERS[name]
    summed = receive(name, seed + packed(row, [row.modulus - 1] * row.degree))
    with pytest.raises(Unprocessable):
        read(name, summed)


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_flipped_bytes_end_in_a_refusal_or_in_another_ciphertext(name: str, data: st.DataObject) -> None:
    """Ciphertexts authenticate nothing: signed digests of parts do. No flip may do worse than that."""
    for part, take in ((UPLOADS[name][1][0], receive), (SUMS[name], read)):
        raw = bytearray(part)
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
        with contextlib.suppress(PeerFault):
            take(name, bytes(raw))


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=10, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_any_bytes_of_the_right_size_are_refused_or_never_opened(name: str, seed: bytes) -> None:
    row = PARAMETERS[name]
    size = Form.SUM.size(row)
    with pytest.raises(PeerFault):
        read(name, np.random.default_rng(list(seed)).bytes(size))


def test_ckks_ciphertexts_made_for_another_cohort_size_do_not_open() -> None:
    """The scale is no field of a ciphertext; it follows from the plan, and a wrong one shows in the count."""
    uploads = [upload(CKKS, np.zeros(5, dtype=np.uint32), cohort)[0] for cohort in (2, 31)]
    with pytest.raises(Unprocessable, match=r"not the sum of 2 updates|does not decrypt to integers"):
        read(CKKS, HeSumHalf(CKKS, 2).total(uploads, piece(CKKS)))


@pytest.mark.parametrize("name", ROWS)
def test_one_victims_ciphertext_handed_out_as_the_sum_is_not_opened(name: str) -> None:
    alone = HeSumHalf(name, 2).total([UPLOADS[name][0][0]], piece(name))
    with pytest.raises(Unprocessable, match="not the sum of 2 updates under this key"):
        read(name, alone)


@pytest.mark.parametrize("name", ROWS)
def test_a_sum_under_another_key_is_refused_never_returned(name: str) -> None:
    stranger = make_key(USES[name])
    blocks = np.ones((1, PARAMETERS[name].degree), dtype=np.int64)
    adder = Adder(PARAMETERS[name], 2)
    for _ in range(2):
        adder.add(BlockCipher(stranger, 2, 1).encrypt(blocks))
    with pytest.raises(Unprocessable, match="under this key"):
        read(name, join_part(adder.totals()))


def hostile_sum(name: str, first: int, element: int, padding: int) -> bytes:
    """A sum by someone who holds the key, as silos do."""
    row = PARAMETERS[name]
    block = np.zeros((1, row.degree), dtype=np.int64)
    block[0, :2], block[0, -1] = (first, element), padding
    adder = Adder(row, 2)
    adder.add(BlockCipher(KEYS[name], 2, 1).encrypt(block))
    return join_part(adder.totals())


@pytest.mark.parametrize("name", ROWS)
def test_sums_out_of_reach_of_honest_updates_and_filled_padding_are_refused(name: str) -> None:
    limit = 2 * silo_half(name, 5, 2)._largest
    assert read(name, hostile_sum(name, 2, limit, 0)).view(np.int32)[0] == limit
    assert read(name, hostile_sum(name, 2, -limit, 0)).view(np.int32)[0] == -limit
    with pytest.raises(Unprocessable, match="beyond 2 times the bound"):
        read(name, hostile_sum(name, 2, limit + 1, 0))
    with pytest.raises(Unprocessable, match="zeros after the last element"):
        read(name, hostile_sum(name, 2, 0, 1))


@pytest.mark.parametrize("name", ROWS)
def test_ciphertexts_that_cancel_each_others_mask_are_not_added(name: str) -> None:
    """A stream that carries −a where another carries a: the sum would be its own plaintext."""
    row = PARAMETERS[name]
    adder = Adder(row, 2)
    adder.add(split_part(row, piece(name), Form.UPDATE, UPLOADS[name][0][0]))
    total = adder._totals[0]
    adder._evaluator.negate_inplace(total)
    with pytest.raises(Unprocessable, match="add up to an unencrypted one"):
        adder.add(split_part(row, piece(name), Form.UPDATE, UPLOADS[name][0][0]))


@pytest.mark.parametrize("name", ROWS)
def test_nothing_that_the_aggregator_holds_after_a_sum_can_decrypt(name: str) -> None:
    """Walks every object reachable from the sum half and its adder after they read all ciphertexts."""
    half, adder = HeSumHalf(name, 2), Adder(PARAMETERS[name], 2)
    half.total([parts[0] for parts in UPLOADS[name]], piece(name))
    for parts in UPLOADS[name]:
        adder.add(split_part(PARAMETERS[name], piece(name), Form.UPDATE, parts[0]))
    seen: dict[int, object] = {}
    queue: list[object] = [half, adder]
    while queue:
        held = queue.pop()
        if id(held) in seen or isinstance(held, type | types.ModuleType | types.FunctionType):
            continue
        seen[id(held)] = held
        queue.extend(gc.get_referents(held))
    kinds = {type(held).__name__ for held in seen.values()}
    assert {"HeSumHalf", "Adder", "SEALContext", "Ciphertext"} <= kinds
    assert not kinds & {"SecretKey", "PublicKey", "KeyGenerator", "Encryptor", "Decryptor", "Cipher", "HeKey"}
    assert not any(held == KEYS[name].secret for held in seen.values() if isinstance(held, bytes))
    assert isinstance(KEYS[name], HeKey)
