"""An in-memory round of validity on shares, whose silos may misbehave between any two steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt

import numpy as np

from privacy.identity import SealingKey
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.secagg.validity.bits import spell
from privacy.secagg.validity.coins import Coin, CoinHalf, Reveals, Step, Toss, settle
from privacy.secagg.validity.field import MODULUS, Field, add, centred, to_bytes
from privacy.secagg.validity.server import CheckShare, ValidityServerHalf, ValidUpdate, judge
from privacy.secagg.validity.sharing import PART_ELEMENTS, Binding, SeedShares, accumulate, unseal_seed
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import ValidityTerms

CTX = Context(Digest("11" * 32))
MODEL = Digest("22" * 32)
SILO = SiloId("cleveland")
SEALING = {ServerId(f"share-{letter}"): SealingKey.generate() for letter in "abc"}

Change = Callable[[Field], Field]


def same(elements: Field) -> Field:
    """No change."""
    return elements


def shifted(index: int, by: int = 1) -> Change:
    """Add ``by`` to one element."""

    def change(elements: Field) -> Field:
        out = elements.copy()
        out[index] = (int(out[index]) + by) % MODULUS
        return out

    return change


def binding_of(terms: ValidityTerms, context: Context = CTX, silo: SiloId = SILO) -> Binding:
    """The binding of a silo's seeds in a round."""
    return Binding(context, terms.digest, MODEL, silo)


def toss(step: Step, frozen: bytes, servers: tuple[ServerId, ...], context: Context = CTX) -> Coin:
    """A coin tossed by honest servers over ``frozen``."""
    what = Toss(context, step, Digest(hashlib.sha256(frozen).hexdigest()), servers)
    halves = {server: CoinHalf(what, server) for server in servers}
    commitments = {server: half.commitment for server, half in halves.items()}
    values = {server: half.reveal(commitments) for server, half in halves.items()}
    return settle(what, Reveals(commitments, values))


def parts(encoded: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The parts of an encoded vector, with where they begin."""
    return [
        (start, encoded[start : start + PART_ELEMENTS]) for start in range(0, len(encoded), PART_ELEMENTS)
    ]


@dataclass
class Shared:
    """What one silo has put at the servers after step 1."""

    half: ValiditySiloHalf
    seeds: dict[ServerId, SeedShares]
    parts: list[tuple[int, Field]]


@dataclass
class Run:
    """What is visible of one silo's check at its end."""

    messages: dict[ServerId, CheckShare]
    coins: tuple[Coin, Coin]
    witness: Field = field(repr=False)


def share(
    terms: ValidityTerms, encoded: np.ndarray, servers: int = 2, silo: SiloId = SILO, context: Context = CTX
) -> Shared:
    """Step 1 of an honest silo, and the servers opening their seeds."""
    keys = dict(list(SEALING.items())[:servers])
    binding = binding_of(terms, context, silo)
    half = ValiditySiloHalf(terms, binding, {server: key.public_hex for server, key in keys.items()})
    stored = [(start, half.share(start, part)) for start, part in parts(encoded)]
    half.commit()
    seeds = {
        server: unseal_seed(half.sealed_seeds[server], key, binding, server) for server, key in keys.items()
    }
    return Shared(half, seeds, stored)


def check(
    terms: ValidityTerms,
    seeds: Mapping[ServerId, SeedShares],
    stored: list[tuple[int, Field]],
    witness: Field,
    coins: tuple[Coin, Coin],
) -> dict[ServerId, CheckShare]:
    """Each server's message about one silo."""
    messages = {}
    for place, (server, seed) in enumerate(seeds.items()):
        half = ValidityServerHalf(terms, seed, coins, first=place == 0)
        for start, part in stored:
            half.absorb(start, part if place == 0 else None)
        messages[server] = half.message(witness if place == 0 else None)
    return messages


def run(
    terms: ValidityTerms,
    encoded: np.ndarray,
    servers: int = 2,
    change_share: Change = same,
    change_witness: Change = same,
) -> Run:
    """All steps of one silo, honest but for the changes."""
    shared = share(terms, encoded, servers)
    names = tuple(shared.seeds)
    stored = [(start, change_share(part) if start == 0 else part) for start, part in shared.parts]
    first = toss(1, b"".join(to_bytes(part) for _, part in stored), names)
    shared.half.open_coin(first)
    for start, part in parts(encoded):
        shared.half.project(start, part)
    witness = change_witness(shared.half.prove())
    coins = (first, toss(2, to_bytes(witness), names))
    return Run(check(terms, shared.seeds, stored, witness, coins), coins, witness)


def verdict(terms: ValidityTerms, finished: Run, silo: SiloId = SILO) -> ValidUpdate:
    """What any server concludes."""
    return judge(terms, finished.coins[1], silo, finished.messages)


def at_the_bound(terms: ValidityTerms, rng: np.random.Generator) -> np.ndarray:
    """A random encoded vector with Σx² = B² exactly (four squares fill what is left), and a weight."""
    bound = terms.encoded_bound
    raw = rng.standard_normal(terms.dimension)
    encoded = np.trunc(raw / np.linalg.norm(raw) * bound * 0.999).astype(np.int64)
    encoded[: min(4, terms.dimension)] = 0
    rest = bound * bound - int(np.dot(encoded, encoded))
    encoded[: min(4, terms.dimension)] = four_squares(rest, rng)[: terms.dimension]
    assert sum(int(x) ** 2 for x in encoded) == bound * bound
    return np.append(encoded, terms.weight_scale)


def four_squares(number: int, rng: np.random.Generator) -> list[int]:
    """Lagrange: a² + b² + c² + d² = number, drawing a and b until two squares make the rest."""
    if number % 4 == 0:  # a² + b² is never 3 mod 4, so no prime 1 mod 4 would be left
        return [2 * part for part in four_squares(number // 4, rng)] if number else [0, 0, 0, 0]
    if isqrt(number) ** 2 == number:
        return [isqrt(number), 0, 0, 0]
    for _ in range(100_000):
        a, b = (int(value) for value in rng.integers(0, isqrt(number) * 2 // 3 + 1, 2))
        pair = two_squares(number - a * a - b * b)
        if pair is not None:
            return [a, b, *pair]
    raise AssertionError("no four squares found")


def two_squares(prime: int) -> tuple[int, int] | None:
    """Cornacchia: c² + d² = prime when it is a prime 1 mod 4, else nothing."""
    if prime < 5 or prime % 4 != 1 or pow(2, prime - 1, prime) != 1:
        return None
    for base in range(2, 40):
        low = pow(base, (prime - 1) // 4, prime)
        if low * low % prime == prime - 1:
            high = prime
            while low * low > prime:
                high, low = low, high % low
            other = isqrt(prime - low * low)
            return (low, other) if low * low + other * other == prime else None
    return None


def sum_opened(terms: ValidityTerms, all_shared: list[Shared]) -> np.ndarray:
    """The opened sum of several silos: each server adds what it holds, then the shares are added."""
    length = terms.vector_length
    first = accumulate((np.concatenate([part for _, part in s.parts]) for s in all_shared), length)
    opened = first
    for server in list(all_shared[0].seeds)[1:]:
        masks = (
            np.concatenate([s.seeds[server].vector(start, len(part)) for start, part in s.parts])
            for s in all_shared
        )
        opened = add(opened, accumulate(masks, length))
    return centred(opened)


def exact_squares(rows: list[list[int]], u: list[int], w: list[int], columns: int) -> list[int]:
    """P = Σ_rows f·g coefficient by coefficient in Python integers: the oracle, and a cheat's tool."""
    out = [0] * (2 * columns + 1)
    for row, blind_f, blind_g in zip(rows, u, w, strict=True):
        f, g = [*row, blind_f], [*reversed(row), blind_g]
        for i, a in enumerate(f):
            for j, b in enumerate(g):
                out[i + j] = (out[i + j] + a * b) % MODULUS
    return out


class ExactSquares:
    """Takes the place of ``SquaresProver`` in a silo whose vector is too large for honest arithmetic."""

    def __init__(self, terms: ValidityTerms) -> None:
        self.columns = terms.columns
        self.rows: list[list[int]] = []
        self.u: list[int] = []
        self.w: list[int] = []

    def absorb(self, coordinates: np.ndarray, u: Field, w: Field) -> None:
        flat = [int(x) for x in coordinates] + [0] * (-len(coordinates) % self.columns)
        self.rows += [flat[at : at + self.columns] for at in range(0, len(flat), self.columns)]
        self.u += [int(x) for x in u]
        self.w += [int(x) for x in w]

    def squared_norm(self) -> float:
        return 0.0

    def proof(self) -> Field:
        exact = exact_squares(self.rows, self.u, self.w, self.columns)
        return np.array(exact[: self.columns - 1] + exact[self.columns :], dtype=np.uint64)


class CheatingSilo(ValiditySiloHalf):
    """A silo that proves as well as it can about a vector that is out of bounds.

    It claims ``norm_bits`` and ``weight_bits`` as given and moves each projection into range.
    """

    claimed_norm: Field
    claimed_weight: Field

    def share(self, start: int, encoded: np.ndarray) -> Field:
        if not isinstance(self._squares, ExactSquares):
            self._squares = ExactSquares(self._terms)  # type: ignore[assignment]
        weight = encoded[-1]
        encoded = encoded.copy()
        encoded[-1] = 0  # past the silo's own refusal; put back into the share below
        out = super().share(start, encoded)
        out[-1] = (int(out[-1]) + int(weight)) % MODULUS
        return out

    def _bits(self, projections: list[int]) -> Field:
        edge = 1 << self._terms.projection_bits
        moved = [min((value + edge - 1) % MODULUS, 2 * edge - 1) for value in projections]
        return np.concatenate([self.claimed_norm, self.claimed_weight, spell(moved, self._terms.range_bits)])


def cheat(
    terms: ValidityTerms,
    encoded: list[int],
    norm: Field | None = None,
    weight: Field | None = None,
    first: Coin | None = None,
    forge: Callable[[Field, Coin], Field] | None = None,
) -> Run:
    """A whole run of a cheating silo on d coordinates and a weight, each mod p.

    By default it claims v = min(Σx² mod p, B²). ``first`` is a coin 1 known before the vector was chosen,
    ``forge`` changes the witness knowing coin 2.
    """
    bound = terms.encoded_bound**2
    claim = min(sum(x * x for x in encoded[:-1]) % MODULUS, bound)
    keys = dict(list(SEALING.items())[:2])
    silo = CheatingSilo(terms, binding_of(terms), {server: key.public_hex for server, key in keys.items()})
    silo.claimed_norm = spell([claim, bound - claim], terms.norm_bits) if norm is None else norm
    honest = min(encoded[-1], terms.weight_scale)
    silo.claimed_weight = (
        spell([honest, terms.weight_scale - honest], terms.weight_bits) if weight is None else weight
    )
    vector = centred(np.array([x % MODULUS for x in encoded], dtype=np.uint64))
    stored = [(start, silo.share(start, part)) for start, part in parts(vector)]
    silo.commit()
    seeds = {
        server: unseal_seed(silo.sealed_seeds[server], key, binding_of(terms), server)
        for server, key in keys.items()
    }
    names = tuple(seeds)
    first = first or toss(1, b"".join(to_bytes(part) for _, part in stored), names)
    silo.open_coin(first)
    for start, part in parts(vector):
        silo.project(start, part)
    witness = silo.prove()
    second = toss(2, to_bytes(witness), names)
    if forge is not None:
        witness = forge(witness, second)
    coins = (first, second)
    return Run(check(terms, seeds, stored, witness, coins), coins, witness)


def square_root(number: int) -> int | None:
    """A root mod p (Tonelli–Shanks), or nothing."""
    if pow(number, (MODULUS - 1) // 2, MODULUS) != 1:
        return None
    odd, order = (MODULUS - 1) >> 32, 32
    c, t, root = pow(7, odd, MODULUS), pow(number, odd, MODULUS), pow(number, (odd + 1) // 2, MODULUS)
    while t != 1:
        steps, power = 0, t
        while power != 1:
            power, steps = power * power % MODULUS, steps + 1
        b = pow(c, 1 << (order - steps - 1), MODULUS)
        order, c = steps, b * b % MODULUS
        t, root = t * c % MODULUS, root * b % MODULUS
    return root
