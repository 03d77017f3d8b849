"""AUC against its definition: every pair of one sick and one healthy patient, ties counted half."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import SealsumError
from sealsum.demo.auc import auc

PATIENTS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({sick for _, sick in rows}) == 2
)


@given(PATIENTS)
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, bool]]) -> None:
    sick = [score for score, ill in rows if ill]
    healthy = [score for score, ill in rows if not ill]
    pairs = [(a > b) + 0.5 * (a == b) for a in sick for b in healthy]
    scores = np.array([score for score, _ in rows], dtype=np.float32)
    labels = np.array([ill for _, ill in rows], dtype=np.float32)
    assert auc(scores, labels) == pytest.approx(sum(pairs) / len(pairs))


def test_auc_of_one_class_alone_does_not_exist() -> None:
    with pytest.raises(SealsumError, match="both classes"):
        auc(np.array([0.1, 0.2]), np.array([1.0, 1.0]))
