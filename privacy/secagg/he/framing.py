"""How ciphertexts travel: which part holds which elements, and exactly how many bytes each has.

Part = its ciphertexts one after the other. An update is the 64-byte seed of its second polynomial ‖ its
first polynomial; a sum is both polynomials; a polynomial is ``degree`` coefficients of ⌈log2 q⌉ bits.
SEAL's own streams are *not* the wire format: they are deflated, a fifth larger, change with SEAL's minor
version, and one with a hostile seed header ends the process that reads it (SEAL 4.3: std::terminate).
Here a peer chooses seed and coefficients and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from privacy.errors import MalformedMessage, Unprocessable
from privacy.secagg.he.parameters import HeParameters

CIPHERTEXTS_PER_PART = 64
SEED_BYTES = 64
"""Seed of SEAL's generator (BLAKE2Xb), public: the uniform half of a fresh symmetric ciphertext."""


class Form(Enum):
    """What a run of packed bytes is: (bytes of seed, polynomials)."""

    UPDATE = (SEED_BYTES, 1)
    SUM = (0, 2)
    SECRET = (0, 1)

    def size(self, parameters: HeParameters) -> int:
        """Its exact size in bytes."""
        seed, polynomials = self.value
        return seed + polynomials * parameters.degree * parameters.modulus.bit_length() // 8


@dataclass(frozen=True)
class HeStretch:
    """Elements [start, start + length) of a vector, in ``ciphertexts`` ciphertexts: what a part carries."""

    index: int
    start: int
    length: int
    ciphertexts: int


def he_part_count(parameters: HeParameters, vector_length: int) -> int:
    """Parts a vector of that many elements takes."""
    return -(-vector_length // (CIPHERTEXTS_PER_PART * parameters.payload))


def he_stretch(parameters: HeParameters, index: int, vector_length: int) -> HeStretch:
    """Part ``index`` of a vector.

    Raises:
        Unprocessable: there is no such part.
    """
    count = he_part_count(parameters, vector_length)
    if not 0 <= index < count:
        raise Unprocessable(f"part: expected 0 to {count - 1}, got {index}")
    whole = CIPHERTEXTS_PER_PART * parameters.payload
    length = min(whole, vector_length - index * whole)
    return HeStretch(index, index * whole, length, -(-length // parameters.payload))


def he_stretches(parameters: HeParameters, vector_length: int) -> Iterator[HeStretch]:
    """Every part of a vector, in order."""
    for index in range(he_part_count(parameters, vector_length)):
        yield he_stretch(parameters, index, vector_length)


def part_bytes(parameters: HeParameters, stretch: HeStretch, form: Form) -> int:
    """Exact size of a part: what a server checks before it stores or reads one."""
    return stretch.ciphertexts * form.size(parameters)


def join_part(ciphertexts: Sequence[bytes]) -> bytes:
    """A part from its ciphertexts."""
    return b"".join(ciphertexts)


def split_part(parameters: HeParameters, stretch: HeStretch, form: Form, part: bytes) -> list[bytes]:
    """The ciphertexts of a part.

    Raises:
        MalformedMessage: it is not exactly as long as they are.
    """
    expected = part_bytes(parameters, stretch, form)
    if len(part) != expected:
        raise MalformedMessage(
            f"part {stretch.index}: expected {expected} bytes ({form.name.lower()}, {parameters.name}), "
            f"got {len(part)}"
        )
    size = form.size(parameters)
    return [part[at : at + size] for at in range(0, len(part), size)]
