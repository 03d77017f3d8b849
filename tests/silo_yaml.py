"""What silos of tests register, and the one explicit rule by which they approve the tests' jobs."""

from __future__ import annotations

from typing import Any

from privacy.plan import AlgorithmName

ALGORITHMS: tuple[AlgorithmName, ...] = (
    "fedavg",
    "dp_fedavg",
    "dp_fedsgd",
    "dp_statistics",
    "dp_evaluation",
)
LEGAL_BASIS = "none: made-up records of a test"


def registered(**changes: Any) -> dict[str, Any]:
    """The dataset of ``Federation.job_spec`` in ``silo.yaml``."""
    dataset = {"path": "cardio.csv", "purpose": "test", "patient_id": "patient", "legal_basis": LEGAL_BASIS}
    return {**dataset, **changes}


def approving(*datasets: str) -> dict[str, Any]:
    """``approval_rules`` that let the researcher's jobs on these datasets run."""
    rule = {"researchers": ["researcher"], "datasets": list(datasets), "algorithms": list(ALGORITHMS)}
    return {"tests": rule}
