"""AES-256-CTR keystreams as ring elements, seekable by chunk so that vectors stream and resume.

IV = chunk index (64 bit, big-endian) ‖ block counter (64 bit): each 1 MiB chunk of a keystream has its
own IV, so a (key, IV) pair never repeats within a key, and HKDF makes the key unique to its purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

SEED_BYTES = 32
CHUNK_ELEMENTS = 1 << 18
"""Ring elements in one chunk: 1 MiB."""
BLOCK_ELEMENTS = 1 << 15
"""Ring elements worked on at a time, 128 KiB: they and the stream beside them stay in the cache."""

_ZEROS = bytes(4 * BLOCK_ELEMENTS)


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
    out = np.empty(length, dtype="<u4")
    view = out.view(np.uint8).data
    for at in range(0, length, CHUNK_ELEMENTS):
        encryptor = _encryptor(key, start + at)
        for block in range(at, min(at + CHUNK_ELEMENTS, length), BLOCK_ELEMENTS):
            _next_block(encryptor, view[4 * block : 4 * min(block + BLOCK_ELEMENTS, length)])
    return out


def apply_streams(
    elements: NDArray[np.uint32],
    start: int,
    added: Sequence[bytes] = (),
    subtracted: Sequence[bytes] = (),
    out: NDArray[np.uint32] | None = None,
) -> NDArray[np.uint32]:
    """``elements`` plus and minus the streams of these keys at [start, start + len), mod 2^32.

    All streams meet one block before the next is looked at: a pass over memory for each key would take
    longer than AES does.

    Args:
        out: where the result goes, of the same length; ``elements`` itself changes them in place. A new
            array by default.

    Raises:
        ValueError: ``start`` is not at a chunk boundary.
    """
    out = np.empty_like(elements) if out is None else out
    stream = np.empty(min(BLOCK_ELEMENTS, len(elements)), dtype="<u4")
    view = stream.view(np.uint8).data
    for at in range(0, len(elements), CHUNK_ELEMENTS):
        steps: list[tuple[np.ufunc, CipherContext]]
        steps = [(np.add, _encryptor(key, start + at)) for key in added]
        steps += [(np.subtract, _encryptor(key, start + at)) for key in subtracted]
        for block in range(at, min(at + CHUNK_ELEMENTS, len(elements)), BLOCK_ELEMENTS):
            here = slice(block, block + BLOCK_ELEMENTS)
            result = elements[here]
            for operation, encryptor in steps:
                _next_block(encryptor, view[: 4 * len(result)])
                result = operation(result, stream[: len(result)], out=out[here])
            if not steps:
                out[here] = result
    return out


def _encryptor(key: bytes, start: int) -> CipherContext:
    """The stream from the chunk that begins at ``start``."""
    if start % CHUNK_ELEMENTS:
        raise ValueError(f"start: expected a multiple of {CHUNK_ELEMENTS}, got {start}")
    iv = (start // CHUNK_ELEMENTS).to_bytes(8, "big") + bytes(8)
    return Cipher(AES256(key), CTR(iv)).encryptor()


def _next_block(encryptor: CipherContext, out: memoryview) -> None:
    """The stream's next bytes: what zeros encrypt to."""
    encryptor.update_into(_ZEROS if len(out) == len(_ZEROS) else _ZEROS[: len(out)], out)


class Dither:
    """Uniform uint32 for stochastic rounding, from a fresh key of the operating system's."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def at(self, start: int, length: int) -> NDArray[np.uint32]:
        """Elements [start, start + length) of this stream."""
        return keystream(self._key, start, length)


class DitherStream:
    """The same, drawn in order and never twice, for stretches of any length: nothing to count or to align."""

    def __init__(self) -> None:
        self._encryptor = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor()
        self._block = np.empty(BLOCK_ELEMENTS, dtype="<u4")

    def blocks(self, length: int) -> Iterator[NDArray[np.uint32]]:
        """The next ``length`` elements, a block at a time; each is overwritten by the one after it."""
        view = self._block.view(np.uint8).data
        for start in range(0, length, BLOCK_ELEMENTS):
            count = min(BLOCK_ELEMENTS, length - start)
            _next_block(self._encryptor, view[: 4 * count])
            yield self._block[:count]
