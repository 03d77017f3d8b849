"""The schemes that the suites run over: one line a scheme. A scheme that is not here is not conformant."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conformance.additive_scheme import AdditiveRound
from tests.conformance.he_scheme import HeRound
from tests.conformance.pairwise_scheme import PairwiseRound
from tests.conformance.scheme import Maker
from tests.conformance.threshold_scheme import ThresholdRound
from tests.conformance.validity_scheme import ValidityRound

SCHEMES: dict[str, Maker] = {
    "additive": AdditiveRound,
    "additive with validity": ValidityRound,
    "pairwise": PairwiseRound,
    "bfv": partial(HeRound, "bfv-2048-40"),
    "bfv wide": partial(HeRound, "bfv-2048-54"),
    "ckks": partial(HeRound, "ckks-4096-36"),
    "threshold_bfv": partial(ThresholdRound, "tbfv-8192-168"),
    "threshold_ckks": partial(ThresholdRound, "tckks-4096-60"),
}
THRESHOLD = ("threshold_bfv", "threshold_ckks")
WITHOUT_OPENFHE = pytest.mark.parametrize("name", [name for name in SCHEMES if name not in THRESHOLD])
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in THRESHOLD else []) for name in SCHEMES]
)
"""Runs a test over all of them: what needs OpenFHE among the slow ones, skipped by name without it."""
