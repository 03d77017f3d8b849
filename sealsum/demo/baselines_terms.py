"""What the comparison is asked and what it answers, as the two JSON files between it and the demo."""

from __future__ import annotations

from privacy.canonical import Frozen
from privacy.plan import DpTerms, ModelTerms, TrainingTerms, VectorTerms
from privacy.schema import DataSchema
from sealsum.demo.scoring import HospitalFiles


class BaselineRequest(Frozen):
    """The federated job's own terms, so that the comparison is of like with like."""

    data: DataSchema
    model: ModelTerms
    training: TrainingTerms
    dp: DpTerms
    vector: VectorTerms
    rounds: int
    seed: int
    hospitals: dict[str, HospitalFiles]


class BaselineAnswer(Frozen):
    """AUC by hospital name: on its own held-out third, and on everybody's."""

    local_only: dict[str, float]
    local_only_on_all: dict[str, float]
    pooled: dict[str, float]
    pooled_on_all: float
    weight_decay: float
    """What cross-validation on the pooled training rows chose for the pooled model."""
