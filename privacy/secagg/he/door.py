"""The one door to TenSEAL: bytes and integers in, bytes and integers out; no SEAL object passes it.

It uses ``tenseal.sealapi``, SEAL's own interface: TenSEAL's vectors cannot write seeded ciphertexts, which
are half the size, and refuse the single-prime contexts that sums need. SEAL's interface reads and writes
files only, so streams go through an anonymous memory file: a secret key never lies on a disk.
``Adder`` is all that an aggregator uses of this module: no key enters it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tenseal.sealapi as sealapi
from numpy.typing import NDArray

from privacy.errors import ConfigurationError, MalformedMessage, SealsumError, Unprocessable
from privacy.secagg.he.framing import Form
from privacy.secagg.he.packing import pack, unpack
from privacy.secagg.he.parameters import HeParameters
from privacy.secagg.he.seal_form import SealForm

_REFUSALS = (RuntimeError, ValueError, IndexError, MemoryError, OverflowError)
"""What SEAL's C++ exceptions become."""
_OFF_GRID = 0.45
"""CKKS: a decryption farther from an integer than this was not made by this key or not by this protocol."""


def _context(parameters: HeParameters) -> Any:
    """SEAL's context of a row: public numbers only. SEAL itself is asked to insist on 128 bits.

    Raises:
        ConfigurationError: this SEAL refuses the row.
    """
    scheme = sealapi.SCHEME_TYPE.BFV if parameters.scheme == "bfv" else sealapi.SCHEME_TYPE.CKKS
    wanted = sealapi.EncryptionParameters(scheme)
    wanted.set_poly_modulus_degree(parameters.degree)
    wanted.set_coeff_modulus([sealapi.Modulus(parameters.modulus)])
    if parameters.scheme == "bfv":
        wanted.set_plain_modulus(parameters.plain_modulus)
    context = sealapi.SEALContext(wanted, True, sealapi.SEC_LEVEL_TYPE.TC128)
    if not context.parameters_set():
        raise ConfigurationError(
            f"he.parameters: SEAL refuses {parameters.name}: {context.parameters_error_name()}"
        )
    return context


class _Row:
    """SEAL's context of a row at the scale of a cohort, and how streams enter and leave it. Holds no key."""

    def __init__(self, parameters: HeParameters, contributors: int) -> None:
        self.parameters = parameters
        self.bits = parameters.modulus.bit_length()
        self.scale = 1.0 if parameters.scheme == "bfv" else 2.0 ** parameters.scale_bits(contributors)
        self.context = _context(parameters)
        self._form = SealForm(parameters, tuple(self.context.first_parms_id()), self.scale)

    def packed(self, form: Form, savable: Any) -> bytes:
        """A SEAL object in the form that travels."""
        coefficients, seed = self._form.parse(form, _stream_of(savable))
        return seed + pack(coefficients, self.bits)

    def load(self, form: Form, raw: bytes) -> Any:
        """Read what travelled, in this order:

        (1) its exact size; (2) every coefficient is below q; (3) SEAL's own checks (``is_valid_for``,
        native/src/seal/valcheck.h) of a stream that we wrote; (4) the second polynomial of a ciphertext
        is not zero: that would be a plaintext in ciphertext's clothes.

        Raises:
            MalformedMessage: any of them fails.
        """
        name = form.name.lower()
        # (1)
        size = form.size(self.parameters)
        if len(raw) != size:
            raise MalformedMessage(
                f"he.{name}: expected {size} bytes under {self.parameters.name}, got {len(raw)}"
            )
        # (2)
        seed_bytes = form.value[0]
        coefficients = unpack(raw[seed_bytes:], self.bits, self.parameters.modulus)
        # (3)
        target = sealapi.SecretKey() if form is Form.SECRET else sealapi.Ciphertext()
        try:
            _read(target, self.context, self._form.stream(form, coefficients, raw[:seed_bytes]))
        except _REFUSALS as error:
            raise MalformedMessage(f"he.{name}: SEAL refuses it under {self.parameters.name}") from error
        # (4)
        if form is not Form.SECRET and target.is_transparent():
            raise MalformedMessage(f"he.{name}: it is transparent, that is not encrypted at all")
        return target


def _stream_of(savable: Any) -> bytes:
    """What SEAL saves of an object."""
    file = os.memfd_create("sealsum-he", os.MFD_CLOEXEC)
    try:
        savable.save(f"/proc/self/fd/{file}")
        size = os.fstat(file).st_size
        if not size:  # C++ streams fail in silence
            raise SealsumError("he: SEAL could not write to /proc/self/fd; is /proc mounted?")
        return os.pread(file, size, 0)
    finally:
        os.close(file)


def _read(target: Any, context: Any, stream: bytes) -> None:
    """Let SEAL load a stream that we wrote."""
    file = os.memfd_create("sealsum-he", os.MFD_CLOEXEC)
    try:
        os.pwrite(file, stream, 0)
        target.load(context, f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def generate_secret(parameters: HeParameters) -> bytes:
    """A fresh secret key from the operating system's generator."""
    row = _Row(parameters, 1)
    return row.packed(Form.SECRET, sealapi.KeyGenerator(row.context).secret_key())


class Cipher:
    """Encrypts and decrypts blocks of ``degree`` integers under one secret key, for cohorts of one size."""

    def __init__(self, parameters: HeParameters, secret: bytes, contributors: int) -> None:
        """Read the key.

        Raises:
            MalformedMessage: ``secret`` cannot be a secret key of these parameters.
        """
        self._parameters = parameters
        self._row = _Row(parameters, contributors)
        key = self._row.load(Form.SECRET, secret)
        context = self._row.context
        self._encryptor = sealapi.Encryptor(context, key)
        self._decryptor = sealapi.Decryptor(context, key)
        ckks = parameters.scheme == "ckks"
        self._encoder = sealapi.CKKSEncoder(context) if ckks else sealapi.BatchEncoder(context)

    def encrypt(self, block: NDArray[np.int64]) -> bytes:
        """One fresh seeded ciphertext of int64[degree].

        Symmetric encryption (−(a·s + e) + m, a): ``a`` is expanded from a fresh 64-byte seed, which
        travels in its stead (SEAL 4, native/src/seal/util/rlwe.cpp, ``encrypt_zero_symmetric``).
        """
        plain = sealapi.Plaintext()
        if self._parameters.scheme == "ckks":
            complexes = block.astype(np.float64).view(np.complex128)
            self._encoder.encode(complexes.tolist(), self._row.scale, plain)
        else:
            # One representative in [0, t) each, so that the rounding of SEAL's scaling is the proven 1/2.
            residues = np.where(block < 0, block + self._parameters.plain_modulus, block)
            self._encoder.encode(residues.tolist(), plain)
        return self._row.packed(Form.UPDATE, self._encryptor.encrypt_symmetric(plain))

    def decrypt(self, raw: bytes) -> NDArray[np.int64]:
        """The int64[degree] under a sum. A raw CKKS decryption m + e never leaves this method.

        m + e together with the ciphertext gives the key by one division (Li–Micciancio 2021, eprint
        2020/1533, §3.1). The inputs are integers and e stays below half a step, so that rounding
        returns m itself: what leaves is a function of the updates alone, as with BFV.

        Raises:
            MalformedMessage: not a sum under these parameters.
            Unprocessable: it is off the grid: another key, or not a sum of this round's ciphertexts.
        """
        plain = sealapi.Plaintext()
        self._decryptor.decrypt(self._row.load(Form.SUM, raw), plain)
        if self._parameters.scheme == "bfv":
            residues = np.array(self._encoder.decode_uint64(plain), dtype=np.int64)
            half = self._parameters.plain_modulus // 2
            return np.where(residues > half, residues - self._parameters.plain_modulus, residues)
        noisy = np.array(self._encoder.decode_complex(plain), dtype=np.complex128).view(np.float64)
        rounded = np.rint(noisy)
        if not np.all(np.abs(noisy - rounded) < _OFF_GRID):
            raise Unprocessable("he.sum: it does not decrypt to integers; was it made under this key?")
        return rounded.astype(np.int64)


class Adder:
    """Adds one ciphertext of each silo. Holds ciphertexts and public numbers, never a key."""

    def __init__(self, parameters: HeParameters, contributors: int) -> None:
        self._row = _Row(parameters, contributors)
        self._evaluator = sealapi.Evaluator(self._row.context)
        self._totals: list[Any] = []

    def add(self, ciphertexts: list[bytes]) -> None:
        """Add the ciphertexts of one silo, position by position; all are read before any is added.

        Raises:
            MalformedMessage: one is not a fresh ciphertext under these parameters.
            Unprocessable: another number of them than before, or they cancel the mask of the sum.
        """
        read = [self._row.load(Form.UPDATE, raw) for raw in ciphertexts]
        if not self._totals:
            self._totals = read
            return
        if len(read) != len(self._totals):
            raise Unprocessable(f"part: expected {len(self._totals)} ciphertexts, got {len(read)}")
        for total, ciphertext in zip(self._totals, read, strict=True):
            try:
                self._evaluator.add_inplace(total, ciphertext)
            except _REFUSALS as error:  # SEAL refuses a sum whose second polynomial is zero
                raise Unprocessable("part: these ciphertexts add up to an unencrypted one") from error

    def totals(self) -> list[bytes]:
        """The sums, in the form that travels."""
        return [self._row.packed(Form.SUM, total) for total in self._totals]
