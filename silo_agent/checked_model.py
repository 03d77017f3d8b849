"""A model whose bytes this silo has hashed itself, and found to be the one that was signed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.ids import Digest
from privacy.plan import ModelTerms
from privacy.query_terms import EvaluationTerms
from privacy.update import model_digest, model_vector


@dataclass(frozen=True)
class CheckedModel:
    """Evidence that the bytes received are the model of that digest."""

    digest: Digest
    vector: NDArray[np.float32] = field(repr=False)


def check_bytes(terms: ModelTerms, expected: Digest, raw: bytes, field_name: str) -> CheckedModel:
    """Hash what came under the digest that a plan or a query names in ``field_name``.

    Raises:
        Unprocessable: another model, another length, or numbers that are not finite.
    """
    digest = model_digest(terms, [raw])
    if digest != expected:
        raise Unprocessable(f"{field_name}: expected {expected[:16]}…, got {digest[:16]}…")
    return CheckedModel(digest, model_vector(terms, raw))


def check_evaluated(query: EvaluationTerms, raw: bytes) -> CheckedModel:
    """The model that an evaluation is of: its metrics are released under the digest that was signed.

    Raises:
        Unprocessable: as ``check_bytes``.
    """
    return check_bytes(query.model, query.weights, raw, "query.weights")
