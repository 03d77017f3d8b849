"""What a silo does in a round, and what the server does with the mean: the training half of a job's terms.

Fields that came after the first release are not spelled at their defaults, so that every signature over older
terms holds. What goes together is judged by ``privacy.training_checks``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real
from privacy.model_terms import Count
from privacy.personal_terms import PersonalTerms
from privacy.sent_terms import LayerNames, SparseTerms
from privacy.vector_terms import LEAST_REAL, PositiveReal

StepSize = Annotated[Real, Field(ge=LEAST_REAL, le=1e6)]
"""Far above any useful one, and within float32: a larger one would end a silo's process, not its round."""
AlgorithmName = Literal[
    "fedavg",
    "qfedavg",
    "mifa",
    "newton",
    "sparse_masks",
    "dp_fedavg",
    "dp_fedsgd",
    "dp_statistics",
    "dp_evaluation",
]
"""What silos compute. Without DP: descent, descent with a fair step, with absent silos' last updates, a step
of Newton, masked updates; with it local DP-SGD, one private step, statistics, metrics of a model."""
WITHOUT_DP: tuple[AlgorithmName, ...] = ("fedavg", "qfedavg", "mifa", "newton", "sparse_masks")
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
    mask_minimum: Annotated[int, Field(ge=0, le=1000)] = left_out_at(0)
    """Of ``sparse_masks``: a coordinate that fewer silos sent than this stays where it is."""

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
    control_sums: Annotated[int, Field(ge=1, le=2)] = left_out_at(1)
    """1: silos read the mean update off two models in a row. 2: its own vector is summed beside the update,
    for server steps that hide it."""
    reuse_below: Annotated[Real, Field(ge=0, le=1)] = left_out_at(0.0)
    """A silo whose gradient has changed by less than this part of its length sends its last update again,
    compensated for the change, and takes no other step."""
    reuse_rounds: Annotated[int, Field(ge=0, le=100)] = left_out_at(0)
    """How many rounds in a row, at most."""
    coordinate_clip: PositiveReal | None = left_out_at(None)
    """Each coordinate of an update is brought within it, for grids too coarse for rare large ones; of what a
    silo would send, noise included, so that under DP it is post-processing."""
    projection: bool = left_out_at(False)
    """An update against the last global one loses its part along it."""
    gamma: Annotated[Real, Field(ge=0, le=1e3)] = left_out_at(0.0)
    """Of weights ``agnostic``: ŵ = exp(gamma · (own loss − loss_cap)), the loss averaged over rounds."""
    q: Annotated[Real, Field(ge=0, le=10)] = left_out_at(0.0)
    """Of ``qfedavg``: ŵ = (own loss / loss_cap)^q; towards 0 it is FedAvg."""
    mask_share: Annotated[Real, Field(ge=0, le=1)] = left_out_at(0.0)
    """Of ``sparse_masks``: the part of its coordinates that a silo sends, those that moved most."""
    loss_cap: PositiveReal | None = left_out_at(None)
    """Of weights ``agnostic`` and ``fair``: a larger loss counts as this one, so that ŵ is at most 1."""


class Phase(Frozen):
    """A stretch of a job's rounds, up to and with ``until``, with terms of its own."""

    until: Count
    local_steps: Count | None = left_out_at(None)
    """Without DP only: there each round is charged alike."""
    silos_share: Annotated[Real, Field(gt=0, le=1)] = left_out_at(1.0)
    """How many of the silos that are here are invited; never fewer than job and threat model ask for."""
    layers: LayerNames = ()
    """The only ones that move and are sent; all where none is named."""
    silos: Annotated[int, Field(ge=2, le=1000)] | None = left_out_at(None)
    """So many of them instead."""

    @model_validator(mode="after")
    def _one_size_of_cohort(self) -> Self:
        if self.silos is not None and self.silos_share != 1.0:
            raise ValueError("phases: expected silos or silos_share, got both")
        return self

    @property
    def draws(self) -> bool:
        """Whether a part of the silos that are here is drawn."""
        return self.silos is not None or self.silos_share < 1.0

    def wanted(self, here: int) -> int:
        """How many of so many silos it asks for."""
        return math.ceil(self.silos_share * here) if self.silos is None else min(self.silos, here)


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
    sparse: SparseTerms | None = left_out_at(None)
    """A part of the coordinates in each round, in the place of all."""
    phases: Annotated[tuple[Phase, ...], Field(max_length=20)] = left_out_at(())
    """In order; after the last one the terms are as they stand here."""

    @model_validator(mode="after")
    def _phases_are_in_order(self) -> Self:
        ends = [phase.until for phase in self.phases]
        if ends != sorted(set(ends)):
            raise ValueError(f"phases: expected each to end after the one before, got {ends}")
        return self

    def phase(self, number: int) -> Phase | None:
        """What round ``number`` belongs to; ``None`` after the last phase."""
        return next((phase for phase in self.phases if number <= phase.until), None)

    def at(self, number: int) -> TrainingTerms:
        """The terms as they are in round ``number``."""
        phase = self.phase(number)
        if phase is None or phase.local_steps is None:
            return self
        return self.model_copy(update={"local_steps": phase.local_steps})

    @property
    def sums_plain_means(self) -> bool:
        """Whether the update is a mean of equal weights that silos round: what a coarse grid is good for."""
        return self.algorithm in ("fedavg", "dp_fedavg") and self.weights == "uniform"
