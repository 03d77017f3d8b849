"""What carries threshold encryption through processes: terms from a plan, rows by scheme, one kept worker."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import VectorTerms
from privacy.secagg.pairwise.faults import WeakTerms
from privacy.secagg.parts import PART_ELEMENTS, recut
from privacy.secagg.rows import row_for
from privacy.secagg.threshold.faults import WorkerFailed
from privacy.secagg.threshold.kept import OpenFhe
from privacy.secagg.threshold.parameters import PARAMETERS, threshold_parameters_named
from privacy.secagg.threshold.polynomials import common_polynomial
from privacy.secagg.threshold.terms import terms_of
from tests.federation import AGGREGATOR, Federation, demo_policy_text
from tests.threshold_cohort import openfhe_python


def federation() -> Federation:
    return Federation(servers=0, policy_text=demo_policy_text("threshold_bfv"))


def test_terms_follow_from_the_plan_and_the_roster_alone() -> None:
    made = federation()
    job = made.job_spec(scheme="threshold_bfv")
    plan = made.plan(job, he="tbfv-8192-200", servers=())
    key = made.key("aggregator").verify_key
    terms = terms_of(plan, AGGREGATOR, key)
    assert (terms.context, terms.parameters, terms.minimum) == (plan.context, "tbfv-8192-200", 3)
    assert terms.vector_length == plan.vector_length
    assert terms_of(plan, AGGREGATOR, key).digest == terms.digest
    with pytest.raises(
        WeakTerms, match=r"plan\.scheme: expected threshold_bfv or threshold_ckks, got pairwise"
    ):
        terms_of(made.plan(made.job_spec(scheme="pairwise"), threshold=3, servers=()), AGGREGATOR, key)
    with pytest.raises(Unprocessable, match="expected one of tbfv-8192-168"):
        terms_of(made.plan(job, he="bfv-2048-40", servers=()), AGGREGATOR, key)
    with pytest.raises(WeakTerms, match="minimum: expected at most 4"):
        terms_of(made.plan(job, he="tbfv-8192-200", servers=(), min_survivors=5), AGGREGATOR, key)


def test_a_plan_of_a_joint_key_has_no_threshold() -> None:
    """All holders or nobody: a number there would decide nothing."""
    made = federation()
    job = made.job_spec(scheme="threshold_bfv")
    with pytest.raises(ValueError, match="threshold: expected it with pairwise and with no other scheme"):
        made.plan(job, he="tbfv-8192-200", servers=(), threshold=3)


@pytest.mark.parametrize(
    ("scheme", "bits", "row"),
    [
        ("additive", 20, None),
        ("pairwise", 20, None),
        ("bfv", 16, "bfv-2048-40"),
        ("threshold_bfv", 18, "tbfv-8192-168"),
        ("threshold_bfv", 24, "tbfv-8192-200"),
        ("threshold_ckks", 17, "tckks-4096-60"),
    ],
)
def test_the_shortest_row_that_carries_the_sum_is_the_plans(scheme: str, bits: int, row: str | None) -> None:
    terms = VectorTerms(coordinate_bound=2.0, scale_bits=bits)
    assert row_for(scheme, terms, 4) == row  # type: ignore[arg-type]  # a scheme's name


@pytest.mark.parametrize("scheme", ["threshold_bfv", "threshold_ckks"])
def test_no_row_for_a_sum_that_none_carries_and_none_for_more_silos_than_one_answer_holds(
    scheme: str,
) -> None:
    wide = VectorTerms(coordinate_bound=8.0, scale_bits=30)
    with pytest.raises(Unprocessable, match="exceeds the largest sum of every row"):
        row_for(scheme, wide, 4)  # type: ignore[arg-type]  # a scheme's name
    with pytest.raises(Unprocessable, match="expected 1 to 80 silos, got 81"):
        row_for(scheme, VectorTerms(coordinate_bound=1.0, scale_bits=1), 81)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [[3], [PART_ELEMENTS], [PART_ELEMENTS - 1, 2], [1, PART_ELEMENTS, 4, 1]])
def test_chunks_of_any_length_are_cut_into_the_parts_of_a_vector(sizes: list[int]) -> None:
    whole = np.arange(sum(sizes), dtype=np.uint32)
    chunks = np.split(whole, np.cumsum(sizes)[:-1])
    cut = list(recut(iter(chunks), len(whole)))
    assert [piece.start for piece, _ in cut] == [PART_ELEMENTS * n for n in range(len(cut))]
    assert np.array_equal(np.concatenate([part for _, part in cut]), whole)
    assert all(len(part) == piece.length for piece, part in cut)


@pytest.mark.slow
def test_a_worker_is_kept_between_rounds_and_replaced_when_it_died_or_another_row_is_asked_for() -> None:
    bfv, ckks = (threshold_parameters_named(name) for name in ("tbfv-8192-168", "tckks-4096-60"))
    openfhe = OpenFhe(openfhe_python())
    try:
        with openfhe.worker(ckks) as worker:
            first = worker.process_id
        with openfhe.worker(ckks) as worker:
            assert worker.process_id == first
        with openfhe.worker(bfv) as worker:
            second = worker.process_id
            assert second != first
        os.kill(second, signal.SIGKILL)
        os.waitid(os.P_PID, second, os.WEXITED | os.WNOWAIT)
        with openfhe.worker(bfv) as worker:
            third = worker.process_id
            assert third != second
        common = common_polynomial(bfv, "ab" * 32)  # type: ignore[arg-type]  # a context

        def killed_at_work() -> None:
            with openfhe.worker(bfv) as worker:
                os.kill(third, signal.SIGKILL)
                worker.keygen(common)

        with pytest.raises(WorkerFailed):
            killed_at_work()
        with openfhe.worker(bfv) as worker:
            assert worker.keygen(common)[0].shape == (1, len(bfv.moduli), bfv.degree)
    finally:
        openfhe.close()


def test_nothing_is_started_before_it_is_asked_for_and_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    openfhe = OpenFhe(tmp_path / "nowhere")
    openfhe.close()
    with (
        pytest.raises(ConfigurationError, match=r"threshold_he\.python: .*nowhere does not start"),
        openfhe.worker(PARAMETERS["tckks-4096-60"]),
    ):
        raise AssertionError("it started")
