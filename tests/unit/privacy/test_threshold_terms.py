"""What a silo refuses before it makes a key, and what this installation cannot run; most need no OpenFHE."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.errors import ConfigurationError, NotAllowed, Unprocessable
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import VectorTerms
from privacy.secagg.pairwise.faults import WeakTerms
from privacy.secagg.threshold.faults import WorkerFailed
from privacy.secagg.threshold.parameters import PARAMETERS, assert_fits, threshold_parameters_named
from privacy.secagg.threshold.parts import threshold_part_count, threshold_stretch, threshold_stretches
from privacy.secagg.threshold.polynomials import add, common_polynomial, from_wire, to_wire
from privacy.secagg.threshold.terms import ThresholdTerms, judge_terms
from privacy.secagg.threshold.worker import Worker, assert_available
from tests.threshold_cohort import names, openfhe_python, terms_for

BFV, CKKS = "tbfv-8192-168", "tckks-4096-60"
SERVER = SigningKey.generate()
KEYS = {silo: SigningKey.generate() for silo in names(3)}
PINNED = {silo: key.verify_key for silo, key in KEYS.items()}
ME = names(3)[0]


def judge(
    terms: ThresholdTerms,
    pinned: Mapping[SiloId, str] = PINNED,
    server: str = SERVER.verify_key,
    colluding: int = 0,
) -> None:
    judge_terms(terms, ME, KEYS[ME].verify_key, pinned, server, colluding)


def terms(row: str = BFV, minimum: int = 2) -> ThresholdTerms:
    return terms_for(row, KEYS, SERVER, 100, minimum)


def test_honest_terms_are_admitted() -> None:
    for row in PARAMETERS:
        judge(terms(row))


def test_a_silo_refuses_keys_that_its_roster_does_not_pin() -> None:
    with pytest.raises(WeakTerms, match="is not in the pinned roster under that key"):
        judge(terms(), pinned={**PINNED, names(3)[1]: SigningKey.generate().verify_key})
    with pytest.raises(WeakTerms, match="server_key: aggregator is not in the pinned roster"):
        judge(terms(), server=SigningKey.generate().verify_key)
    with pytest.raises(WeakTerms, match="under its own key"):
        judge_terms(terms(), ME, SERVER.verify_key, PINNED, SERVER.verify_key, 0)


def test_a_minimum_that_leaves_one_honest_silo_alone_is_refused() -> None:
    judge(terms(minimum=3), colluding=1)
    with pytest.raises(WeakTerms, match="minimum: expected at least 4"):
        judge(terms(minimum=3), colluding=2)


def test_a_row_that_is_not_listed_or_of_another_scheme_is_refused() -> None:
    for row in ("bfv-2048-40", "tbfv-1024-168", "", "x" * 40):
        with pytest.raises(Unprocessable, match="expected one of tbfv-8192-168"):
            threshold_parameters_named(row)
    with pytest.raises(Unprocessable, match="expected one of"):
        judge(terms().model_copy(update={"parameters": "tbfv-1024-27"}))
    with pytest.raises(WeakTerms, match=r"tckks-4096-60 is not of scheme threshold_bfv"):
        judge(terms().model_copy(update={"parameters": CKKS}))


def test_terms_that_overflow_a_row_are_refused() -> None:
    wide = VectorTerms(coordinate_bound=1.0, scale_bits=22)
    with pytest.raises(Unprocessable, match="exceeds 4136960, the largest sum of tbfv-8192-168"):
        judge(terms().model_copy(update={"vector": wide}))
    judge(terms("tbfv-8192-200").model_copy(update={"vector": wide}))
    assert_fits(PARAMETERS["tbfv-8192-200"], VectorTerms(coordinate_bound=1.0, scale_bits=24), 80)


def test_cohorts_are_sorted_distinct_and_reach_their_minimum() -> None:
    good = terms().model_dump()
    for change in (
        {"cohort": good["cohort"][::-1]},
        {"cohort": [good["cohort"][0]] * 2},
        {"server_key": good["cohort"][0]["verify_key"]},
        {"minimum": 4},
    ):
        with pytest.raises(ValidationError, match="expected"):
            ThresholdTerms.model_validate({**good, **change})
    with pytest.raises(NotAllowed, match="not in this round's cohort"):
        terms().verify_key_of(PartyId("stranger"))


@pytest.mark.parametrize("row", PARAMETERS)
def test_every_row_keeps_128_bits_and_carries_eighty_silos(row: str) -> None:
    parameters = PARAMETERS[row]
    assert math.log2(math.prod(parameters.moduli)) <= {8192: 218, 4096: 109}[parameters.degree]
    assert all(modulus % (2 * parameters.degree) == 1 for modulus in parameters.moduli)
    assert len(set(parameters.moduli)) == len(parameters.moduli)
    if parameters.scheme == "bfv":
        assert parameters.plain_modulus % (2 * parameters.degree) == 1
    assert parameters.largest_sum(80) > 80
    with pytest.raises(Unprocessable, match="expected 1 to 80 silos"):
        parameters.largest_sum(81)


def test_flooding_that_a_row_could_not_carry_is_refused() -> None:
    """The rule binds: with a larger t eighty silos' flooding would reach the plaintext."""
    tight = dataclasses.replace(PARAMETERS["tbfv-8192-200"], plain_modulus=1 << 34)
    with pytest.raises(Unprocessable, match="80 silos add more noise"):
        tight.largest_sum(80)
    loud = dataclasses.replace(PARAMETERS[CKKS], scaling_bits=32)
    with pytest.raises(Unprocessable, match="80 silos add more noise"):
        loud.largest_sum(80)


def test_the_common_polynomial_is_fixed_by_the_context_and_the_row() -> None:
    one, other = Context(Digest("11" * 32)), Context(Digest("12" * 32))
    for row in PARAMETERS.values():
        a = common_polynomial(row, one)
        assert a.shape == (1, len(row.moduli), row.degree)
        assert np.array_equal(a, common_polynomial(row, one))
        assert np.count_nonzero(a == common_polynomial(row, other)) < 3
        for tower, modulus in enumerate(row.moduli):
            assert a[0, tower].max() < modulus
            assert 0.48 < float(a[0, tower].mean()) / modulus < 0.52
    wide, narrow = (common_polynomial(PARAMETERS[name], one) for name in ("tbfv-8192-200", BFV))
    assert not np.array_equal(wide[0, 1], narrow[0, 1])


@given(
    seed=st.binary(min_size=32, max_size=32), count=st.integers(1, 3), row=st.sampled_from(list(PARAMETERS))
)
def test_polynomials_travel_and_add_as_the_integers_they_are(seed: bytes, count: int, row: str) -> None:
    parameters = PARAMETERS[row]
    made = [
        common_polynomial(parameters, Context(Digest(bytes(x ^ n for x in seed).hex()))) for n in range(count)
    ]
    stacked = np.concatenate(made)
    raw = to_wire(parameters, stacked)
    assert len(raw) == count * parameters.polynomial_bytes
    assert np.array_equal(from_wire("x", parameters, raw, count), stacked)
    total = made[0].copy()
    add(parameters, total, made[-1])
    primes = np.array(parameters.moduli, dtype=object)[:, None]
    assert np.array_equal(total, (made[0].astype(object) + made[-1].astype(object)) % primes)


def test_parts_cover_a_vector_exactly_once() -> None:
    row = PARAMETERS[CKKS]
    for length in (1, 4095, 4096, 32 * 4095, 32 * 4095 + 1, 10**6):
        pieces = list(threshold_stretches(row, length))
        assert len(pieces) == threshold_part_count(row, length)
        assert sum(piece.length for piece in pieces) == length
        assert [piece.start for piece in pieces] == [
            sum(p.length for p in pieces[:n]) for n in range(len(pieces))
        ]
    with pytest.raises(Unprocessable, match="part: expected 0 to 0, got 1"):
        threshold_stretch(row, 1, 5)


def test_without_openfhe_the_mode_is_refused_with_the_reason_and_the_remedy(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o700)
    absent = [(tmp_path / "nothing", "does not start"), (broken, "does not run the worker")]
    if importlib.util.find_spec("openfhe") is None:
        absent.append((Path(sys.executable), "does not import openfhe: ModuleNotFoundError"))
        with pytest.raises(ConfigurationError, match="does not import openfhe"):
            assert_available(None)
        with pytest.raises(ConfigurationError, match="does not import openfhe"):
            Worker(PARAMETERS[BFV])
    for python, reason in absent:
        with pytest.raises(ConfigurationError, match=f"threshold_he.python: .*{reason}.*make threshold-he"):
            assert_available(python)


@pytest.mark.slow
def test_the_interpreter_that_has_openfhe_says_its_version() -> None:
    assert assert_available(openfhe_python()).startswith("1.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"degree": 1024}, "refuses the row's parameters at 128 bits"),
        ({"degree": 4096}, "refuses the row's parameters at 128 bits"),
        ({"moduli": (281474976694273, 1152921504606830593, 1152921504606748671)}, "other moduli"),
    ],
    ids=["degree 1024", "degree 4096", "another prime"],
)
def test_openfhe_itself_refuses_a_weak_or_unknown_row(change: dict[str, object], reason: str) -> None:
    weak = dataclasses.replace(PARAMETERS[BFV], **change)  # type: ignore[arg-type]
    with pytest.raises(WorkerFailed, match=reason):
        Worker(weak, openfhe_python()).close()
