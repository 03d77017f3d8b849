"""What a measured round costs, by piece of work, and what every measured round needs: encoding and terms.

The clock is the process's CPU time. The silo measured is the first of the cohort; the others do the same
work off the clock. Encoding is on the silo's clock: without it nothing can be masked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.plan import VectorTerms
from privacy.secagg.encoding import encode
from privacy.secagg.keystream import Dither
from privacy.secagg.parts import stretches
from privacy.wire.envelope import Envelope

Updates = Mapping[SiloId, NDArray[np.float32]]
Parts = Mapping[SiloId, Sequence[bytes]]


@dataclass
class Costs:
    """CPU seconds by piece of work, and the bytes of the silo measured."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("encode", "protect", "open", "server", "check"), 0.0)
    )
    up_bytes: int = 0
    down_bytes: int = 0

    @contextmanager
    def on(self, piece: str, measured: bool = True) -> Iterator[None]:
        """Add what the block takes to one piece of work, unless it is another silo's."""
        start = time.process_time()
        yield
        if measured:
            self.seconds[piece] += time.process_time() - start

    @property
    def silo_s(self) -> float:
        """All a silo does: encode, protect and hash, and open the sum where silos do that."""
        return self.seconds["encode"] + self.seconds["protect"] + self.seconds["open"]


@dataclass(frozen=True)
class Opened:
    """What a round opened, float64[d], at which fixed-point scale (0: none), and what it cost."""

    total: NDArray[np.float64]
    scale_bits: int
    costs: Costs


def length_of(updates: Updates) -> int:
    return len(next(iter(updates.values())))


def size_of(envelope: Envelope) -> int:
    return len(canonical_bytes(envelope))


def fresh_context() -> Context:
    return Context(Digest(os.urandom(32).hex()))


def hash_all(parts: Parts) -> None:
    for uploaded in parts.values():
        for part in uploaded:
            sha256_hex(part)


def widest_terms(fits: Callable[[VectorTerms], None]) -> VectorTerms:
    """Terms for coordinates in [−1, 1] with the finest scale that the protocol carries for this cohort."""
    for bits in range(30, 0, -1):
        terms = VectorTerms(coordinate_bound=1.0, scale_bits=bits)
        try:
            fits(terms)
        except Unprocessable:
            continue
        return terms
    raise Unprocessable("silos: no scale fits so many")


def encode_update(
    update: NDArray[np.float32], terms: VectorTerms, costs: Costs, measured: bool
) -> NDArray[np.uint32]:
    encoded = np.empty(len(update), dtype="<u4")
    with costs.on("encode", measured):
        dither = Dither()
        for piece in stretches(len(update)):
            here = slice(piece.start, piece.start + piece.length)
            encoded[here] = encode(update[here], 1.0, terms, dither.at(piece.start, piece.length))
    return encoded
