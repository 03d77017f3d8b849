"""Rounds with vectors beside the model's, carried by agents' halves to real servers, in all schemes that can.

Jobs without DP may sum any vectors; with it, training metrics only, which a real step computes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from privacy.errors import SealsumError
from privacy.plan import DpTerms, JobSpec, RoundPlan, TrainingTerms, VectorTerms
from privacy.update import model_digest
from privacy.vector_terms import FurtherVector, MetricTerms
from privacy.wire.envelope import Envelope
from silo_agent.algorithms.dp_fedsgd import dp_fedsgd
from silo_agent.algorithms.task import Task
from silo_agent.data.records import Records
from silo_agent.encoded import EncodedUpdate
from silo_agent.models.adapters import ADAPTERS
from silo_agent.models.layouts import model_terms
from silo_agent.outbox import Contribution
from silo_agent.schemes.catalogue import half_of
from silo_agent.update import FloatUpdate, Update
from tests.federation import Federation, demo_policy_text
from tests.he_world import VECTORS, HeWorld
from tests.pairwise_world import PairwiseWorld, further_of
from tests.validity_world import ProvingSilo, ValidityWorld, Wire

CONTROL = FurtherVector(
    name="offsets", coordinates=7, terms=VectorTerms(coordinate_bound=1.0, scale_bits=18), opens_to="mean"
)
STATISTICS = FurtherVector(
    name="statistics", coordinates=3, terms=VectorTerms(coordinate_bound=64.0, scale_bits=10), opens_to="sum"
)
METRICS = MetricTerms(names=("accuracy", "loss"), noise_multiplier=2.0, loss_cap=4.0)
METRICS_VECTOR = FurtherVector(
    name="metrics", coordinates=3, terms=VectorTerms(coordinate_bound=256.0, scale_bits=14), opens_to="sum"
)
NO_DP: dict[str, Any] = {
    "training": TrainingTerms(algorithm="fedavg", local_steps=1, learning_rate=0.5, server_learning_rate=1.0),
    "dp": None,
}
LOGISTIC = model_terms("logistic", 2)
MEASURED: dict[str, Any] = {
    "training": TrainingTerms(
        algorithm="dp_fedsgd", local_steps=1, learning_rate=1.0, server_learning_rate=1.0
    ),
    "dp": DpTerms(
        unit="patient",
        sample_rate=0.1,
        noise_multiplier=4.0,
        clip_l2=1.0,
        normaliser=20.0,
        delta=1e-5,
        metrics=METRICS,
    ),
    "vector": VectorTerms(coordinate_bound=8.0, scale_bits=16),
    "further": (METRICS_VECTOR,),
    "model": LOGISTIC,
    "initial_model": model_digest(LOGISTIC, [np.zeros(LOGISTIC.parameters, dtype="<f4").tobytes()]),
}


def without_dp(profile: str) -> str:
    """A demo profile for synthetic data that requires no DP."""
    text = demo_policy_text(profile).replace("data_class: patient", "data_class: synthetic")
    text = re.sub(r"\n    dp:\n(      .*\n)+", "\n    dp: none\n", text)
    return text.replace("algorithms: [", "algorithms: [fedavg, ")


def with_metrics(profile: str) -> str:
    """A demo profile that releases training metrics."""
    return demo_policy_text(profile).replace(
        "metrics: {names: [], dp: withheld}", "metrics: {names: [accuracy, loss], dp: charged}"
    )


class VectorsWorld(ValidityWorld):
    """Share servers; jobs of no validity."""

    def spec(self, parameters: int = 5, **changes: Any) -> JobSpec:
        return super().spec(parameters, **{"validity": None, **changes})


class SharingSilo(ProvingSilo):
    """A silo of ``additive`` that hands over all vectors of a plan."""

    def given(self, plan: RoundPlan) -> Update:
        """Its vectors of the round."""
        values = np.full(plan.parameters, self.value, dtype=np.float32)
        return FloatUpdate(values, further_of(plan, values))

    def _carry(self, offer: Envelope, plan: RoundPlan, wire: Wire) -> None:
        half = half_of(self.seat(plan, wire))
        half.prepare()
        encoded = EncodedUpdate(plan, self.given(plan), 1.0)
        self.outbox.put_parts(plan.context, self.uploaded(list(half.seal(encoded, plan.model))))
        signed = half.manifest(self.charge(plan))
        contribution = Contribution(offer=offer, manifest=signed.manifest, seeds=signed.seeds)
        try:
            half.deliver(self.outbox.complete(plan.context, contribution))
        except SealsumError as error:
            self.faults.append(error)
        self.outbox.remove(plan.context)

    def uploaded(self, parts: list[bytes]) -> list[bytes]:
        """What it uploads as its parts."""
        return parts


class MeasuringSilo(SharingSilo):
    """A silo with records, that trains a step and measures the model on the step's sample."""

    def given(self, plan: RoundPlan) -> Update:
        return dp_fedsgd(
            Task(
                model=LOGISTIC,
                training=plan.training,
                dp=plan.dp,
                vector=plan.vector,
                start=np.zeros(plan.parameters, dtype=np.float32),
                adapter=ADAPTERS["logistic"],
                records=records_of(self.name),
                further=plan.further,
            )
        )


def records_of(name: str, count: int = 300) -> Records:
    """Made-up records, of which two thirds have label 1."""
    generator = np.random.default_rng(sum(name.encode()))
    features = generator.uniform(-1, 1, (count, 2)).astype(np.float32)
    return Records(features, (np.arange(count) % 3 != 0).astype(np.float32))


def one_server_world(root: Path, scheme: str) -> PairwiseWorld:
    """Pairwise, or ciphertexts under a key of the silos."""
    federation = Federation(silos=4, servers=0, policy_text=without_dp(scheme))
    return PairwiseWorld(root, federation) if scheme == "pairwise" else HeWorld(root, federation)


def vector_of(scheme: str) -> VectorTerms:
    """The model's vector in a scheme."""
    return VECTORS.get(scheme, VectorTerms(coordinate_bound=4.0, scale_bits=20))
