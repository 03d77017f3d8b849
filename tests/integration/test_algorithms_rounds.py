"""Each shape of round through a real aggregator and real share servers comes out as the simulator says.

The shapes: a server's step that reads a further vector; one whose memory is a sum of silos' differences;
weights of the silos' own; several coordinates an element; parts that stay with the silos.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privacy.errors import SealsumError
from privacy.personal_terms import PersonalTerms
from privacy.plan import Phase, RoundPlan
from privacy.schema import DataSchema, Label, NumericFeature
from privacy.sent import sent_in
from privacy.sent_terms import SparseTerms
from privacy.update import model_bytes, model_digest
from privacy.wire.envelope import Envelope
from sealsum.job_grid import coarse_vector
from silo_agent.algorithms.catalogue import settle, update_of
from silo_agent.algorithms.memory import FIRST, Memory
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Contribution
from silo_agent.schemes.catalogue import half_of
from silo_agent.update import FloatUpdate
from tests.aggregator_world import on_loop
from tests.algorithms_world import MODEL, SILOS, VECTOR, federation, run, task, terms
from tests.federation import Federation
from tests.validity_world import Wire
from tests.vectors_world import NO_DP, SharingSilo, VectorsWorld, without_dp

pytestmark = pytest.mark.slow
TRAININGS = {
    "a further vector": terms("qfedavg", weights="fair", local={"q": 1.0, "loss_cap": 2.0}),
    "a triangle of numbers": terms("newton", local_steps=1, server={"ridge": 0.01}),
    "a sum of differences": terms("mifa", server={"silos": 4, "momentum": 0.5}),
    "three coordinates an element": terms(local={"coordinate_clip": 0.5}),
    "a count for each coordinate": terms(
        "sparse_masks", local={"mask_share": 0.5}, server={"mask_minimum": 2}
    ),
    "parts of their own": terms(personal=PersonalTerms(kind="fedper", local_param=("intercept",))),
    "some coordinates, and what was not sent": terms(
        sparse=SparseTerms(kind="top", share=0.5, feedback=True), server={"momentum": 0.5}
    ),
    "layers by phase": terms(phases=(Phase(until=1, layers=("intercept",)),)),
    "weights of their own": terms(weights="agnostic", local={"gamma": 2.0, "loss_cap": 1.0}),
}


DATA = DataSchema(
    features=tuple(
        NumericFeature(kind="numeric", column=f"x{number}", low=-3, high=3, impute=0)
        for number in range(MODEL.inputs)
    ),
    label=Label(column="num", threshold=0),
    patient_id="patient",
)


class LearningSilo(SharingSilo):
    """A silo that trains by the agent's own algorithms, and remembers."""

    memory: Memory = FIRST

    def learnt(self, plan: RoundPlan) -> FloatUpdate:
        """Its update of the round."""
        raw = self.world.aggregator.state.models.path(plan.model).read_bytes()
        start = np.frombuffer(raw, dtype="<f4")
        number = list(self.world.federation.charter.silos).index(self.name)
        first = np.zeros(MODEL.parameters, dtype=np.float32)
        sent = sent_in(plan.training, MODEL, plan.job_digest, plan.round, start, first)
        work = task(
            plan.training,
            number,
            self.memory,
            start=start,
            further=plan.further,
            digest=plan.model,
            round=plan.round,
            sent=sent,
        )
        update = update_of(work)
        assert isinstance(update, FloatUpdate)
        self.memory = Memory(settle(plan.training, update.keep, start), plan.round, plan.model)
        return update

    def _carry(self, offer: Envelope, plan: RoundPlan, wire: Wire) -> None:
        half = half_of(self.seat(plan, wire))
        half.prepare()
        update = self.learnt(plan)
        encoded = EncodedUpdate(plan, update, 1.0 if update.weight is None else update.weight)
        self.outbox.put_parts(plan.context, list(half.seal(encoded, plan.model)))
        signed = half.manifest(self.charge(plan))
        contribution = Contribution(offer=offer, manifest=signed.manifest, seeds=signed.seeds)
        try:
            half.deliver(self.outbox.complete(plan.context, contribution))
        except SealsumError as error:
            self.faults.append(error)
        self.outbox.remove(plan.context)


@pytest.mark.parametrize("shape", TRAININGS)
@on_loop
async def test_a_round_of_this_shape_is_the_simulators(tmp_path: Path, shape: str) -> None:
    training, rounds = TRAININGS[shape], 2
    text = without_dp("hospitals").replace(
        "algorithms: [", "algorithms: [qfedavg, mifa, newton, sparse_masks, "
    )
    world = VectorsWorld(
        tmp_path, Federation(policy_text=text.replace("max_weight_share: 0.4", "max_weight_share: 1"))
    )
    simulated = federation(training, rounds)
    packs = training.local.coordinate_clip is not None
    vector = coarse_vector(8, 0.5, "additive", len(SILOS)) if packs else VECTOR
    zero = np.zeros(MODEL.parameters, dtype=np.float32)
    spec = world.spec(
        **{
            **NO_DP,
            "training": training,
            "rounds": rounds,
            "model": MODEL,
            "initial_model": model_digest(MODEL, [model_bytes(zero)]),
            "data": DATA,
            "vector": vector,
            "further": simulated.terms.further,
        }
    )
    silos = [LearningSilo(world, name, 0.0) for name in world.federation.charter.silos]
    outcome = await world.run_job(spec, silos)
    assert [silo.faults for silo in silos] == [[], [], [], []]
    assert outcome.view["state"] == "finished", outcome.view
    same_draws = replace(simulated, terms=replace(simulated.terms, job=spec.digest))
    expected = run(same_draws)[-1]
    assert len(expected.memories) in (0, len(SILOS))
    step = 2.0**-vector.scale_bits if packs else 1e-4
    np.testing.assert_allclose(outcome.model, expected.model, atol=2 * rounds * step)
