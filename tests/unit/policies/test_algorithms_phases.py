"""Phases of a job: how many local steps, and which silos; a draw that nobody chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.invited import Drawn, invited
from policies.loader import load_threat_model
from policies.planning import SESSION_BYTES, plan_round
from privacy.errors import ConfigurationError
from privacy.ids import Digest, PartyId, SiloId
from privacy.plan import Phase
from silo_agent.approvals.training_sentences import training_sentences
from tests.algorithms_world import RATE, SILOS, descended, federation, records_of, run, terms
from tests.federation import Federation
from tests.unit.sealsum.test_algorithms_catalogue import DP, job, signed

JOB = Digest("ab" * 32)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.floats(0.01, 1), st.integers(2, 6), st.integers(1, 99))
def test_a_draw_is_of_the_right_size_and_spreads_over_institutions(
    silos: int, institutions: int, share: float, least: int, number: int
) -> None:
    entities = {SiloId(PartyId(f"silo-{one}")): f"hospital {one % institutions}" for one in range(silos)}
    drawn = invited(Drawn(JOB, Phase(until=99, silos_share=share), number), entities, least)
    assert len(set(drawn)) == len(drawn) == min(silos, max(least, int(np.ceil(share * silos))))
    assert len({entities[silo] for silo in drawn}) == min(len(drawn), len(set(entities.values())))
    assert drawn == invited(Drawn(JOB, Phase(until=99, silos_share=share), number), entities, least)


def test_over_rounds_every_silo_is_invited_about_as_often() -> None:
    entities = {SiloId(PartyId(f"silo-{one}")): f"hospital {one}" for one in range(8)}
    phase = Phase(until=400, silos_share=0.5)
    times = dict.fromkeys(entities, 0)
    for number in range(1, 401):
        for silo in invited(Drawn(JOB, phase, number), entities, 2):
            times[silo] += 1
    # Half of 400, six standard errors of 10.
    assert all(140 < count < 260 for count in times.values())


def test_a_plan_invites_the_drawn_silos_and_no_fewer_than_the_threat_model_asks() -> None:
    world = Federation(silos=6)
    training = world.job_spec().training.model_copy(update={"phases": (Phase(until=12, silos_share=0.1),)})
    spec = world.job_spec(training=training, rounds=15)
    policy = load_threat_model(world.charter.policy_text, world.charter.policy_parents)
    cohorts = {
        number: plan_round(
            spec,
            world.charter,
            policy,
            silos=world.charter.silos,
            number=number,
            model=spec.initial_model,
            session=bytes(SESSION_BYTES),
        ).silos
        for number in range(1, 14)
    }
    assert [len(cohort) for cohort in cohorts.values()] == [*[3] * 12, 6]
    # Keys of a test's charter are random, and two rounds of three of six silos are alike once in twenty.
    assert len({cohorts[number] for number in range(1, 13)}) > 2


def test_phases_change_the_local_steps_of_their_rounds() -> None:
    phases = (Phase(until=1, local_steps=7), Phase(until=2, local_steps=2))
    standings = run(federation(terms(phases=phases), rounds=3))
    model = np.zeros(5)
    for steps, standing in zip((7, 2, 4), standings, strict=True):
        model = np.mean([descended(model, records_of(one), steps, RATE) for one in range(4)], axis=0)
        np.testing.assert_allclose(standing.model, model, atol=1e-5)


def test_corrections_take_the_steps_of_their_own_phase() -> None:
    phases = (Phase(until=1, local_steps=7),)
    first = run(federation(terms(phases=phases, local={"control": "zero"})))[0]
    ends = [descended(np.zeros(5), records_of(one), 7, RATE) for one in range(4)]
    for silo, end in zip(SILOS, ends, strict=True):
        expected = (end - np.mean(ends, axis=0)) / (7 * RATE)
        np.testing.assert_allclose(first.memories[silo].arrays["control"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("training", "dp", "said"),
    [
        ({"phases": [{"until": 3}, {"until": 2}]}, "none", "each to end after the one before"),
        ({"phases": [{"until": 2, "local_steps": 3}]}, DP, "charges each round of a job alike"),
        ({"algorithm": "newton", "phases": [{"until": 2, "local_steps": 3}]}, "none", "takes one step"),
    ],
)
def test_phases_that_cannot_be_are_refused(training: dict[str, Any], dp: Any, said: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError), match=said):
        signed(job(training, dp))


def test_whoever_approves_a_job_reads_what_it_does_beside_plain_steps() -> None:
    spec = signed(
        job({"algorithm": "agnostic", "phases": [{"until": 2, "local_steps": 3, "silos_share": "0.5"}]})
    )
    said = " ".join(training_sentences(spec))
    for words in ("(agnostic)", "sum of the weights", "until 30 days after", "3 local steps and invites 50%"):
        assert words in said
    assert "second moments" in " ".join(training_sentences(signed(job({"algorithm": "newton"}))))
    assert list(training_sentences(signed(job({"algorithm": "fedavg"})))) == []
