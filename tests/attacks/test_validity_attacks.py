"""A silo with a vector out of bounds is named and left out; each test fails if its check is removed."""

from __future__ import annotations

import numpy as np
import pytest

from privacy.errors import MalformedMessage, OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.secagg.validity.bits import spell
from privacy.secagg.validity.coins import Coin, CoinHalf, Reveals, Toss, settle
from privacy.secagg.validity.field import MODULUS, Field, powers
from privacy.secagg.validity.projection import Projection, weights
from privacy.secagg.validity.server import UpdateRejected, ValidityServerHalf, judge
from privacy.secagg.validity.sharing import SeedShares, unseal_seed
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import witness_length
from tests.validity_cohort import (
    CTX,
    SEALING,
    SILO,
    at_the_bound,
    binding_of,
    cheat,
    check,
    parts,
    run,
    share,
    shifted,
    square_root,
    toss,
    verdict,
)

TERMS = ValidityTerms(dimension=60, norm_bound=1.0, scale_bits=20)
B = TERMS.encoded_bound
HALF = (MODULUS - 1) // 2
SERVERS = tuple(SEALING)[:2]
RNG = np.random.default_rng(7)


def vector(*coordinates: int, weight: int = 1) -> list[int]:
    return [*coordinates, *[0] * (TERMS.dimension - len(coordinates)), weight]


def large_root(start: int) -> tuple[int, int]:
    """(v, x) with v ≤ B², x² ≡ v mod p, and x far beyond B."""
    for v in range(start, B * B):
        root = square_root(v)
        if root is not None and min(root, MODULUS - root) > 1 << 40:
            return v, root
    raise AssertionError("no such root")


def test_the_cheats_tools_are_accepted_with_an_honest_vector() -> None:
    """Otherwise the rejections below would show nothing."""
    assert verdict(TERMS, cheat(TERMS, vector(B))).silo == SILO


@pytest.mark.parametrize("factor", [10, 1000])
def test_ten_times_the_norm_is_rejected_whatever_norm_is_claimed(factor: int) -> None:
    x = [int(value) * factor for value in at_the_bound(TERMS, RNG)[:-1]]
    norm = sum(value * value for value in x)
    with pytest.raises(UpdateRejected, match=r"validity\.squares: .*cleveland"):
        verdict(TERMS, cheat(TERMS, [*x, 1]))
    true_but_long = spell([0, 0], TERMS.norm_bits)
    true_but_long[0] = norm % MODULUS
    true_but_long[TERMS.norm_bits] = (B * B - norm) % MODULUS
    with pytest.raises(UpdateRejected, match=r"validity\.bits"):
        verdict(TERMS, cheat(TERMS, [*x, 1], norm=true_but_long))
    if norm < 1 << TERMS.norm_bits:
        unequal = spell([norm, 0], TERMS.norm_bits)
        with pytest.raises(UpdateRejected, match=r"validity\.norm"):
            verdict(TERMS, cheat(TERMS, [*x, 1], norm=unequal))


def test_one_unit_beyond_the_bound_is_rejected() -> None:
    """B² + 1 still fits the bits of v, so only the second number, B² − v, stands in its way."""
    x = vector(B, 1)
    assert (B * B + 1).bit_length() <= TERMS.norm_bits
    with pytest.raises(UpdateRejected, match=r"validity\.squares"):
        verdict(TERMS, cheat(TERMS, x))
    with pytest.raises(UpdateRejected, match=r"validity\.norm"):
        verdict(TERMS, cheat(TERMS, x, norm=spell([B * B + 1, 0], TERMS.norm_bits)))


def test_a_single_spike_is_rejected() -> None:
    with pytest.raises(UpdateRejected, match=r"validity\.squares"):
        verdict(TERMS, cheat(TERMS, vector(10 * B)))


def test_a_spike_whose_square_wraps_into_range_is_rejected_by_the_projections() -> None:
    start = 2
    for _ in range(5):
        v, root = large_root(start)
        start = v + 1
        with pytest.raises(UpdateRejected, match=r"validity\.projections"):
            verdict(TERMS, cheat(TERMS, vector(root)))


def test_vectors_of_halves_of_p_are_rejected() -> None:
    with pytest.raises(UpdateRejected, match=r"validity\.squares"):
        verdict(TERMS, cheat(TERMS, vector(HALF, HALF)))  # Σx² = 1/2 mod p
    with pytest.raises(UpdateRejected, match=r"validity\.projections"):
        verdict(TERMS, cheat(TERMS, vector(HALF, HALF, HALF, HALF)))  # Σx² = 1 mod p
    for signs in np.ndindex(2, 2, 2, 2):  # why weights are never ±1 alone
        total = sum((1 if sign else -1) * HALF for sign in signs) % MODULUS
        assert min(total, MODULUS - total) <= 2


@pytest.mark.parametrize("kind", ["spike", "halves", "spread", "mixed"])
def test_a_wrapped_vector_passes_a_projection_at_most_half_of_the_time(kind: str) -> None:
    many = ValidityTerms(dimension=400, norm_bound=1.0, scale_bits=20, projections=128)
    edge = 1 << many.projection_bits
    x = {
        "spike": [large_root(2)[1]],
        "halves": [HALF] * 4,
        "spread": [1 << 28] * 257,  # Σx² = 257·2^56 > p, each coordinate below T
        "mixed": [2 * edge] * 64 + [1] * 100,
    }[kind]
    assert sum(min(v, MODULUS - v) ** 2 for v in x) >= MODULUS
    passed = 0
    for _ in range(20):
        projection = Projection(toss(1, b"x", SERVERS), many.projections)
        projection.absorb(0, np.array(x, dtype=np.uint64))
        passed += sum((value + edge - 1) % MODULUS < 2 * edge for value in projection.values())
    assert passed <= 20 * 128 * 0.5 + 6 * (20 * 128 * 0.25) ** 0.5  # six standard deviations


@pytest.mark.parametrize("weight", [TERMS.weight_scale + 1, 2 * TERMS.weight_scale, MODULUS - 1, HALF])
def test_a_weight_out_of_range_is_rejected(weight: int) -> None:
    with pytest.raises(UpdateRejected, match=r"validity\.weight"):
        verdict(TERMS, cheat(TERMS, vector(B, weight=weight)))
    left = (TERMS.weight_scale - weight) % MODULUS
    long = spell([0, 0], TERMS.weight_bits)
    long[0], long[TERMS.weight_bits] = weight, left
    with pytest.raises(UpdateRejected, match=r"validity\.bits"):
        verdict(TERMS, cheat(TERMS, vector(B, weight=weight), weight=long))


@pytest.mark.parametrize("place", range(12))
def test_a_tampered_witness_is_rejected(place: int) -> None:
    length = witness_length(TERMS)
    marks = [0, TERMS.norm_bits, 2 * TERMS.norm_bits, 2 * (TERMS.norm_bits + TERMS.weight_bits)]
    marks += [TERMS.bit_count - 1, TERMS.bit_count, TERMS.bit_count + 2 * TERMS.columns - 1]
    marks += [length - 1, length - 2, length // 2, length - TERMS.domain, TERMS.bit_count // 2]
    with pytest.raises(UpdateRejected):
        verdict(TERMS, run(TERMS, at_the_bound(TERMS, RNG), change_witness=shifted(marks[place])))


@pytest.mark.parametrize("index", [0, 7, 8, 31, TERMS.dimension - 1, TERMS.dimension])
def test_a_share_tampered_after_the_proof_is_rejected(index: int) -> None:
    """By one unit, at the server or on the way: the sum would be another one."""
    with pytest.raises(UpdateRejected):
        verdict(TERMS, run(TERMS, at_the_bound(TERMS, RNG), change_share=shifted(index)))


def test_a_proof_replayed_under_another_context_is_rejected() -> None:
    x = at_the_bound(TERMS, RNG)
    shared = share(TERMS, x)
    first = toss(1, b"shares", SERVERS)
    shared.half.open_coin(first)
    for start, part in parts(x):
        shared.half.project(start, part)
    witness = shared.half.prove()
    other = Context(Digest("99" * 32))
    for server in SERVERS:  # the sealed seeds do not open there
        with pytest.raises(MalformedMessage, match="does not open"):
            unseal_seed(shared.half.sealed_seeds[server], SEALING[server], binding_of(TERMS, other), server)
    moved = {s: SeedShares(s, binding_of(TERMS, other), seed._seed) for s, seed in shared.seeds.items()}
    coins = (toss(1, b"shares", SERVERS, other), toss(2, b"proofs", SERVERS, other))
    with pytest.raises(UpdateRejected):  # and even the same seeds expand to other shares
        judge(TERMS, coins[1], SILO, check(TERMS, moved, shared.parts, witness, coins))
    with pytest.raises(OutOfOrder, match="of this round"):
        ValidityServerHalf(TERMS, shared.seeds[SERVERS[0]], coins, first=True)
    replayed = (toss(1, b"other shares", SERVERS), toss(2, b"proofs", SERVERS))
    with pytest.raises(UpdateRejected):  # nor does a witness answer another coin
        judge(TERMS, replayed[1], SILO, check(TERMS, shared.seeds, shared.parts, witness, replayed))


def forge_squares(witness: Field, coin: Coin) -> Field:
    """Bend one coefficient of P so that the false claim meets Σ f(r)·g(r) at a point known before."""
    r = next(point or 1 for point in coin.points("squares", 1))
    out = witness.copy()
    lowest = TERMS.bit_count  # the coefficient of X^0
    gap = (100 * B * B - B * B) * int(powers(r, TERMS.columns)[-1]) % MODULUS  # r^(n−1) times what v lacks
    out[lowest] = (int(out[lowest]) + gap) % MODULUS
    return out


def test_a_second_coin_known_before_the_proof_would_break_soundness() -> None:
    """Why coins are tossed, after all is fixed: with r known, 10·B passes; with a fresh r it fails."""
    assert verdict(TERMS, cheat(TERMS, vector(10 * B), forge=forge_squares)).silo == SILO
    stale = toss(2, b"known in advance", SERVERS)
    with pytest.raises(UpdateRejected, match=r"validity\.squares"):
        verdict(TERMS, cheat(TERMS, vector(10 * B), forge=lambda w, _: forge_squares(w, stale)))


def kernel_vectors(matrix: np.ndarray, count: int) -> list[list[int]]:
    """Vectors x with zᵀx = 0 mod p for every column z of ``matrix`` (d × r), by elimination."""
    rows = [[int(x) % MODULUS for x in row] for row in matrix.T]
    width, pivots = len(rows[0]), []
    for column in range(width):
        pivot = next((i for i in range(len(pivots), len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        at = len(pivots)
        rows[at], rows[pivot] = rows[pivot], rows[at]
        scale = pow(rows[at][column], -1, MODULUS)
        rows[at] = [x * scale % MODULUS for x in rows[at]]
        for i, row in enumerate(rows):
            if i != at and row[column]:
                rows[i] = [(x - row[column] * y) % MODULUS for x, y in zip(row, rows[at], strict=True)]
        pivots.append(column)
    free = [column for column in range(width) if column not in pivots]
    out = []
    for column in free[:count]:
        x = [0] * width
        x[column] = 1
        for at, pivot in enumerate(pivots):
            x[pivot] = -rows[at][column] % MODULUS
        out.append(x)
    return out


def test_a_first_coin_known_before_the_vector_would_break_soundness() -> None:
    """With z known, a vector as large as p is built that every projection maps to zero and Σx² ≡ 1."""
    known = toss(1, b"known in advance", SERVERS)
    basis = kernel_vectors(weights(known, TERMS.projections, TERMS.dimension), 12)
    for i, a in enumerate(basis):
        for b in basis[i + 1 :]:  # (a + s·b)² = 1: a quadratic equation in s
            aa, ab, bb = (sum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, a), (a, b), (b, b)))
            root = square_root((ab * ab - bb * (aa - 1)) % MODULUS)
            if root is not None and bb % MODULUS:
                s = (root - ab) * pow(bb, -1, MODULUS)
                x = [(p + s * q) % MODULUS for p, q in zip(a, b, strict=True)]
                assert sum(min(v, MODULUS - v) ** 2 for v in x) > MODULUS
                assert verdict(TERMS, cheat(TERMS, [*x, 1], first=known)).silo == SILO
                with pytest.raises(UpdateRejected, match=r"validity\.projections"):
                    verdict(TERMS, cheat(TERMS, [*x, 1]))
                return
    raise AssertionError("no combination found")


def test_a_server_cannot_reveal_what_it_did_not_commit_to() -> None:
    what = Toss(CTX, 1, Digest("33" * 32), SERVERS)
    a, b = (CoinHalf(what, server) for server in SERVERS)
    commitments = {SERVERS[0]: a.commitment, SERVERS[1]: b.commitment}
    with pytest.raises(OutOfOrder, match="differing: share-b"):
        a.reveal({SERVERS[0]: a.commitment})  # never before all are bound
    with pytest.raises(OutOfOrder, match="not the one it gave"):
        a.reveal({**commitments, SERVERS[0]: b.commitment})
    values = {SERVERS[0]: a.reveal(commitments), SERVERS[1]: bytes(32)}
    with pytest.raises(Unprocessable, match="share-b revealed another value"):
        settle(what, Reveals(commitments, values))
    with pytest.raises(OutOfOrder, match="not over"):
        settle(what, Reveals(commitments, {SERVERS[0]: values[SERVERS[0]]}))


def test_a_server_cannot_copy_anothers_commitment() -> None:
    """Copying value and commitment would cancel nothing out here, but it must not even verify."""
    what = Toss(CTX, 1, Digest("33" * 32), SERVERS)
    a = CoinHalf(what, SERVERS[0])
    copied = {SERVERS[0]: a.commitment, SERVERS[1]: a.commitment}
    value = a.reveal(copied)
    with pytest.raises(Unprocessable, match="share-b revealed another value"):
        settle(what, Reveals(copied, dict.fromkeys(SERVERS, value)))


@pytest.mark.parametrize("change", ["context", "step", "frozen"])
def test_a_commitment_of_another_toss_is_refused(change: str) -> None:
    """Above all one over other shares: a coin may not outlive what was fixed before it."""
    what = Toss(CTX, 1, Digest("33" * 32), SERVERS)
    halves = {server: CoinHalf(what, server) for server in SERVERS}
    commitments = {server: half.commitment for server, half in halves.items()}
    values = {server: half.reveal(commitments) for server, half in halves.items()}
    other = {
        "context": Toss(Context(Digest("99" * 32)), 1, what.frozen, SERVERS),
        "step": Toss(CTX, 2, what.frozen, SERVERS),
        "frozen": Toss(CTX, 1, Digest("44" * 32), SERVERS),
    }[change]
    with pytest.raises(Unprocessable, match="another value"):
        settle(other, Reveals(commitments, values))


def test_a_server_speaks_about_a_silo_once() -> None:
    """Two answers at two points would draw a line through the silo's rows."""
    shared = share(TERMS, at_the_bound(TERMS, RNG))
    coins = (toss(1, b"a", SERVERS), toss(2, b"b", SERVERS))
    half = ValidityServerHalf(TERMS, shared.seeds[SERVERS[1]], coins, first=False)
    half.absorb(0)
    half.message()
    with pytest.raises(OutOfOrder, match="once"):
        half.message()


def test_a_silo_proves_once_and_takes_one_coin() -> None:
    """A second witness under the same seeds would show server 0 the difference of the two."""
    x = at_the_bound(TERMS, RNG)
    shared = share(TERMS, x)
    coin = toss(1, b"a", SERVERS)
    with pytest.raises(OutOfOrder, match="step 1"):
        shared.half.open_coin(toss(2, b"a", SERVERS))
    shared.half.open_coin(coin)
    with pytest.raises(OutOfOrder, match="only one"):
        shared.half.open_coin(toss(1, b"b", SERVERS))
    shared.half.project(0, x)
    shared.half.prove()
    with pytest.raises(OutOfOrder, match="once"):
        shared.half.prove()


def test_a_coin_that_some_servers_tossed_among_themselves_is_refused() -> None:
    """Colluders that toss without the honest server would choose the projections."""
    a, b, c = SEALING
    shared = share(TERMS, at_the_bound(TERMS, RNG))
    for servers in ((a, c), (a, b, c)):
        with pytest.raises(OutOfOrder, match="exactly the servers"):
            shared.half.open_coin(toss(1, b"a", servers))
        coins = (toss(1, b"a", servers), toss(2, b"b", (a, b)))
        with pytest.raises(OutOfOrder, match="the same servers"):
            ValidityServerHalf(TERMS, shared.seeds[b], coins, first=False)
    coins = (toss(1, b"a", (a, c)), toss(2, b"b", (a, c)))
    with pytest.raises(OutOfOrder, match="this one among them"):
        ValidityServerHalf(TERMS, shared.seeds[b], coins, first=False)


def test_a_verdict_needs_every_server() -> None:
    finished = run(TERMS, at_the_bound(TERMS, RNG))
    del finished.messages[SERVERS[0]]
    with pytest.raises(OutOfOrder, match="share-a, share-b"):
        verdict(TERMS, finished, SiloId("cleveland"))
