"""The demo's job: heart disease from public ranges, a small network, and just enough noise for the target ε.

Ranges, sizes and the learning-rate rule were chosen beforehand on these public data
(``benchmarks/heart_utility.py`` reproduces the figures); that tuning is outside the accounted ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privacy.dp.accountant import epsilon
from privacy.dp.calibration import calibrated_noise
from privacy.dp.events import DpEvent
from privacy.ids import Digest, JobId
from privacy.plan import (
    AlgorithmName,
    DpTerms,
    JobSpec,
    ModelTerms,
    SchemeName,
    TrainingTerms,
    ValidityClaim,
    VectorTerms,
)
from privacy.schema import CategoricalFeature, DataSchema, Label, NumericFeature
from privacy.secagg.validity.norms import suggested_norm_bound
from privacy.update import flatten, model_bytes, model_digest
from sealsum.demo.options import NoiseName
from sealsum.demo.patients import HOSPITALS, LABEL_COLUMN, LABEL_THRESHOLD, PATIENT_COLUMN
from sealsum.job_grid import noise_vector
from silo_agent.models.layouts import model_terms

JOB = JobId("heart-disease")
DATASET = "heart"
PURPOSE = "Predict heart disease from routine findings, to demonstrate federated learning"
DELTA = 1e-5

CLIP_L2 = 0.5
TYPICAL_RECORDS = 150.0
"""Of a hospital here: what gradients are divided by. Public, the same for all, and nobody's own count."""
HIDDEN = (29,)
INITIAL_SPREAD = 0.5
MIN_SILOS = 3
COLLUDING = 1
"""Hospitals whose noise does not count, where hospitals share it: as many as the demo's policies assume."""
COORDINATE_BOUND = 16.0
"""Of dp_fedavg: room for a job of one round, whose steps are long."""
SCALE_BITS: dict[SchemeName, int] = {
    "additive": 24,
    "pairwise": 24,
    "bfv": 16,
    "ckks": 14,
    "threshold_bfv": 16,
    "threshold_ckks": 14,
}
"""Its fixed-point scale: four silos fill half the ring, or what the shortest ciphertexts carry; the coarsest,
2⁻¹⁴, is about a thousandth of the noise."""
PROVEN_VECTOR = VectorTerms(coordinate_bound=32.0, scale_bits=20)
"""What is proven on shares has a coarser grid, and room for an update as long as the bound."""
_REFERENCE_STEPS = 40
_LOCAL_STEPS: dict[AlgorithmName, int] = {"dp_fedsgd": 1, "dp_fedavg": 2}
_SAMPLE_RATE: dict[AlgorithmName, float] = {"dp_fedsgd": 1.0, "dp_fedavg": 0.5}
"""Full batches cost as little as samples at these sizes, and their ε can be checked by hand."""
_LARGEST_LEARNING_RATE = 8.0


def heart_schema() -> DataSchema:
    """Thirteen findings as 33 coordinates, scaled by ranges that are public knowledge about adults.

    A zero for cholesterol or resting blood pressure is a value nobody has measured: it means missing.
    """
    missing_or_zero = ("", "0")
    return DataSchema(
        features=(
            NumericFeature(column="age", low=30, high=80, impute=55),
            NumericFeature(
                column="trestbps", low=90, high=180, impute=130, missing=missing_or_zero, indicator=True
            ),
            NumericFeature(
                column="chol", low=120, high=400, impute=240, missing=missing_or_zero, indicator=True
            ),
            NumericFeature(column="thalach", low=80, high=190, impute=140, indicator=True),
            NumericFeature(column="oldpeak", low=-1, high=4, impute=0.5, indicator=True),
            NumericFeature(column="ca", low=0, high=3, impute=0.5, indicator=True),
            CategoricalFeature(column="sex", categories=("Female", "Male")),
            CategoricalFeature(column="fbs", categories=("FALSE", "TRUE")),
            CategoricalFeature(column="exang", categories=("FALSE", "TRUE")),
            CategoricalFeature(
                column="cp", categories=("typical angina", "atypical angina", "non-anginal", "asymptomatic")
            ),
            CategoricalFeature(
                column="restecg",
                categories=("normal", "st-t abnormality", "lv hypertrophy"),
                indicator=True,
            ),
            CategoricalFeature(
                column="slope", categories=("upsloping", "flat", "downsloping"), indicator=True
            ),
            CategoricalFeature(
                column="thal", categories=("normal", "fixed defect", "reversable defect"), indicator=True
            ),
        ),
        label=Label(column=LABEL_COLUMN, threshold=LABEL_THRESHOLD),
        patient_id=PATIENT_COLUMN,
    )


@dataclass(frozen=True)
class DemoTerms:
    """What all runs with the same options share: everything of the job that names no federation."""

    data: DataSchema
    model: ModelTerms
    training: TrainingTerms
    dp: DpTerms
    rounds: int
    epsilon: float
    """What the whole job costs each hospital, at ``dp.delta``."""
    initial: NDArray[np.float32]
    """float32[d]"""
    scheme: SchemeName
    vector: VectorTerms
    validity: ValidityClaim | None = None

    @property
    def initial_bytes(self) -> bytes:
        """The first model as it is uploaded."""
        return model_bytes(self.initial)

    def job(self, federation: str, charter: Digest) -> JobSpec:
        """The job that the researcher signs."""
        return JobSpec(
            job=JOB,
            federation=federation,
            charter=charter,
            purpose=PURPOSE,
            dataset=DATASET,
            data=self.data,
            model=self.model,
            initial_model=model_digest(self.model, [self.initial_bytes]),
            training=self.training,
            dp=self.dp,
            rounds=self.rounds,
            scheme=self.scheme,
            vector=self.vector,
            validity=self.validity,
            min_silos=MIN_SILOS,
        )


def demo_terms(
    rounds: int,
    target: float,
    seed: int,
    round_cap: float | None = None,
    scheme: SchemeName = "additive",
    validity: bool = False,
    algorithm: AlgorithmName = "dp_fedsgd",
    noise: NoiseName = "full",
) -> DemoTerms:
    """Derive the job's terms from the demo's options.

    Args:
        target: most ε the whole job may cost.
        round_cap: most ε one round may cost; matters when a few rounds are to spend all of ``target``.
        noise: ``full``: each hospital adds all of it; ``distributed``: its share, for the sum of all.

    Raises:
        ConfigurationError: no noise reaches that ε in so many rounds.
    """
    local_steps, rate = _LOCAL_STEPS[algorithm], _SAMPLE_RATE[algorithm]
    steps = rounds * local_steps
    multiplier = _least_noise(target, rate, steps)
    if round_cap is not None and _cost(multiplier, rate, local_steps) > round_cap:
        multiplier = _least_noise(round_cap, rate, local_steps)
    cost = _cost(multiplier, rate, steps)
    schema = heart_schema()
    model = model_terms("mlp", schema.width, HIDDEN)
    training = _training(algorithm, local_steps, learning_rate(cost, steps))
    dp = DpTerms(
        model="distributed" if noise == "distributed" else "local",
        noise_shares=MIN_SILOS - COLLUDING if noise == "distributed" else None,
        unit="patient",
        sample_rate=rate,
        noise_multiplier=multiplier,
        clip_l2=CLIP_L2,
        normaliser=TYPICAL_RECORDS * rate,
        delta=DELTA,
    )
    return DemoTerms(
        data=schema,
        model=model,
        training=training,
        dp=dp,
        rounds=rounds,
        epsilon=cost,
        initial=first_model(model, seed),
        scheme=scheme,
        vector=PROVEN_VECTOR if validity else _vector(dp, training, model, scheme),
        validity=_claim(dp, training, model.parameters) if validity else None,
    )


def _training(algorithm: AlgorithmName, local_steps: int, rate: float) -> TrainingTerms:
    """In dp_fedsgd the rate is the server's: what travels is one noisy gradient, however long the step."""
    local, server = (1.0, rate) if algorithm == "dp_fedsgd" else (rate, 1.0)
    return TrainingTerms(
        algorithm=algorithm, local_steps=local_steps, learning_rate=local, server_learning_rate=server
    )


def _vector(dp: DpTerms, training: TrainingTerms, model: ModelTerms, scheme: SchemeName) -> VectorTerms:
    if training.algorithm == "dp_fedsgd":
        return noise_vector(dp, training, model.parameters, scheme, len(HOSPITALS))
    return VectorTerms(coordinate_bound=COORDINATE_BOUND, scale_bits=SCALE_BITS[scheme])


def _claim(dp: DpTerms, training: TrainingTerms, parameters: int) -> ValidityClaim:
    """To three digits, upwards: longer than an honest update, noise included, once in 2^40 rounds."""
    bound = suggested_norm_bound(dp, training, parameters)
    digit = 10.0 ** (math.floor(math.log10(bound)) - 2)
    return ValidityClaim(norm_bound=float(f"{math.ceil(bound / digit) * digit:.6g}"))


def _least_noise(target: float, rate: float, steps: int) -> float:
    return calibrated_noise(target, DELTA, rate, steps, "add_remove").noise_multiplier


def _cost(noise: float, rate: float, steps: int) -> float:
    return epsilon([DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)], DELTA)


def learning_rate(cost: float, steps: int) -> float:
    """Longer steps where there is less noise or there are fewer steps, to three digits.

    What matters is rate x steps; the exponent was fitted for ε from 1 to 8.
    """
    rate: float = cost**0.66 * _REFERENCE_STEPS / steps
    return float(f"{min(rate, _LARGEST_LEARNING_RATE):.3g}")


def first_model(model: ModelTerms, seed: int) -> NDArray[np.float32]:
    """Weights N(0, 0.5²/fan-in), biases zero: float32[d]. Public; it touches no data and no noise."""
    generator = np.random.default_rng(seed)
    tensors: dict[str, NDArray[np.float32]] = {}
    for spec in model.layout:
        if len(spec.shape) == 1:
            tensors[spec.name] = np.zeros(spec.shape, dtype=np.float32)
        else:
            spread = INITIAL_SPREAD / np.sqrt(spec.shape[1])
            tensors[spec.name] = (spread * generator.standard_normal(spec.shape)).astype(np.float32)
    return flatten(model, tensors)
