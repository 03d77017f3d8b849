"""A round of threshold encryption opens exactly the oracle's sum, or ends by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from privacy.errors import MalformedMessage, OutOfOrder, Unprocessable
from privacy.ids import Digest
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation, StateDamaged
from privacy.secagg.threshold.faults import KeyholderMissing
from privacy.secagg.threshold.parameters import PARAMETERS
from privacy.secagg.threshold.polynomials import from_wire
from privacy.secagg.threshold.silo_encrypting import Encrypter
from privacy.secagg.threshold.silo_state import SiloState
from privacy.secagg.threshold.worker import Worker
from tests.threshold_cohort import MODEL, Cohort, names, random_update, workers

BFV, WIDE, CKKS = "tbfv-8192-168", "tbfv-8192-200", "tckks-4096-60"
pytestmark = pytest.mark.slow
"""A worker takes two seconds to start."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[str], Worker]]:
    yield from workers()


@pytest.mark.parametrize("row", PARAMETERS)
@pytest.mark.parametrize("silos", [2, 5])
@pytest.mark.parametrize("length", [2, 8191, 8192 * 2 + 3])
def test_the_opened_sum_is_the_oracles(
    worker: Callable[[str], Worker], row: str, silos: int, length: int
) -> None:
    cohort = Cohort.of(row, worker(row), silos, length)
    holders, total = cohort.run()
    assert holders == cohort.silos
    assert np.array_equal(total, cohort.oracle(holders))
    assert not cohort.refused


@pytest.mark.parametrize("row", [WIDE, CKKS])
def test_vectors_of_more_than_one_part_are_opened_part_by_part(
    worker: Callable[[str], Worker], row: str
) -> None:
    length = 32 * PARAMETERS[row].payload + 17
    cohort = Cohort.of(row, worker(row), 2, length)
    holders, total = cohort.run()
    assert len(cohort.members[holders[0]].parts) == 2
    assert np.array_equal(total, cohort.oracle(holders))


@pytest.mark.parametrize("row", PARAMETERS)
def test_sums_at_the_bound_of_every_element_are_exact(worker: Callable[[str], Worker], row: str) -> None:
    cohort = Cohort.of(row, worker(row), 6, 500)
    largest = 1 << {BFV: 15, WIDE: 20, CKKS: 17}[row]
    for member in cohort.members.values():
        member.update = np.where(np.arange(500) % 2, largest, -largest).astype(np.int32).view(np.uint32)
    holders, total = cohort.run()
    assert np.array_equal(total, cohort.oracle(holders))


@pytest.mark.parametrize("step", ["commit", "reveal"])
def test_a_silo_that_is_gone_before_the_joint_key_is_left_out(
    worker: Callable[[str], Worker], step: str
) -> None:
    gone = names(4)[1]
    cohort = Cohort.of(CKKS, worker(CKKS), 4, drops={gone: step})
    holders, total = cohort.run()
    assert holders == tuple(silo for silo in cohort.silos if silo != gone)
    assert np.array_equal(total, cohort.oracle(holders))


@pytest.mark.parametrize("step", ["manifest", "partial"])
def test_a_silo_that_is_gone_after_the_joint_key_ends_the_round_by_name(
    worker: Callable[[str], Worker], step: str
) -> None:
    gone = names(4)[2]
    cohort = Cohort.of(CKKS, worker(CKKS), 4, drops={gone: step})
    with pytest.raises(KeyholderMissing, match=rf"{step}: .*{gone}.*start another round"):
        cohort.run()


@pytest.mark.parametrize("step", ["commit", "reveal"])
def test_no_key_is_made_below_the_minimum(worker: Callable[[str], Worker], step: str) -> None:
    cohort = Cohort.of(CKKS, worker(CKKS), 3, minimum=3, drops={names(3)[0]: step})
    with pytest.raises(BelowThreshold, match=f"{step}: expected at least 3 silos, got 2"):
        cohort.run()


def test_two_rounds_at_once_do_not_mix(worker: Callable[[str], Worker]) -> None:
    first, second = (Cohort.of(CKKS, worker(CKKS), 2) for _ in range(2))
    opened = [cohort.until_uploaded() for cohort in (first, second)]
    for cohort, closed in zip((first, second), opened, strict=True):
        summed, bodies = cohort.add(closed)
        total = cohort.fuse(cohort.partials(closed, summed), bodies)
        assert np.array_equal(total, cohort.oracle(cohort.silos))


def test_steps_answered_before_are_answered_alike_after_a_restart(worker: Callable[[str], Worker]) -> None:
    cohort = Cohort.of(CKKS, worker(CKKS), 2)
    commits = cohort.commits()
    member = cohort.members[cohort.silos[0]]
    assert member.reveal(commits.relay) == member.reveal(commits.relay)


def test_a_part_is_encrypted_once_and_only_if_it_fits(worker: Callable[[str], Worker]) -> None:
    cohort = Cohort.of(CKKS, worker(CKKS), 2)
    reveals = cohort.reveals(cohort.commits())
    member = cohort.members[cohort.silos[0]]
    with pytest.raises(OutOfOrder, match="key shares of the others are not known"):
        Encrypter(member.state, member.worker, MODEL)
    member.encrypt(reveals.relay)
    with pytest.raises(OutOfOrder, match="has signed its update"):
        Encrypter(member.state, member.worker, MODEL)
    other = cohort.members[cohort.silos[1]]
    other.encrypt(reveals.relay)
    unsigned = other.state.model_copy(update={"signed": {}})
    with pytest.raises(Equivocation, match="another model"):
        Encrypter(unsigned, other.worker, Digest("44" * 32))
    encrypter = Encrypter(unsigned, other.worker, MODEL)
    with pytest.raises(Unprocessable, match="expected 5 elements"):
        encrypter.encrypt(0, random_update(CKKS, 6))
    with pytest.raises(UpdateOutOfRange, match="beyond the plan's coordinate_bound"):
        encrypter.encrypt(0, np.full(5, 1 << 24, dtype=np.uint32))
    encrypter.encrypt(0, random_update(CKKS, 5))
    with pytest.raises(OutOfOrder, match="encrypted already"):
        encrypter.encrypt(0, random_update(CKKS, 5))


def test_a_stored_state_prints_no_secret_and_a_damaged_one_is_refused(
    worker: Callable[[str], Worker],
) -> None:
    cohort = Cohort.of(CKKS, worker(CKKS), 2)
    cohort.commits()
    state = cohort.members[cohort.silos[0]].state
    assert state.secret is not None
    for text in (repr(state), str(state)):
        assert state.secret[:40] not in text
    with pytest.raises(StateDamaged, match="cannot be read") as refused:
        SiloState.from_bytes(state.to_bytes()[:-2])
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("name", [BFV, WIDE])
def test_a_partial_decryption_is_flooded_far_beyond_twenty_bits(
    worker: Callable[[str], Worker], name: str
) -> None:
    """Two of one sum differ by flooding alone. Times 2^30 the difference would still be nothing if the noise
    were OpenFHE's fixed 20 bits (2^50 of 2^168), and fills the plaintext if it is uniform below 2^120."""
    cohort = Cohort.of(name, worker(name), 2)
    cohort.commits()
    secret = cohort.members[cohort.silos[0]].state.secret_share()
    masks = np.ascontiguousarray(secret)  # any polynomial of the ring
    one, other = (worker(name).partial(secret, masks).astype(object) for _ in range(2))
    primes = np.array(PARAMETERS[name].moduli, dtype=object)[:, None]
    scaled = ((one - other) * 2**30 % primes).astype(np.uint64)
    assert np.count_nonzero(worker(name).fuse(scaled)) > 8000
    unscaled = ((one - other) % primes).astype(np.uint64)
    assert not np.any(worker(name).fuse(unscaled))


def test_key_shares_of_one_silo_in_two_rounds_are_unrelated(worker: Callable[[str], Worker]) -> None:
    cohort = Cohort.of(CKKS, worker(CKKS), 2)
    cohort.commits()
    member = cohort.members[cohort.silos[0]]
    first = member.state
    member.begin(cohort.terms, cohort.pinned)
    assert first.share != member.state.share
    assert first.secret != member.state.secret


def test_a_reveal_that_is_no_polynomial_is_refused(worker: Callable[[str], Worker]) -> None:
    with pytest.raises(MalformedMessage, match="below its prime"):
        from_wire("share", PARAMETERS[CKKS], b"\xff" * PARAMETERS[CKKS].polynomial_bytes, 1)
    with pytest.raises(MalformedMessage, match="expected 32768 bytes"):
        from_wire("share", PARAMETERS[CKKS], b"", 1)
