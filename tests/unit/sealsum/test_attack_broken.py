"""Mechanisms broken in the running code itself, not in terms, are called VIOLATED."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sealsum.attack import noise_audit, poisoning, proofs
from sealsum.attack.canaries import scores_of_sums, scores_of_updates
from sealsum.attack.cohort import private_step
from sealsum.attack.effort import EFFORTS
from sealsum.attack.mask_audit import audit_mask
from sealsum.attack.noise_audit import ARMS, NOISELESS, SOUND, Arm, certified_outcome, model_outcome
from sealsum.attack.outcome import Outcome
from sealsum.attack.poisoning import audit_poisoning
from silo_agent.algorithms import dp_fedavg, dp_fedsgd
from silo_agent.algorithms.task import Task
from silo_agent.engines.engine import StepEngine
from silo_agent.randomness import gaussian

QUICK = EFFORTS["quick"]
RUNS = 8


def _against_the_claim(arm: Arm, runs: int = RUNS) -> Outcome:
    scores = scores_of_sums(arm.terms, runs)
    return model_outcome("canaries", arm.protection, arm.protected, scores, noise_audit._claim())


def test_the_sound_mechanism_is_consistent_and_the_bound_is_not_far_below_its_claim() -> None:
    outcome = _against_the_claim(SOUND)
    assert outcome.verdict == "consistent"
    assert outcome.figures["epsilon_at_least"] > 0.7 * outcome.figures["epsilon_claimed"]


@pytest.mark.parametrize(
    "arm", [arm for arm in ARMS if not arm.protected], ids=lambda arm: arm.protection.replace(" ", "-")
)
def test_a_mechanism_weaker_than_its_claim_is_seen(arm: Arm) -> None:
    assert _against_the_claim(arm, QUICK.canary_runs).verdict == "succeeds"


def test_noise_short_by_root_two_in_the_step_itself_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(count: int, standard_deviation: float) -> NDArray[np.float64]:
        return gaussian(count, standard_deviation / math.sqrt(2))

    monkeypatch.setattr(dp_fedsgd, "gaussian", short)
    assert _against_the_claim(SOUND).verdict == "VIOLATED"


def test_noise_that_a_colluding_silo_can_draw_again_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a generator that a peer can seed would draw it: every silo the same."""
    known = gaussian(1 << 12, 1.0)
    monkeypatch.setattr(dp_fedsgd, "gaussian", lambda count, deviation: known[:count] * deviation)
    # The colluding silo's noise is the others' too: three times what it knows is in the sum.
    terms = SOUND.terms
    scores = scores_of_sums(terms, 1)
    signs = np.where(np.arange(len(scores)) % 2 == 1, 1.0, -1.0)
    share = terms.dp.own_noise_multiplier * known[: len(scores)] * signs
    freed = dataclasses.replace(scores, values=scores.values - 3 * share)
    assert model_outcome("canaries", "reused noise", True, freed, noise_audit._claim()).verdict == "VIOLATED"


def test_gradients_that_are_not_clipped_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Task.engine

    class Unclipped:
        name = "unclipped"

        def __init__(self, engine: StepEngine) -> None:
            self._engine = engine
            self.sum_rounding = engine.sum_rounding

        def clipped_sum(self, records: object, sample: object, clip: float) -> NDArray[np.float64]:
            return self._engine.clipped_sum(records, sample, 1e6)  # type: ignore[arg-type]

    monkeypatch.setattr(Task, "engine", lambda task: Unclipped(honest(task)))
    assert _against_the_claim(SOUND).verdict == "VIOLATED"
    pulls = [one for one in poisoning._record_outcomes() if one.protected]
    assert [one.verdict for one in pulls] == ["VIOLATED"]


@pytest.mark.slow
def test_local_noise_short_by_root_two_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(count: int, standard_deviation: float) -> NDArray[np.float64]:
        return gaussian(count, standard_deviation / math.sqrt(2))

    monkeypatch.setattr(dp_fedavg, "gaussian", short)
    scores = scores_of_updates(private_step(4.0, 1.0, model="local"), 16, QUICK.update_runs)
    assert model_outcome("canaries", "local", True, scores, noise_audit._claim()).verdict == "VIOLATED"


def test_a_sum_without_noise_exceeds_even_the_certified_bound() -> None:
    scores = scores_of_sums(NOISELESS.terms, QUICK.canary_runs)
    assert certified_outcome(NOISELESS, scores).verdict == "succeeds"
    assert certified_outcome(SOUND, scores).verdict == "VIOLATED"


def test_a_missing_mask_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sealsum.attack.mask_audit.AdditiveSiloHalf.share", lambda half, start, encoded: encoded
    )
    assert [one.verdict for one in audit_mask(QUICK).outcomes] == ["succeeds", "VIOLATED"]


def test_a_mask_leaves_nothing_to_read() -> None:
    assert [one.verdict for one in audit_mask(QUICK).outcomes] == ["succeeds", "consistent"]


def test_servers_that_accept_any_proof_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "judge", lambda *given: None)
    verdicts = [one.verdict for one in audit_poisoning(QUICK).outcomes if "norm proofs" in one.protection]
    assert verdicts == ["VIOLATED", "VIOLATED", "consistent"]


def test_poison_is_left_out_by_proofs_and_bounded_by_clipping() -> None:
    outcomes = audit_poisoning(QUICK).outcomes
    assert all(one.as_expected for one in outcomes)
    within = next(one for one in outcomes if "one direction" in one.attack)
    assert within.figures["pull"] == pytest.approx(poisoning.NORM_BOUND, abs=1e-2)
