"""The vectors that a job's algorithm sums beside the model's, on the finest grid that their sums fit."""

from __future__ import annotations

from privacy.errors import ConfigurationError
from privacy.plan import ModelTerms, SchemeName, TrainingTerms
from privacy.vector_terms import CONTROL, CURVATURE, HESSIAN, MASK, MOST_COORDINATES, FurtherVector
from sealsum.job_grid import finest_vector


def algorithm_further(
    training: TrainingTerms, model: ModelTerms, scheme: SchemeName, silos: int
) -> tuple[FurtherVector, ...]:
    """None for most algorithms.

    Raises:
        ConfigurationError: the sums of so many silos do not fit, or the model is too large for ``newton``.
    """
    if training.local.control_sums == 2:
        if model.parameters > MOST_COORDINATES:
            raise ConfigurationError(
                f"training.local.control_sums: expected 1, or a model of at most {MOST_COORDINATES} "
                f"parameters, whose second sum is published, got {model.parameters}"
            )
        terms = finest_vector(scheme, silos)
        return (FurtherVector(name=CONTROL, coordinates=model.parameters, terms=terms),)
    if training.algorithm == "qfedavg":
        terms = finest_vector(scheme, silos)
        return (FurtherVector(name=CURVATURE, coordinates=1, terms=terms, opens_to="sum"),)
    if training.algorithm == "newton":
        count = model.parameters * (model.parameters + 1) // 2
        if count > MOST_COORDINATES:
            raise ConfigurationError(
                "training.algorithm: expected a model of at most 44 parameters with newton, "
                f"got {model.parameters}"
            )
        return (FurtherVector(name=HESSIAN, coordinates=count, terms=finest_vector(scheme, silos)),)
    if training.algorithm == "sparse_masks":
        if model.parameters > MOST_COORDINATES:
            raise ConfigurationError(
                f"training.algorithm: expected a model of at most {MOST_COORDINATES} parameters with "
                f"sparse_masks, whose counts are published, got {model.parameters}"
            )
        terms = finest_vector(scheme, silos)
        return (FurtherVector(name=MASK, coordinates=model.parameters, terms=terms, opens_to="sum"),)
    return ()


def with_silos(training: TrainingTerms, silos: int) -> TrainingTerms:
    """The terms with the number of silos that ``mifa`` averages over."""
    if training.algorithm != "mifa" or training.server.silos > 0:
        return training
    return training.model_copy(update={"server": training.server.model_copy(update={"silos": silos})})


def with_clip(training: TrainingTerms, most: float) -> TrainingTerms:
    """The terms with each coordinate of an update brought within ±most."""
    return training.model_copy(update={"local": training.local.model_copy(update={"coordinate_clip": most})})
