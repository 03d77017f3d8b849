"""query.yaml: what a researcher asks of a data set or a model, and how it becomes the job that is signed.

    job: heart-statistics           purpose: plan a study of heart disease    dataset: cardio
    data:  {features: [{kind: numeric, column: age, low: 20, high: 90, impute: 55}, …],
            label: {column: num, threshold: 0}, patient_id: patient}
    query:
      kind: statistics
      statistics:
        - {kind: count}
        - {kind: variance, column: age}
        - {kind: histogram, column: age, cuts: [40, 50, 60, 70], share: 2}
    dp: {unit: patient, epsilon: 0.5, delta: 1e-5}
    patients_at_most: 20000         min_silos: 3                              scheme: additive

An evaluation has ``query: {kind: evaluation, adapter: mlp, hidden: [16], metrics: [{kind: auc}, …]}``; the
model itself is given to the command. ``patients_at_most`` is public: a silo that had more would refuse.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from privacy.canonical import Frozen, Real
from privacy.dp.calibration import calibrated_noise
from privacy.dp.integer_noise import LEAST_DEVIATION, MOST_DEVIATION, MOST_MARGIN, TAIL, integer_mechanism
from privacy.errors import ConfigurationError, Unprocessable
from privacy.ids import JobName, Name
from privacy.plan import Count, DpTerms, JobSpec, ModelTerms, SchemeName, TrainingTerms, VectorTerms
from privacy.query_blocks import answer_terms
from privacy.query_terms import EvaluationTerms, Metric, QueryTerms, StatisticsTerms
from privacy.roster import Charter
from privacy.schema import DataSchema
from privacy.secagg.encoding import assert_fits
from privacy.secagg.rows import row_for
from privacy.update import model_bytes, model_digest
from sealsum.yaml_file import faults_of, read_yaml_file
from silo_agent.models.layouts import model_terms

FINEST_BITS = 20


class EvaluationRequest(Frozen):
    """Which metrics of which kind of built-in model."""

    kind: Literal["evaluation"] = "evaluation"
    adapter: str
    hidden: tuple[Count, ...] = ()
    standardise_weights: bool = False
    metrics: tuple[Metric, ...]


class NoiseRequest(Frozen):
    """How private the answer is to be: by ε, or by the noise itself."""

    unit: Literal["patient", "record"]
    delta: Annotated[Real, Field(gt=0, lt=1)]
    epsilon: Annotated[Real, Field(gt=0)] | None = None
    noise_multiplier: Annotated[Real, Field(gt=0)] | None = None
    clip_l2: Annotated[Real, Field(gt=0)] = 1.0
    """Norm of one patient's vector; it changes the grid, not the answers' errors."""
    model: Literal["local", "distributed"] = "local"
    noise_shares: Count | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("expected epsilon or noise_multiplier, one of them")
        return self

    def terms(self) -> DpTerms:
        """As the job carries them; for an ε, the least noise that keeps it.

        Raises:
            ConfigurationError: no noise does, or the noise is shared among an impossible number.
        """
        noise = self.noise_multiplier
        if noise is None:
            target = self.epsilon or 0.0
            noise = calibrated_noise(target, self.delta, 1.0, 1, "add_remove").noise_multiplier
        try:
            return DpTerms(
                model=self.model,
                noise_shares=self.noise_shares,
                unit=self.unit,
                sample_rate=1.0,
                noise_multiplier=noise,
                clip_l2=self.clip_l2,
                normaliser=1.0,
                delta=self.delta,
            )
        except ValidationError as error:
            raise ConfigurationError(f"dp:\n{faults_of(error)}") from error


class QueryFile(Frozen):
    """The fields of query.yaml."""

    job: JobName
    purpose: Annotated[str, Field(min_length=1, max_length=500)]
    dataset: Name
    data: DataSchema
    query: Annotated[StatisticsTerms | EvaluationRequest, Field(discriminator="kind")]
    dp: NoiseRequest
    patients_at_most: Count
    """Public bound on the patients of any one silo."""
    scheme: SchemeName = "additive"
    min_silos: Annotated[int, Field(ge=2)]
    round_deadline_s: Annotated[int, Field(ge=1, le=86400)] = 120

    @model_validator(mode="after")
    def _silos_hold_what_is_said_of_them(self) -> Self:
        asked = self.query.statistics if isinstance(self.query, StatisticsTerms) else self.query.metrics
        for one in asked:
            named = {"least": getattr(one, "least", 0), "most": getattr(one, "most", 0)}
            for field, value in named.items():
                if value > self.patients_at_most:
                    raise ValueError(
                        f"query: expected {field} of {one.kind} of at most patients_at_most "
                        f"({self.patients_at_most}), got {value}"
                    )
        return self

    def evaluated(self) -> ModelTerms | None:
        """The terms of the model that is to be evaluated; ``None`` for statistics.

        Raises:
            ConfigurationError: the sizes do not fit the adapter.
        """
        if isinstance(self.query, StatisticsTerms):
            return None
        asked, outputs = self.query, self.data.label.outputs
        return model_terms(asked.adapter, self.data.width, asked.hidden, outputs, asked.standardise_weights)

    def terms(self, weights: NDArray[np.float32] | None) -> QueryTerms:
        """The query as the job carries it; ``weights``, float32[d], of the model that is evaluated.

        Raises:
            ConfigurationError: a model is missing, or given for statistics; or the query is not valid.
        """
        model = self.evaluated()
        if isinstance(self.query, StatisticsTerms):
            if weights is not None:
                raise ConfigurationError("query: expected no model for statistics")
            return self.query
        if weights is None or model is None:
            raise ConfigurationError("query: expected the model that is to be evaluated")
        try:
            return EvaluationTerms(
                model=model, weights=model_digest(model, [model_bytes(weights)]), metrics=self.query.metrics
            )
        except ValidationError as error:
            raise ConfigurationError(f"query: {error.errors()[0]['msg']}") from error

    def spec(self, charter: Charter, weights: NDArray[np.float32] | None = None) -> JobSpec:
        """The job, bound to the charter and to the very query.

        Raises:
            ConfigurationError: as ``terms``; no grid of the ring carries such sums; or fields that are valid
                each by itself do not make a job together.
            Unprocessable: the query does not fit the schema.
        """
        query = self.terms(weights)
        answers = answer_terms(query, self.data)
        dp = self.dp.terms()
        training = TrainingTerms(
            algorithm="dp_statistics" if query.kind == "statistics" else "dp_evaluation",
            local_steps=1,
            learning_rate=1.0,
            server_learning_rate=1.0,
        )
        try:
            return JobSpec(
                job=self.job,
                federation=charter.federation,
                charter=charter.digest,
                purpose=self.purpose,
                dataset=self.dataset,
                data=self.data,
                model=answers,
                initial_model=model_digest(answers, [model_bytes(no_answers(answers))]),
                training=training,
                dp=dp,
                rounds=1,
                scheme=self.scheme,
                vector=self._vector(dp, training, answers.parameters, len(charter.silos)),
                query=query,
                min_silos=self.min_silos,
                round_deadline_s=self.round_deadline_s,
            )
        except ValidationError as error:
            raise ConfigurationError(f"job {self.job}:\n{faults_of(error)}") from error

    def _vector(self, dp: DpTerms, training: TrainingTerms, coordinates: int, silos: int) -> VectorTerms:
        """The finest grid that carries the sum of so many patients and the noise, by this scheme."""
        bound = dp.clip_l2 * (self.patients_at_most + TAIL * dp.own_noise_multiplier) + 1.0
        for bits in range(FINEST_BITS, 0, -1):
            vector = VectorTerms(coordinate_bound=bound, scale_bits=bits)
            with suppress(Unprocessable):
                assert_fits(vector, silos)
                row_for(self.scheme, vector, silos)
                mechanism = integer_mechanism(dp, training, vector, coordinates)
                if mechanism.deviation > MOST_DEVIATION:
                    continue
                if mechanism.margin <= MOST_MARGIN and mechanism.deviation >= LEAST_DEVIATION:
                    return vector
                break
        raise ConfigurationError(
            f"query: {silos} silos of {self.patients_at_most} patients and {coordinates} answers do not fit "
            f"the grid of {self.scheme}; ask for fewer at once, or lower patients_at_most"
        )


def no_answers(terms: ModelTerms) -> NDArray[np.float32]:
    """What a query's job starts from: zeros, float32[d]."""
    return np.zeros(terms.parameters, dtype=np.float32)


def read_query_file(path: Path) -> QueryFile:
    """Read query.yaml.

    Raises:
        ConfigurationError: with every fault: the field, what was expected and what came.
    """
    return read_yaml_file(path, QueryFile)
