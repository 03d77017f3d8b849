"""Why a raw CKKS decryption never leaves a silo: with its ciphertext it gives away the key.

Li and Micciancio, "On the security of homomorphic encryption on approximate numbers" (Eurocrypt 2021,
eprint 2020/1533, §3.1): a decryption is m + e = c0 + c1·s, and whoever knows it and the ciphertext divides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tenseal.sealapi as sealapi

from privacy.errors import Unprocessable
from privacy.secagg.he.door import Adder, Cipher
from privacy.secagg.he.framing import Form
from privacy.secagg.he.keys import make_key
from privacy.secagg.he.parameters import PARAMETERS
from tests.he_cohort import USES, packed

ROW = PARAMETERS["ckks-4096-36"]
SILOS = 8
SCALE = 2.0 ** ROW.scale_bits(SILOS)
Read = Callable[[bytes], np.ndarray]


@dataclass(frozen=True)
class Leak:
    """What the aggregator sees: a sum that it made itself, and what a silo tells it of the decryption."""

    ciphertext: Any
    decryption: np.ndarray


def update(limit: int) -> np.ndarray:
    return np.random.default_rng().integers(-limit, limit, ROW.degree, dtype=np.int64)


def leak(cipher: Cipher, read: Read) -> Leak:
    adder = Adder(ROW, SILOS)
    for _ in range(SILOS):
        adder.add([cipher.encrypt(update(1 << 14))])
    (total,) = adder.totals()
    ciphertext = cipher._row.load(Form.SUM, total)
    return Leak(ciphertext, read(total))


def raw(cipher: Cipher) -> Read:
    """A silo that would return what SEAL returns: floats with the noise in them."""

    def decrypt(total: bytes) -> np.ndarray:
        ciphertext = cipher._row.load(Form.SUM, total)
        plain = sealapi.Plaintext()
        cipher._decryptor.decrypt(ciphertext, plain)
        return np.array(cipher._encoder.decode_complex(plain)).view(np.float64)

    return decrypt


def divide(context: Any, leaked: Leak) -> list[int]:
    """(m + e − c0) / c1, coefficient by coefficient in SEAL's transformed domain. Uses no secret."""
    plain = sealapi.Plaintext()
    values = leaked.decryption.astype(np.float64).view(np.complex128).tolist()
    sealapi.CKKSEncoder(context).encode(values, SCALE, plain)
    degree, q = ROW.degree, ROW.modulus
    return [
        (plain[n] - leaked.ciphertext[n]) * pow(leaked.ciphertext[degree + n], -1, q) % q
        for n in range(degree)
    ]


def test_two_leaked_raw_decryptions_give_the_key_and_with_it_every_update() -> None:
    cipher = make_key(USES[ROW.name]).cipher(SILOS)
    first, second = (leak(cipher, raw(cipher)) for _ in range(2))
    key = divide(cipher._row.context, first)
    assert key == divide(cipher._row.context, second)  # by which the attacker knows that it is the key

    stolen = Cipher(ROW, packed(ROW, key), SILOS)
    secret = update(1 << 14)
    adder = Adder(ROW, SILOS)
    adder.add([cipher.encrypt(secret)])
    assert np.array_equal(stolen.decrypt(adder.totals()[0]), secret)


def test_what_the_silo_half_returns_gives_no_key() -> None:
    cipher = make_key(USES[ROW.name]).cipher(SILOS)
    first, second = (leak(cipher, cipher.decrypt) for _ in range(2))
    key = divide(cipher._row.context, first)
    assert np.mean(np.array(key) == np.array(divide(cipher._row.context, second))) < 0.01

    stolen = Cipher(ROW, packed(ROW, key), SILOS)
    adder = Adder(ROW, SILOS)
    adder.add([cipher.encrypt(update(1 << 14))])
    with pytest.raises(Unprocessable, match="does not decrypt to integers"):
        stolen.decrypt(adder.totals()[0])


def test_what_the_silo_half_returns_is_the_sum_and_nothing_of_the_noise() -> None:
    """The same updates encrypted twice carry other noise and decrypt to the same bytes."""
    cipher = make_key(USES[ROW.name]).cipher(SILOS)
    updates = [update(1 << 14) for _ in range(SILOS)]
    opened: list[bytes] = []
    noises: list[np.ndarray] = []
    for _ in range(2):
        adder = Adder(ROW, SILOS)
        for block in updates:
            adder.add([cipher.encrypt(block)])
        (total,) = adder.totals()
        opened.append(cipher.decrypt(total).tobytes())
        noises.append(raw(cipher)(total) - np.sum(updates, axis=0))
    assert opened[0] == opened[1]
    assert not np.any(noises[0] == noises[1])
    deviation = (SILOS * ROW.degree / 2 * (10.5 + 1 / 12)) ** 0.5 / SCALE
    for noise in noises:  # the noise is as large as ``scale_bits`` takes it to be, within sampling error
        assert 0.9 * deviation < float(np.std(noise)) < 1.1 * deviation
