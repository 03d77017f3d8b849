"""The schemes that the suites run over: one line a scheme. A scheme that is not here is not conformant."""

from __future__ import annotations

from functools import partial

from tests.conformance.additive_scheme import AdditiveRound
from tests.conformance.he_scheme import HeRound
from tests.conformance.pairwise_scheme import PairwiseRound
from tests.conformance.scheme import Maker
from tests.conformance.validity_scheme import ValidityRound

SCHEMES: dict[str, Maker] = {
    "additive": AdditiveRound,
    "additive with validity": ValidityRound,
    "pairwise": PairwiseRound,
    "bfv": partial(HeRound, "bfv-2048-40"),
    "bfv wide": partial(HeRound, "bfv-2048-54"),
    "ckks": partial(HeRound, "ckks-4096-36"),
}
