"""What a share server learns: nothing but the verdict. A simulator writes its view without the vector."""

from __future__ import annotations

import numpy as np
import pytest

from privacy.ids import ServerId
from privacy.secagg.validity.bits import is_off_domain
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.field import MODULUS, Field, add, dot, root_of_unity, subtract
from privacy.secagg.validity.server import CheckShare, ValidityServerHalf, judge
from privacy.secagg.validity.sharing import field_stream
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import witness_length
from tests.validity_cohort import SEALING, SILO, at_the_bound, binding_of, run, share, toss, verdict

TERMS = ValidityTerms(dimension=64, norm_bound=1.0, scale_bits=20)
SERVERS = tuple(SEALING)[:2]


def simulate(mine: CheckShare, other: ServerId, key: bytes) -> CheckShare:
    """The other server's message, from mine and fresh randomness alone: no vector, no witness."""
    opened = field_stream(key, 0, 2 * TERMS.rows + 1)
    rows, value = opened[:-1].reshape(-1, 2), int(opened[-1])
    return CheckShare(
        other,
        subtract(rows, mine.rows),
        (dot(rows[:, 0], rows[:, 1]) - mine.claimed) % MODULUS,
        (value - mine.bits) % MODULUS,
        (value * (value - 1) - mine.vanishing) % MODULUS,
        -mine.norm % MODULUS,
        -mine.projections % MODULUS,
        -mine.weight % MODULUS,
    )


@pytest.mark.parametrize("corrupt", [0, 1])
def test_a_simulated_view_is_accepted_like_a_real_one(corrupt: int) -> None:
    """What the corrupt server holds is drawn at random, as in reality; the rest is solved for."""
    coins = (toss(1, b"a", SERVERS), toss(2, b"b", SERVERS))
    seed = share(TERMS, np.zeros(65, dtype=np.int64)).seeds[SERVERS[corrupt]]
    half = ValidityServerHalf(TERMS, seed, coins, first=corrupt == 0)
    if corrupt == 0:
        half.absorb(0, field_stream(b"\x01" * 32, 0, 65))
        mine = half.message(field_stream(b"\x02" * 32, 0, witness_length(TERMS)))
    else:
        half.absorb(0)
        mine = half.message()
    simulated = simulate(mine, SERVERS[1 - corrupt], b"\x03" * 32)
    messages = {mine.server: mine, simulated.server: simulated}
    assert judge(TERMS, coins[1], SILO, messages).silo == SILO


def test_all_but_the_uniform_part_of_a_real_message_is_what_the_simulator_solves_for() -> None:
    finished = run(TERMS, at_the_bound(TERMS, np.random.default_rng(1)))
    verdict(TERMS, finished)
    mine, theirs = (finished.messages[server] for server in SERVERS)
    rows = add(mine.rows, theirs.rows)
    value = (mine.bits + theirs.bits) % MODULUS
    assert theirs.claimed == (dot(rows[:, 0], rows[:, 1]) - mine.claimed) % MODULUS
    assert theirs.vanishing == (value * (value - 1) - mine.vanishing) % MODULUS
    for mine_zero, their_zero in zip(
        (mine.norm, mine.projections, mine.weight),
        (theirs.norm, theirs.projections, theirs.weight),
        strict=True,
    ):
        assert their_zero == -mine_zero % MODULUS


def opened(encoded: np.ndarray, repeats: int) -> tuple[Field, list[int]]:
    """What both servers see opened, over fresh runs."""
    rows, values = [], []
    for _ in range(repeats):
        finished = run(TERMS, encoded)
        a, b = finished.messages.values()
        rows.append(add(a.rows, b.rows).reshape(-1))
        values.append((a.bits + b.bits) % MODULUS)
    return np.concatenate(rows), values


@pytest.mark.slow
def test_what_is_opened_looks_the_same_for_zero_and_for_a_vector_at_the_bound() -> None:
    """Uniform in [0, p) for both: counts in 16 bins by χ² (15 degrees; 60 is beyond the 10⁻⁶ quantile)."""
    zero, zero_bits = opened(np.zeros(65, dtype=np.int64), 60)
    full, full_bits = opened(at_the_bound(TERMS, np.random.default_rng(1)), 60)
    for sample in (zero, full, np.array(zero_bits + full_bits, dtype=np.uint64)):
        counts = np.bincount((sample >> np.uint64(60)).astype(np.int64), minlength=16)
        expected = len(sample) / 16
        assert float(np.sum((counts - expected) ** 2) / expected) < 60
        low = np.bincount((sample & np.uint64(15)).astype(np.int64), minlength=16)
        assert float(np.sum((low - expected) ** 2) / expected) < 60


def test_without_blinds_a_zero_vector_would_be_visible() -> None:
    """The counterpart: the same opening minus its blinds is zero for a zero vector, in every run."""
    shared = share(TERMS, np.zeros(65, dtype=np.int64))
    coins = (toss(1, b"a", SERVERS), toss(2, b"b", SERVERS))
    total = np.zeros((TERMS.rows, 2), dtype=np.uint64)
    for place, server in enumerate(SERVERS):
        half = ValidityServerHalf(TERMS, shared.seeds[server], coins, first=place == 0)
        blinds = np.stack(shared.seeds[server].blinds(0, TERMS.rows), axis=1)
        half.absorb(0, shared.parts[0][1] if place == 0 else None)
        r = next(point or 1 for point in coins[1].points("squares", 1))
        scaled = [[int(x) * pow(r, TERMS.columns, MODULUS) % MODULUS for x in row] for row in blinds]
        total = add(total, subtract(half._rows[0], np.array(scaled, dtype=np.uint64)))
    assert not total.any()


def test_bits_are_never_opened_on_their_own_domain() -> None:
    """There f(ρ) would be a bit. The one point in 2^53 that falls on it is passed over."""
    assert not is_off_domain(root_of_unity(TERMS.domain), TERMS.domain)
    assert not is_off_domain(1, TERMS.domain)
    assert not is_off_domain(0, TERMS.domain)
    assert is_off_domain(7, TERMS.domain)


def test_secrets_do_not_print() -> None:
    x = np.zeros(65, dtype=np.int64)
    x[0] = 123_457
    finished = run(TERMS, x)
    seeds = share(TERMS, x).seeds
    for thing in (*finished.messages.values(), *seeds.values(), finished):
        assert "array" not in repr(thing)
        assert "123457" not in repr(thing)
    seed = seeds[SERVERS[0]]
    assert seed._seed.hex() not in repr(seed)
    assert repr(seed._seed) not in repr(seed)
    assert binding_of(TERMS).silo in repr(seed)
    assert isinstance(finished.coins[0], Coin)
