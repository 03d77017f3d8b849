"""SEAL's stream form (native/src/seal/serialization.h, 4.3): written from coefficients, read from ours only.

SEAL must be handed streams and hands out streams. What it reads is written here, field by field, from
allow-listed parameters and checked coefficients; what it wrote itself is inflated here and must have
exactly these fields. No byte of a peer is ever parsed as a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import zstandard
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.secagg.he.framing import SEED_BYTES, Form
from privacy.secagg.he.parameters import HeParameters

_HEADER_BYTES = 16
_ANOTHER_SEAL = "he: the SEAL that is installed writes another form; install tenseal 0.3.18 or later"
_BLAKE2XB = b"\x01"
"""SEAL's default generator (native/src/seal/randomgen.h, ``prng_type``)."""


def _wrap(content: bytes) -> bytes:
    """Magic, header size, version 4.3, not deflated, reserved; then the size of all."""
    return bytes.fromhex("5ea1100403000000") + (_HEADER_BYTES + len(content)).to_bytes(8, "little") + content


def _integers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


@dataclass(frozen=True)
class SealForm:
    """The streams of one row at one scale; ``parms_id`` is SEAL's digest of the row."""

    parameters: HeParameters
    parms_id: tuple[int, ...]
    scale: float

    def stream(self, form: Form, coefficients: NDArray[np.uint64], seed: bytes = b"") -> bytes:
        """A stream for SEAL to read."""
        return _wrap(b"".join(self._content(form, coefficients.astype("<u8").tobytes(), seed)))

    def parse(self, form: Form, stream: bytes) -> tuple[NDArray[np.uint64], bytes]:
        """Coefficients (uint64[n]) and seed of a stream that this process's SEAL wrote.

        Raises:
            ConfigurationError: it has other fields: the SEAL that is installed is not 4.3.
        """
        words = self.parameters.degree * form.value[1] * 8
        size = len(b"".join(self._content(form, bytes(words), bytes(SEED_BYTES))))
        frame = stream[_HEADER_BYTES:]
        if zstandard.frame_content_size(frame) != size:  # before it is inflated
            raise ConfigurationError(_ANOTHER_SEAL)
        inflated = zstandard.ZstdDecompressor().decompress(frame)
        head = len(self._content(form, b"", b"")[0]) + _HEADER_BYTES + 8
        coefficients = inflated[head : head + words]
        seed = inflated[len(inflated) - SEED_BYTES :] if form is Form.UPDATE else b""
        if inflated != b"".join(self._content(form, coefficients, seed)):
            raise ConfigurationError(_ANOTHER_SEAL)
        return np.frombuffer(coefficients, dtype="<u8"), seed

    def _content(self, form: Form, coefficients: bytes, seed: bytes) -> Sequence[bytes]:
        """Head, array of coefficients and, for an update, the seed of the other polynomial."""
        level = _integers(*self.parms_id)
        array = _wrap(_integers(len(coefficients) // 8) + coefficients)
        if form is Form.SECRET:
            return [level + _integers(self.parameters.degree) + np.float64(1.0).tobytes(), array]
        head = level + bytes([self.parameters.scheme == "ckks"])  # CKKS stays in the transformed domain
        head += _integers(2, self.parameters.degree, 1) + np.float64(self.scale).tobytes()
        head += _integers(1)  # correction factor, of BGV only
        return [head, array, _wrap(_BLAKE2XB + seed)] if form is Form.UPDATE else [head, array]
