"""job.yaml: what a researcher asks for, in public terms, and its translation into the job that is signed.

    job: heart-risk                 purpose: predict heart disease      dataset: cardio
    data:     {features: [{kind: numeric, column: age, low: 20, high: 90, impute: 55}, …],
               label: {column: num, threshold: 0}, patient_id: patient}
    model:    {adapter: mlp, hidden: [16], seed: 1}
    training: {server_learning_rate: 0.5}
    dp:       {unit: patient, sample_rate: 0.2, target_epsilon: 3.0, clip_l2: 1.0, normaliser: 40,
               delta: 1e-5}
    rounds: 200                     min_silos: 3
    scheme: additive                validity: {norm_bound: 2.5}

Left out, ``training.algorithm`` is dp_fedsgd, or fedavgm with ``dp: none``; names are those of
``sealsum algorithm list``, and their parameters may stand right under ``training``; ``scheme`` is additive;
``validity`` is none, and comes with additive only. ``dp`` says noise_multiplier, or the target_epsilon to
meet; with ``model: distributed`` and ``noise_shares: 2`` silos add shares of the noise, and with ``metrics:
{names: [accuracy, loss], noise_multiplier: 20, loss_cap: 4}`` training metrics are opened (docs/privacy.md).
``initial_model: FILE.safetensors`` starts from weights in a file beside this one, instead of those of a seed.
``public_data: {file: public.csv, digest: SHA-256}`` names what ``job warm-up`` trained those weights on.
``model.base: {name: digits-base, file: base.safetensors, trainable: ["layer3.*"], low_rank: [layer1], rank:
4}`` trains a part of public weights that every silo has.
No file path and no code goes into a job: ``dataset`` and ``adapter`` are names that silos know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.ids import JobName, Name
from privacy.plan import (
    Count,
    DpTerms,
    JobSpec,
    ModelTerms,
    SchemeName,
    TensorSpec,
    TrainingTerms,
    ValidityClaim,
    VectorTerms,
)
from privacy.roster import Charter
from privacy.schema import DataSchema
from privacy.update import model_bytes, model_digest
from sealsum.compression import Compression
from sealsum.job_defaults import with_defaults
from sealsum.job_further import algorithm_further, with_silos
from sealsum.job_grid import coarse_vector, finest_vector, noise_vector
from sealsum.job_metrics import metrics_further
from sealsum.public_data import PublicData
from sealsum.yaml_file import faults_of, read_yaml_file
from silo_agent.models.files import read_model
from silo_agent.models.layouts import BUILT_IN, initial_vector, model_terms
from silo_agent.models.partial_layouts import partial_start, partial_terms, whole_terms


class BaseRequest(Frozen):
    """A file of public weights, what silos call it, and what of it trains (docs/recipes.md)."""

    name: Name
    file: Path
    """safetensors of the whole model, beside this file."""
    trainable: tuple[str, ...] = ()
    low_rank: tuple[str, ...] = ()
    rank: Count | None = None


class ModelRequest(Frozen):
    """Which model: a built-in by its sizes, or a silo's own adapter with its layout written out."""

    adapter: str
    hidden: tuple[Count, ...] = ()
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """Public seed of the first weights; reaches no data, key or noise."""
    layout: tuple[TensorSpec, ...] = ()
    """For adapters of the silos' own only; needs an initial model given as a file."""
    base: BaseRequest | None = None
    """The public weights of which a part is trained."""
    standardise_weights: bool = False
    """Of convolutions (docs/models.md)."""

    @model_validator(mode="after")
    def _a_base_is_built_in(self) -> Self:
        if self.base is not None and self.layout:
            raise ValueError("base: expected none with a layout of one's own; its adapter keeps its own base")
        return self

    @model_validator(mode="after")
    def _sizes_are_said_once(self) -> Self:
        if self.layout and self.adapter in BUILT_IN:
            raise ValueError(f"layout: expected none with {self.adapter}, which is built in; say hidden")
        if self.layout and self.standardise_weights:
            raise ValueError(f"standardise_weights: expected none with {self.adapter}, whose silos build it")
        return self


def _read_dp(value: object) -> object:
    """``dp: none`` must be written out; leaving dp away is a fault, never a choice."""
    return None if value == "none" else value


class JobFile(Frozen):
    """The fields of job.yaml."""

    job: JobName
    purpose: Annotated[str, Field(min_length=1, max_length=500)]
    dataset: Name
    data: DataSchema
    model: ModelRequest
    initial_model: Path | None = None
    """A safetensors file with the job's first weights, beside this file; public like the job. Only its digest
    goes into the job."""
    public_data: PublicData | None = None
    """What the first model was trained on before round 1; records that everybody may read."""
    training: TrainingTerms
    dp: Annotated[DpTerms | None, BeforeValidator(_read_dp)]
    rounds: Count
    scheme: SchemeName = "additive"
    vector: VectorTerms | None = None
    """Left out: the finest grid that the sum fits, for coordinates of ±8, or for what dp_fedsgd needs."""
    compression: Compression | None = None
    """For fewer bytes: a coarse grid in the place of ``vector``, or a part of the coordinates, or both."""
    validity: ValidityClaim | None = None
    """What each silo proves of its update on shares."""
    min_silos: Annotated[int, Field(ge=2)]
    round_deadline_s: Annotated[int, Field(ge=1, le=86400)] = 120

    @model_validator(mode="after")
    def _one_grid_is_asked_for(self) -> Self:
        asked = self.compression
        if asked is not None and asked.bits is not None and self.vector is not None:
            raise ValueError("compression.bits: expected it or vector, got both")
        if asked is not None and asked.coordinates is not None and self.training.sparse is not None:
            raise ValueError("compression.coordinates: expected it or training.sparse, got both")
        return self

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, tree: object) -> object:
        try:
            return with_defaults(tree)
        except ValueError as error:
            strangers = sorted(set(tree) - set(cls.model_fields)) if isinstance(tree, dict) else []
            if not strangers:
                raise
            known = ", ".join(cls.model_fields)
            raise ValueError(f"{', '.join(strangers)}: no such field, expected {known}; {error}") from error

    def terms(self) -> ModelTerms:
        """The model terms the job will carry.

        Raises:
            ConfigurationError: the sizes do not fit the adapter.
        """
        if not self.model.layout:
            whole = model_terms(
                self.model.adapter,
                self.data.width,
                self.model.hidden,
                self.data.label.outputs,
                self.model.standardise_weights,
            )
            base = self.model.base
            if base is None:
                return whole
            try:
                return partial_terms(
                    whole,
                    read_model(base.file, whole),
                    base.name,
                    base.trainable,
                    base.low_rank,
                    base.rank,
                )
            except ValidationError as error:
                raise ConfigurationError(f"model.base: {faults_of(error).strip()}") from error
        try:
            return ModelTerms(
                adapter=self.model.adapter,
                inputs=self.data.width,
                hidden=self.model.hidden,
                layout=self.model.layout,
            )
        except ValidationError as error:
            raise ConfigurationError(f"model: {faults_of(error).strip()}") from error

    def first_model(self) -> NDArray[np.float32]:
        """The weights of ``initial_model``, or the built-in first ones, float32[d].

        Raises:
            ConfigurationError: the file does not fit, or an adapter of the silos' own has none; or it was not
                trained on the public records that the job names.
        """
        if self.public_data is not None:
            self.public_data.must_have_warmed(self.initial_model)
        if self.initial_model is not None:
            if "seed" in self.model.model_fields_set and self.public_data is None:
                raise ConfigurationError("model.seed: expected none beside initial_model; leave one out")
            return read_model(self.initial_model, self.terms())
        if self.model.layout:
            raise ConfigurationError(
                "model: an adapter with its own layout needs --model FILE, or initial_model, to start from"
            )
        terms, base = self.terms(), self.model.base
        if base is not None:
            return partial_start(terms, read_model(base.file, whole_terms(terms)), self.model.seed)
        return initial_vector(terms, self.model.seed)

    def spec(self, charter: Charter, initial: NDArray[np.float32]) -> JobSpec:
        """The job, bound to the charter and to the model it starts from.

        Raises:
            ConfigurationError: fields that are valid each by itself do not make a job together.
        """
        terms, silos = self.terms(), len(charter.silos)
        training = self.training_of(silos)
        try:
            return JobSpec(
                job=self.job,
                federation=charter.federation,
                charter=charter.digest,
                purpose=self.purpose,
                dataset=self.dataset,
                data=self.data,
                model=terms,
                initial_model=model_digest(terms, [model_bytes(initial)]),
                training=training,
                dp=self.dp,
                rounds=self.rounds,
                scheme=self.scheme,
                vector=self.grid(silos, self.scheme),
                validity=self.validity,
                further=(
                    *metrics_further(self.dp, self.scheme, silos),
                    *algorithm_further(training, terms, self.scheme, silos),
                ),
                min_silos=self.min_silos,
                round_deadline_s=self.round_deadline_s,
            )
        except ValidationError as error:
            raise ConfigurationError(f"job {self.job}:\n{faults_of(error)}") from error

    def training_of(self, silos: int) -> TrainingTerms:
        """The training terms that the job will carry in a federation of so many silos."""
        training = with_silos(self.training, silos)
        return training if self.compression is None else self.compression.applied_to(training)

    def grid(self, silos: int, scheme: SchemeName) -> VectorTerms:
        """The grid that updates travel on, in a federation of so many silos.

        Raises:
            ConfigurationError: no grid of the scheme carries them.
        """
        if self.vector is not None:
            return self.vector
        if self.compression is not None and self.compression.bits is not None:
            return coarse_vector(self.compression.bits, self.compression.coordinate_bound, scheme, silos)
        if self.dp is None or self.training.algorithm != "dp_fedsgd" or self.validity is not None:
            return finest_vector(scheme, silos)
        return noise_vector(self.dp, self.training, self.terms().parameters, scheme, silos)


def read_job_file(path: Path) -> JobFile:
    """Read job.yaml.

    Raises:
        ConfigurationError: with every fault: the field, what was expected and what came.
    """
    asked = read_yaml_file(path, JobFile)
    if asked.model.base is not None:
        base = asked.model.base.model_copy(update={"file": path.parent / asked.model.base.file})
        asked = asked.model_copy(update={"model": asked.model.model_copy(update={"base": base})})
    if asked.public_data is not None:
        public = asked.public_data.model_copy(update={"file": path.parent / asked.public_data.file})
        asked = asked.model_copy(update={"public_data": public})
    if asked.initial_model is None:
        return asked
    return asked.model_copy(update={"initial_model": path.parent / asked.initial_model})
