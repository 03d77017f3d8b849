"""What a silo does in a round, and what the server does with the mean: the training half of a job's terms.

Fields that came after the first release are not spelled at their defaults, so that every signature over older
terms holds. Knows no differential privacy: ``check_training`` is told whether a job has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real
from privacy.model_terms import Count
from privacy.personal_terms import PersonalTerms, check_personal
from privacy.vector_terms import (
    CURVATURE,
    HESSIAN,
    LEAST_REAL,
    MOST_COORDINATES,
    FurtherVector,
    PositiveReal,
)

StepSize = Annotated[Real, Field(ge=LEAST_REAL, le=1e6)]
"""Far above any useful one, and within float32: a larger one would end a silo's process, not its round."""
AlgorithmName = Literal[
    "fedavg", "qfedavg", "mifa", "newton", "dp_fedavg", "dp_fedsgd", "dp_statistics", "dp_evaluation"
]
"""What silos compute. Without DP: descent, descent with a fair step, with absent silos' last updates, a step
of Newton; with it local DP-SGD, one private step, statistics, metrics of a model."""
WITHOUT_DP: tuple[AlgorithmName, ...] = ("fedavg", "qfedavg", "mifa", "newton")
QUERIES: tuple[AlgorithmName, ...] = ("dp_statistics", "dp_evaluation")
"""Algorithms that train nothing: ``dp_`` and the kind of the query."""
ONE_MECHANISM: tuple[AlgorithmName, ...] = ("dp_fedsgd", *QUERIES)
"""Algorithms whose round is one Gaussian mechanism on the sum of all silos: only there noise is shared."""
WeightName = Literal["uniform", "examples", "agnostic", "fair", "sqrt_n_over_divergence", "quality"]
OWN_WEIGHTS: tuple[WeightName, ...] = ("agnostic", "fair", "sqrt_n_over_divergence", "quality")
"""Weights that a silo computes from its records and its training; nobody else sees more than their sum."""


def left_out_at(default: Any) -> Any:
    """A field that is not spelled while it has its default."""
    return Field(default=default, exclude_if=lambda value: value == default)


class ServerTerms(Frozen):
    """What the server makes of the mean update, beyond a learning rate: post-processing, free of charge."""

    optimizer: Literal["sgd", "adam", "yogi"] = "sgd"
    momentum: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    """β of FedAvgM, with ``sgd``; ``beta_1`` is that of the others."""
    beta_1: Annotated[Real, Field(ge=0, lt=1)] = 0.9
    beta_2: Annotated[Real, Field(ge=0, lt=1)] = 0.99
    tau: PositiveReal = 1e-3
    """Adaptivity of ``adam`` and ``yogi`` (Reddi et al. 2021)."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    tail_rounds: Annotated[int, Field(ge=0)] = 0
    """The final model is the mean of those after the last so many rounds."""
    ema_decay: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    """The final model is an exponential moving average with this decay."""
    ridge: Annotated[Real, Field(ge=0, le=1e6)] = left_out_at(0.0)
    """Of ``newton``: added to the Hessian's diagonal, so that the step exists and stays short."""
    silos: Annotated[int, Field(ge=0, le=1000)] = left_out_at(0)
    """Of ``mifa``: how many silos the kept updates are averaged over, those not heard yet as zero."""

    @model_validator(mode="after")
    def _nothing_is_said_that_has_no_effect(self) -> Self:
        if self.optimizer != "sgd" and self.momentum > 0:
            raise ValueError(f"momentum: expected 0 with {self.optimizer}, whose momentum is beta_1")
        if self.tail_rounds > 0 and self.ema_decay > 0:
            raise ValueError("ema_decay: expected 0 with tail_rounds; the final model is one average")
        return self

    @property
    def reads_off_the_mean(self) -> bool:
        """Whether silos can tell the mean update from two models in a row: plain steps at one rate."""
        plain = self.optimizer == "sgd" and self.momentum == 0 and self.schedule == "constant"
        return plain and self.tail_rounds == 0 and self.ema_decay == 0


class LocalTerms(Frozen):
    """What a silo's descent is beside plain steps. At its default a field is left out and changes nothing.

    ``gradient_clip`` is none in signed terms that do not say it; a job file without DP has it written out.
    """

    gradient_clip: PositiveReal | None = left_out_at(None)
    """Largest L2 norm of a step's gradient, scaled down to it; without DP only."""
    batch_size: Count | None = left_out_at(None)
    """Records a step, drawn afresh by the silo; all where it is left out. Without DP only."""
    proximal_mu: Annotated[Real, Field(ge=0, le=1e6)] = left_out_at(0.0)
    """FedProx: after each step a pull toward the round's model, w ← w − learning_rate · μ · (w − x)."""
    control: Literal["none", "zero", "warm"] = left_out_at("none")
    """SCAFFOLD's corrections, kept at the silo: from zero, or from the gradient at the first model."""
    projection: bool = left_out_at(False)
    """An update against the last global one loses its part along it."""
    gamma: Annotated[Real, Field(ge=0, le=1e3)] = left_out_at(0.0)
    """Of weights ``agnostic``: ŵ = exp(gamma · (own loss − loss_cap)), the loss averaged over rounds."""
    q: Annotated[Real, Field(ge=0, le=10)] = left_out_at(0.0)
    """Of ``qfedavg``: ŵ = (own loss / loss_cap)^q; towards 0 it is FedAvg."""
    loss_cap: PositiveReal | None = left_out_at(None)
    """Of weights ``agnostic`` and ``fair``: a larger loss counts as this one, so that ŵ is at most 1."""


class TrainingTerms(Frozen):
    """What a silo does in a round and what the server does with the mean."""

    algorithm: AlgorithmName
    local_steps: Count
    learning_rate: StepSize
    server_learning_rate: StepSize
    server: ServerTerms = ServerTerms()
    local: LocalTerms = left_out_at(LocalTerms())
    weights: WeightName = "uniform"
    """``uniform`` reveals nothing; ``examples`` opens the total record count, the others a sum of what silos
    compute from their records, so a DP job refuses them. ``fair`` goes with ``qfedavg``."""
    weight_cap: Count = 1
    """ŵ = min(records, weight_cap) / weight_cap when weights are ``examples``; its root in the others."""
    holdout: Annotated[Real, Field(ge=0, le=0.5)] = left_out_at(0.0)
    """Share of each silo's patients that no round trains on, chosen by a digest of the patient's id alone."""
    personal: PersonalTerms | None = left_out_at(None)
    """What of the model is each silo's own while the job trains."""


def check_training(training: TrainingTerms, private: bool) -> None:
    """Raises ValueError, saying why, unless these terms go together, with DP (``private``) or without.

    What a silo may do under DP is what reads its own noised steps and public models alone: it is
    post-processing. Whatever reads records once more would have to be clipped, noised and charged.
    """
    algorithm, local = training.algorithm, training.local
    if (algorithm in WITHOUT_DP) == private:
        without = ", ".join(WITHOUT_DP)
        raise ValueError(f"dp: expected none with {without}, and terms with dp_*, got {algorithm}")
    if algorithm == "dp_fedsgd" and (training.local_steps, training.weights) != (1, "uniform"):
        raise ValueError("training: expected local_steps 1 and uniform weights with dp_fedsgd")
    if private:
        _check_private(training)
    if (training.weights == "agnostic") != (local.gamma > 0):
        raise ValueError("training.local.gamma: expected more than 0 with weights agnostic, and only there")
    fair = (algorithm == "qfedavg", training.weights == "fair", local.q > 0)
    if len(set(fair)) > 1:
        raise ValueError("training: expected weights fair and local.q above 0 with qfedavg, and only there")
    if (local.loss_cap is not None) != (training.weights in ("agnostic", "fair")):
        raise ValueError("training.local.loss_cap: expected it with weights agnostic or fair, and only there")
    if (algorithm == "mifa") != (training.server.silos > 0):
        raise ValueError("training.server.silos: expected the number of silos with mifa, and only there")
    if training.server.ridge > 0 and algorithm != "newton":
        raise ValueError("training.server.ridge: expected it with newton only")
    _check_control(training)
    _check_steps(training)


def check_own_parts(training: TrainingTerms, private: bool, tensors: Sequence[str]) -> None:
    """Raises ValueError, saying why, unless these terms allow own parts of the model's ``tensors``."""
    server, local = training.server, training.local
    check_personal(
        training.personal,
        private,
        tensors,
        plain=(training.algorithm, local.control, local.projection) == ("fedavg", "none", False)
        and training.weights not in OWN_WEIGHTS,
        still=server.optimizer == "sgd" and server.momentum == 0,
    )


def check_vectors(training: TrainingTerms, parameters: int, further: Sequence[FurtherVector]) -> None:
    """Raises ValueError unless the vectors that the server's step reads are there, and no others of these."""
    needed = {
        "qfedavg": (CURVATURE, 1, "sum"),
        "newton": (HESSIAN, parameters * (parameters + 1) // 2, "mean"),
    }
    asked = needed.get(training.algorithm)
    if asked is not None and asked[1] > MOST_COORDINATES:
        raise ValueError(
            f"training.algorithm: expected a model of at most 44 parameters with {training.algorithm}, whose "
            f"{HESSIAN} is published, got {parameters}"
        )
    given = [
        (vector.name, vector.coordinates, vector.opens_to)
        for vector in further
        if vector.name in (CURVATURE, HESSIAN)
    ]
    if given != ([] if asked is None else [asked]):
        raise ValueError(
            f"further: expected {asked or 'no such vector'} with {training.algorithm}, got {given}"
        )


def _check_private(training: TrainingTerms) -> None:
    local = training.local
    if training.weights in OWN_WEIGHTS:
        raise ValueError(
            f"training.weights: expected uniform with dp, got {training.weights}: they are computed from "
            "records, and no noise covers their sum"
        )
    if local.gradient_clip is not None:
        raise ValueError(
            "training.local.gradient_clip: expected none with dp, where each unit's gradient is clipped to "
            "dp.clip_l2; leave it out"
        )
    if local.batch_size is not None:
        raise ValueError(
            "training.local.batch_size: expected none with dp: a batch is a Poisson sample there, by "
            "dp.sample_rate, or its noise would be charged wrongly"
        )
    if training.algorithm != "dp_fedavg" and local != LocalTerms():
        raise ValueError(
            f"training.local: expected nothing with {training.algorithm}: its one step starts from the "
            "model that came, where a pull is zero and corrections cancel in the sum; use dp_fedavg"
        )


def _check_control(training: TrainingTerms) -> None:
    """SCAFFOLD's one-sum form reads the mean update off two models in a row."""
    local = training.local
    if local.control == "none":
        return
    if training.algorithm not in ("fedavg", "dp_fedavg"):
        raise ValueError(f"training.local.control: expected none with {training.algorithm}")
    if local.control == "warm" and training.algorithm == "dp_fedavg":
        raise ValueError(
            "training.local.control: expected zero with dp: a warm start reads the gradient at the first "
            "model, which nothing clips, noises or charges"
        )
    if not training.server.reads_off_the_mean:
        raise ValueError(
            "training.server: expected plain steps (sgd, no momentum, no schedule, no averages) with "
            "local.control: silos read the mean update off two models in a row"
        )
    if training.weights in OWN_WEIGHTS or local.projection or local.proximal_mu > 0:
        raise ValueError(
            "training.local.control: expected no weights that move, no projection and no proximal_mu beside "
            "it: corrections sum to zero only under the weights that they were made with"
        )


def _check_steps(training: TrainingTerms) -> None:
    local = training.local
    if training.algorithm == "newton" and (
        training.local_steps != 1 or local != LocalTerms() or training.weights in OWN_WEIGHTS
    ):
        raise ValueError(
            "training: expected local_steps 1, nothing of local, and uniform or examples weights with newton"
        )
    if training.algorithm == "newton" and training.server.optimizer != "sgd":
        raise ValueError("training.server.optimizer: expected sgd with newton, whose step has its own scale")
    if training.algorithm == "mifa" and (training.weights != "uniform" or local.projection):
        raise ValueError("training: expected uniform weights and no projection with mifa")
    if training.algorithm == "qfedavg" and local.projection:
        raise ValueError("training.local.projection: expected none with qfedavg, which divides by its norm")
