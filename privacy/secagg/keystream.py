"""AES-256-CTR keystreams as ring elements, seekable by chunk so that vectors stream and resume.

IV = chunk index (64 bit, big-endian) ‖ block counter (64 bit): each 1 MiB chunk of a keystream has its
own IV, so a (key, IV) pair never repeats within a key, and HKDF makes the key unique to its purpose.
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

SEED_BYTES = 32
CHUNK_ELEMENTS = 1 << 18
"""Ring elements in one chunk: 1 MiB."""


def derive_key(seed: bytes, info: bytes) -> bytes:
    """An AES-256 key from a 32-byte seed by HKDF-SHA256 (RFC 5869); ``info`` says what it is for."""
    if len(seed) != SEED_BYTES:
        raise ValueError(f"seed: expected {SEED_BYTES} bytes, got {len(seed)}")
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(seed)


def keystream(key: bytes, start: int, length: int) -> NDArray[np.uint32]:
    """Elements [start, start + length) of the key's stream, little-endian uint32.

    Raises:
        ValueError: ``start`` is not at a chunk boundary.
    """
    if start % CHUNK_ELEMENTS:
        raise ValueError(f"start: expected a multiple of {CHUNK_ELEMENTS}, got {start}")
    out = np.empty(length, dtype="<u4")
    view = out.view(np.uint8).data
    zeros = bytes(4 * min(length, CHUNK_ELEMENTS))
    for offset in range(0, length, CHUNK_ELEMENTS):
        count = min(CHUNK_ELEMENTS, length - offset)
        iv = ((start + offset) // CHUNK_ELEMENTS).to_bytes(8, "big") + bytes(8)
        encryptor = Cipher(AES256(key), CTR(iv)).encryptor()
        encryptor.update_into(zeros[: 4 * count], view[4 * offset : 4 * (offset + count)])
    return out


class Dither:
    """Uniform uint32 for stochastic rounding, from a fresh key of the operating system's."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def at(self, start: int, length: int) -> NDArray[np.uint32]:
        """Elements [start, start + length) of this stream."""
        return keystream(self._key, start, length)
