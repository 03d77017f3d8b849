"""A share server's half: one pass over its share of a silo's vector, one short message, one verdict.

Each server computes, from shares only, a ``CheckShare``: f(r), g(r) of each row, f(ρ) of the bits, and
shares of five values. Servers send it to each other once. Each adds them up and judges for itself.

To a server all of it is noise or known beforehand (ia.cr/2019/188 §4; arXiv 2311.10237 §3): its own share is
uniform; the opened f(r), g(r), f(ρ) are uniform, for the blinds are uniform given all shares
but one; the other values follow from these and from the equations that an honest silo always satisfies. A
simulator draws the uniform ones and solves for the rest (tests/unit/privacy/test_validity_knowledge.py does).
The same holds against k − 1 colluding servers. What is *not* covered: a server that lies in its message can
make an honest silo fail, and a silo that colludes with a server can pass: soundness needs all servers
honest, privacy needs one.
Two messages about one silo at two points would show a line through its rows, so there is one, ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from privacy.errors import MalformedMessage, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.secagg.validity.bits import BitsQuery, is_off_domain
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.field import FIELD_BYTES, MODULUS, Field, dot, from_bytes, powers, to_bytes
from privacy.secagg.validity.projection import Projection
from privacy.secagg.validity.sharing import PART_ELEMENTS, SeedShares, accumulate
from privacy.secagg.validity.squares import SquaresQuery
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import Numbers, cut_witness, numbers_of
from privacy.secagg.vectors import MODEL, VectorName

CheckName = Literal["squares", "bits", "norm", "projections", "weight"]
_SCALARS = 6


class UpdateRejected(Unprocessable):
    """A silo's proof does not hold: it is left out of the sum, by name."""

    def __init__(self, silo: SiloId, check: CheckName) -> None:
        super().__init__(
            f"validity.{check}: expected the proof of {silo} to hold, and it does not; the silo is left out"
        )
        self.silo = silo
        self.check = check


@dataclass(frozen=True)
class ValidUpdate:
    """Evidence that the vector a silo shared has norm ≤ B and a weight in range."""

    context: Context
    terms: Digest
    silo: SiloId
    vector: VectorName = MODEL


@dataclass(frozen=True)
class CheckShare:
    """What one server sends to the others about one silo."""

    server: ServerId
    rows: Field = field(repr=False)
    """uint64[m, 2]: shares of f(r) and g(r)."""
    claimed: int = field(repr=False)
    """A share of P(r)."""
    bits: int = field(repr=False)
    """A share of f(ρ)."""
    vanishing: int = field(repr=False)
    """A share of (ρ^N − 1)·q(ρ)."""
    norm: int = field(repr=False)
    projections: int = field(repr=False)
    weight: int = field(repr=False)
    """Shares of what must be zero."""

    def to_bytes(self) -> bytes:
        """Row values, then the scalars, 8 bytes each."""
        scalars = [self.claimed, self.bits, self.vanishing, self.norm, self.projections, self.weight]
        return to_bytes(np.concatenate([self.rows.reshape(-1), np.array(scalars, dtype=np.uint64)]))

    @staticmethod
    def size(terms: ValidityTerms) -> int:
        """Bytes of every such message under these terms."""
        return FIELD_BYTES * (2 * terms.rows + _SCALARS)

    @staticmethod
    def from_bytes(raw: bytes, server: ServerId, terms: ValidityTerms) -> CheckShare:
        """Read another server's message.

        Raises:
            MalformedMessage: another length, or elements that are not below p.
        """
        elements = from_bytes(raw, 2 * terms.rows + _SCALARS)
        rows, scalars = elements[:-_SCALARS].reshape(-1, 2), [int(value) for value in elements[-_SCALARS:]]
        return CheckShare(server, rows, *scalars)


class ValidityServerHalf:
    """One server's check of one silo. ``first`` says whether it is server 0, which holds explicit shares."""

    def __init__(self, terms: ValidityTerms, seed: SeedShares, coins: tuple[Coin, Coin], first: bool) -> None:
        """``coins`` are those of steps 1 and 2.

        Raises:
            OutOfOrder: coins of other steps, another round or other servers.
            MalformedMessage: a seed for other terms.
        """
        if [coin.toss.step for coin in coins] != [1, 2] or any(
            coin.toss.context != seed.binding.context for coin in coins
        ):
            raise OutOfOrder("coins: expected those of steps 1 and 2 of this round")
        if any(seed.server not in coin.toss.servers for coin in coins) or (
            set(coins[0].toss.servers) != set(coins[1].toss.servers)
        ):
            raise OutOfOrder("coins: expected both tossed by the same servers, this one among them")
        if seed.binding.terms != terms.digest:
            raise MalformedMessage("seed: it is bound to other validity terms")
        self._terms = terms
        self._seed = seed
        self._first = first
        self._coin = coins[0]
        rho = next(point for point in coins[1].points("bits", 8) if is_off_domain(point, terms.domain))
        r, self._compress = (point or 1 for point in coins[1].points("squares", 2))
        self._squares = SquaresQuery(terms, r)
        self._bits = BitsQuery(terms, rho)
        self._projection = Projection(coins[0], terms.projections)
        self._rows: list[Field] = []
        self._weight = 0
        self._next = 0
        self._spent = False

    def absorb(self, start: int, share: Field | None = None) -> None:
        """Check the part that begins at ``start``; server 0 passes its share, the others expand theirs.

        Raises:
            OutOfOrder: not the next part. Unprocessable: another length, or a share where none belongs.
        """
        length = min(PART_ELEMENTS, self._terms.vector_length - start)
        if start != self._next or length < 1:
            raise OutOfOrder(f"part: expected the one from {self._next}, got one from {start}")
        if (share is not None) != self._first:
            raise Unprocessable("share: server 0 passes its explicit share, every other server none")
        elements = self._seed.vector(start, length) if share is None else share
        if elements.shape != (length,):
            raise Unprocessable(f"share: expected {length} elements, got {elements.size}")
        self._next = start + length
        coordinates = elements[: max(0, self._terms.dimension - start)]
        if len(coordinates) < length:
            self._weight = int(elements[-1])
        u, w = self._seed.blinds(start // PART_ELEMENTS, -(-len(coordinates) // self._terms.columns))
        self._rows.append(self._squares.rows(coordinates, u, w))
        self._projection.absorb(start, coordinates)

    def message(self, witness: Field | None = None) -> CheckShare:
        """My share of every check, once; server 0 passes its share of the witness.

        Raises:
            OutOfOrder: parts are missing, or a second time. Unprocessable: a witness of another length.
        """
        if self._next != self._terms.vector_length or self._spent:
            raise OutOfOrder("message: expected once, after all parts")
        if (witness is not None) != self._first:
            raise Unprocessable("witness: server 0 passes its explicit share, every other server none")
        length = self._terms.bit_count + 2 * self._terms.columns + self._terms.domain + 2
        mine = cut_witness(
            self._seed.witness(self._coin.digest, length) if witness is None else witness, self._terms
        )
        self._spent = True
        numbers = numbers_of(mine.bits, self._terms)
        value, vanishing = self._bits.evaluate(mine.bits, mine.beta, mine.quotient)
        return CheckShare(
            self._seed.server,
            np.concatenate(self._rows),
            self._squares.claimed(mine.squares, numbers.squared_norm),
            value,
            vanishing,
            *self._residuals(numbers),
        )

    def _residuals(self, numbers: Numbers) -> tuple[int, int, int]:
        """Shares of what is zero for an honest silo; public constants are server 0's to add."""
        terms = self._terms
        one = 1 if self._first else 0
        norm = numbers.squared_norm + numbers.squared_norm_left - one * terms.encoded_bound**2
        edge = one * ((1 << terms.projection_bits) - 1)
        gaps = [
            (projected + edge - int(spelled)) % MODULUS
            for projected, spelled in zip(self._projection.values(), numbers.projections, strict=True)
        ]
        projections = dot(np.array(gaps, dtype=np.uint64), powers(self._compress, len(gaps)))
        weight = (self._weight - numbers.weight) + self._compress * (
            numbers.weight + numbers.weight_left - one * terms.weight_scale
        )
        return norm % MODULUS, projections, weight % MODULUS


def judge(
    terms: ValidityTerms,
    coin: Coin,
    silo: SiloId,
    messages: Mapping[ServerId, CheckShare],
    vector: VectorName = MODEL,
) -> ValidUpdate:
    """Add up all servers' messages about one vector of one silo and decide.

    (1) all servers of the toss spoke; (2) Σ f(r)·g(r) = P(r); (3) f(ρ)(f(ρ) − 1) = (ρ^N − 1)·q(ρ);
    (4) v + (B² − v) = B²; (5) each projection is the number its bits spell; (6) so is the weight.

    Raises:
        OutOfOrder: (1). UpdateRejected: (2) to (6), naming silo and check.
    """
    if set(messages) != set(coin.toss.servers):  # (1)
        raise OutOfOrder(f"checks: expected a message of each of {', '.join(coin.toss.servers)}")
    shares = list(messages.values())
    opened = accumulate((share.rows.reshape(-1) for share in shares), 2 * terms.rows).reshape(-1, 2)
    if dot(opened[:, 0], opened[:, 1]) != sum(share.claimed for share in shares) % MODULUS:  # (2)
        raise UpdateRejected(silo, "squares")
    value = sum(share.bits for share in shares)
    if (value * (value - 1) - sum(share.vanishing for share in shares)) % MODULUS:  # (3)
        raise UpdateRejected(silo, "bits")
    residuals: dict[CheckName, int] = {
        "norm": sum(share.norm for share in shares),  # (4)
        "projections": sum(share.projections for share in shares),  # (5)
        "weight": sum(share.weight for share in shares),  # (6)
    }
    for check, residual in residuals.items():
        if residual % MODULUS:
            raise UpdateRejected(silo, check)
    return ValidUpdate(coin.toss.context, terms.digest, silo, vector)
