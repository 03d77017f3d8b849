"""A round that sums a part of the model: which part, who can compute it, what is kept, and what it costs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sealsum_verify.sent import count_sent as counted_by_the_verifier

from policies.rules_binding import binding_findings
from privacy.errors import ConfigurationError
from privacy.ids import Digest
from privacy.plan import DpTerms, Phase, TrainingTerms
from privacy.sent import Sent, count_sent, sent_in
from privacy.sent_terms import SparseTerms
from sealsum.job_judgement import planned_upload_bytes, upload_bytes_by_round
from silo_agent.algorithms.catalogue import update_of
from silo_agent.algorithms.memory import Memory
from silo_agent.approvals.training_sentences import training_sentences
from silo_agent.data.records import Records
from silo_agent.models.layouts import model_terms
from silo_agent.update import FloatUpdate, GridUpdate
from tests.algorithms_world import (
    MODEL,
    SILOS,
    STEPS,
    descended,
    federation,
    records_of,
    run,
    task,
    terms,
)
from tests.federation import Federation
from tests.unit.sealsum.test_algorithms_catalogue import DP, FEDERATION, job, signed

JOB = Digest("ab" * 32)
BIG = model_terms("mlp", 6, (8, 4))
LAYERS: list[tuple[str, ...]] = [(), ("last",), ("layer1", "intercept"), ("layer2.weight",)]
ZERO = np.zeros(MODEL.parameters)


def _sparse(kind: str = "random", share: float = 0.4, feedback: bool = False) -> SparseTerms:
    return SparseTerms.model_validate({"kind": kind, "share": share, "feedback": feedback})


def _in(training: TrainingTerms, number: int, moved: Any = None) -> Sent:
    first = np.zeros(BIG.parameters, dtype=np.float32)
    now = first if moved is None else np.asarray(moved, dtype=np.float32)
    found = sent_in(training, BIG, JOB, number, now, first)
    assert found is not None
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["random", "top", None]),
    st.floats(0.001, 0.999),
    st.sampled_from(LAYERS),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_everybody_counts_and_picks_the_same_coordinates(
    kind: str | None, share: float, layers: tuple[str, ...], number: int, seed: int
) -> None:
    training = terms(
        sparse=None if kind is None else _sparse(kind, share), phases=(Phase(until=9, layers=layers),)
    )
    count = count_sent(training, BIG, number)
    spelt = json.loads(training.model_dump_json())
    asked = {"training": spelt, "model": json.loads(BIG.model_dump_json())}
    assert counted_by_the_verifier(asked, number) == count
    if count is None:
        return
    moved = np.random.default_rng(seed).normal(size=BIG.parameters)
    sent = _in(training, number, moved)
    assert len(sent.coordinates) == count
    assert np.all(np.diff(sent.coordinates) > 0)
    assert np.array_equal(sent.coordinates, _in(training, number, moved).coordinates)
    if layers and number <= 9:
        assert sent.trained is not None
        assert sent.trained[sent.coordinates].all()


def test_over_rounds_every_coordinate_is_drawn_about_as_often() -> None:
    times = np.zeros(BIG.parameters)
    for number in range(1, 401):
        times[_in(terms(sparse=_sparse(share=0.25)), number).coordinates] += 1
    # 400 / 4, six standard errors of √(400 · 3/16).
    assert np.all(np.abs(times - 100) < 52)


def test_top_sends_what_has_moved_most_and_leaves_nothing_out_for_ever() -> None:
    moved = np.linspace(0, 1, BIG.parameters)
    seen = np.zeros(BIG.parameters, dtype=bool)
    for number in range(1, 60):
        sent = _in(terms(sparse=_sparse("top", 0.2)), number, moved).coordinates
        half = int(np.ceil(np.ceil(0.2 * BIG.parameters) / 2))
        assert set(range(BIG.parameters - half, BIG.parameters)) <= set(sent.tolist())
        seen[sent] = True
    assert seen.all()


def test_a_round_moves_what_was_sent_and_nothing_else_also_under_momentum() -> None:
    training = terms(sparse=_sparse(share=0.5), server={"momentum": 0.9}, server_learning_rate=0.5)
    world = federation(training, rounds=6)
    standing = world.at(np.zeros(MODEL.parameters, dtype=np.float32))
    x, momentum = ZERO, ZERO
    for number in range(1, 7):
        sent = sent_in(training, MODEL, world.terms.job, number, standing.model, standing.first)
        assert sent is not None
        mask = sent.mask(MODEL.parameters)
        mean = np.mean([descended(x, records_of(one)) - x for one in range(4)], axis=0)
        momentum = np.where(mask, 0.9 * momentum + mean, momentum)
        x = x + np.where(mask, 0.5 * momentum, 0)
        standing = world.after_round(standing)
        np.testing.assert_allclose(standing.model, x, atol=3e-5)
    assert mask.sum() == 3


def test_what_was_not_sent_is_added_later_and_nothing_is_lost_whoever_drops_out() -> None:
    """Error feedback: what a silo has sent and what it still holds are all its updates."""
    training = terms(sparse=_sparse(share=0.3, feedback=True), learning_rate=0.05)
    world = federation(training, rounds=6)
    standing = world.at(np.zeros(MODEL.parameters, dtype=np.float32))
    made = dict.fromkeys(SILOS, ZERO)
    dropped = {3: [SILOS[0]], 4: [SILOS[0], SILOS[2]]}
    moved = ZERO
    for number in range(1, 7):
        gone = dropped.get(number, [])
        for place, silo in enumerate(SILOS):
            if silo not in gone:
                now = standing.model.astype(np.float64)
                made[silo] = made[silo] + descended(now, records_of(place), rate=0.05) - now
        before = standing
        standing = world.after_round(standing, gone)
        moved = moved + (4 - len(gone)) * (standing.model.astype(np.float64) - before.model)
        for silo in gone:
            if silo in before.memories:
                assert np.array_equal(
                    standing.memories[silo].arrays["unsent"], before.memories[silo].arrays["unsent"]
                ), "a silo that dropped out keeps what it had"
    held = sum(standing.memories[silo].arrays["unsent"].astype(np.float64) for silo in SILOS)
    np.testing.assert_allclose(moved + held, sum(made.values()), atol=5e-5)


@pytest.mark.slow
def test_feedback_gets_where_the_whole_update_does() -> None:
    plain = run(federation(terms(), rounds=12))[-1].model
    cut = run(federation(terms(sparse=_sparse(share=0.4, feedback=True)), rounds=24))[-1].model
    assert np.linalg.norm(cut - plain) < 0.25 * np.linalg.norm(plain)


def test_layers_that_a_phase_leaves_out_stay_where_they_are_and_come_back() -> None:
    training = terms(
        phases=(Phase(until=2, layers=("layer1.weight",)), Phase(until=4, layers=("intercept",)))
    )
    standings = run(federation(training, rounds=5))
    assert standings[1].model[-1] == 0.0
    assert np.all(standings[1].model[:-1] != 0.0)
    assert np.array_equal(standings[3].model[:-1], standings[1].model[:-1])
    assert standings[3].model[-1] != 0.0
    assert np.all(standings[4].model != standings[3].model)


def test_only_the_layers_of_a_phase_are_trained_at_the_silo_too() -> None:
    training = terms(phases=(Phase(until=1, layers=("intercept",)),))
    sent = sent_in(training, MODEL, JOB, 1, ZERO.astype(np.float32), None)
    update = update_of(task(training, sent=sent))
    assert isinstance(update, FloatUpdate)
    records = records_of(0)
    bias = 0.0
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-np.full(len(records), bias)))
        bias -= 0.5 * float(np.mean(chances - records.labels))
    np.testing.assert_allclose(update.values, [bias], atol=1e-5)


PRIVATE = DpTerms(
    unit="record", sample_rate=1.0, noise_multiplier=1e-9, clip_l2=1.0, normaliser=1.0, delta=1e-5
)


@pytest.mark.parametrize("layers", [(), ("layer1.weight",)])
@pytest.mark.parametrize("algorithm", ["dp_fedsgd", "dp_fedavg"])
def test_one_patient_more_moves_what_is_sent_by_no_more_than_the_clip(
    algorithm: str, layers: tuple[str, ...]
) -> None:
    """The gradient of a record that is far too long, cut to what is sent: within C, as a whole one is."""
    training = terms(
        algorithm,
        local_steps=1,
        learning_rate=1.0,
        sparse=_sparse(share=0.6),
        phases=(Phase(until=9, layers=layers),),
    )
    features = np.full((1, MODEL.inputs), 3.0, dtype=np.float32)
    records = Records(features, np.ones(1, dtype=np.float32))
    for number in range(1, 6):
        sent = sent_in(training, MODEL, JOB, number, ZERO.astype(np.float32), None)
        update = update_of(task(training, records=records, dp=PRIVATE, sent=sent, round=number))
        assert sent is not None
        values = update.steps / 2.0**24 if isinstance(update, GridUpdate) else update.values
        assert len(values) == len(sent.coordinates)
        assert 0.1 < np.linalg.norm(values) <= 1.0 + 1e-6


def test_under_dp_what_is_kept_is_of_the_noised_update() -> None:
    noisy = PRIVATE.model_copy(update={"noise_multiplier": 0.1})
    training = terms("dp_fedavg", local_steps=1, sparse=_sparse(share=0.4, feedback=True))
    sent = sent_in(training, MODEL, JOB, 1, ZERO.astype(np.float32), None)
    kept = [update_of(task(training, dp=noisy, sent=sent)).keep["unsent"] for _ in range(2)]
    outside = ~sent.mask(MODEL.parameters)  # type: ignore[union-attr]
    assert np.all(kept[0][outside] != kept[1][outside]), "no two of it are alike: noise is in all of it"


def test_a_plan_that_sums_another_number_than_the_job_says_is_refused() -> None:
    world = Federation()
    spec = world.job_spec(
        training=world.job_spec().training.model_copy(update={"sparse": _sparse(share=0.5)})
    )
    honest = world.plan(spec)
    assert (honest.sent, honest.vector_length) == (2, 3)
    assert not binding_findings(honest, spec, world.charter)
    for forged in (None, 1, 3):
        findings = binding_findings(world.plan(spec, sent=forged), spec, world.charter)
        assert [one.rule for one in findings] == ["altered_sent"]
    with pytest.raises(ValidationError, match="at most 3"):
        world.plan(spec, sent=4)


def test_bytes_fall_with_the_share_and_with_the_bits_and_are_told_by_phase() -> None:
    big = {"model": {"adapter": "mlp", "hidden": ["2000"]}}
    sizes = {
        name: planned_upload_bytes(signed(job({}, **big, compression=asked)), FEDERATION.charter)
        for name, asked in {
            "tenth": {"coordinates": "random", "share": "0.1"},
            "int8": {"bits": 8},
            "int4": {"bits": 4},
            "both": {"bits": 4, "coordinates": "top", "share": "0.1", "feedback": True},
        }.items()
    }
    whole = planned_upload_bytes(signed(job({}, **big)), FEDERATION.charter)
    assert whole == 4 * 6002
    assert sizes["tenth"] == 4 * 602
    assert sizes["int8"] == 4 * 2002
    assert sizes["int4"] == 4 * 1202
    assert sizes["both"] == 4 * (121 + 1)
    phases = [{"until": 2, "layers": ["last"]}, {"until": 4}]
    spec = signed(job({"phases": phases}, **big))
    assert upload_bytes_by_round(spec, FEDERATION.charter) == {1: 4 * 2002, 3: 4 * 6002}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"training": {"algorithm": "newton", "phases": [{"until": 2, "layers": ["last"]}]}},
            "none with newton",
        ),
        (
            {"training": {"algorithm": "scaffold"}, "compression": {"coordinates": "top", "share": "0.5"}},
            "control",
        ),
        (
            {
                "training": {"algorithm": "client_cache"},
                "compression": {"coordinates": "top", "share": "0.5"},
            },
            "cache|reuse",
        ),
        (
            {"training": {"algorithm": "mifa"}, "compression": {"coordinates": "random", "share": "0.5"}},
            "none with mifa",
        ),
        ({"training": {"phases": [{"until": 2, "layers": ["layer9"]}]}}, "which no tensor has"),
        (
            {
                "training": {},
                "dp": DP,
                "compression": {"coordinates": "random", "share": "0.5", "feedback": True},
            },
            "expected false with dp_fedsgd",
        ),
        (
            {
                "training": {},
                "compression": {"coordinates": "random", "share": "0.5"},
                "validity": {"norm_bound": "2.5"},
            },
            "whose proof is of all coordinates",
        ),
    ],
)
def test_what_needs_the_whole_model_is_refused_by_name(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        signed(job(**asked))


@pytest.mark.parametrize(
    ("compression", "said"),
    [
        ({}, "expected bits, coordinates or both"),
        ({"coordinates": "random"}, "share: expected it with coordinates"),
        ({"bits": 8, "feedback": True}, "feedback: expected it with coordinates only"),
        ({"coordinates": "random", "share": "0.1", "coordinate_bound": "1"}, "with bits only"),
    ],
)
def test_a_compression_that_says_half_of_something_is_refused(compression: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        job({}, compression=compression)


def test_who_approves_is_told_what_is_sent() -> None:
    asked = {"coordinates": "top", "share": "0.25", "feedback": True}
    said = " ".join(training_sentences(signed(job({}, compression=asked))))
    assert "25% of the model's coordinates, the same at all silos, half of them those" in said
    assert "what is not sent stays at the silo" in said
    phased = signed(job({"phases": [{"until": 2, "layers": ["last"]}]}))
    assert "only last move and are sent" in " ".join(training_sentences(phased))


def test_terms_without_such_fields_spell_none() -> None:
    world = Federation()
    plan = world.plan(world.job_spec())
    assert plan.sent is None
    assert "sent" not in json.loads(plan.model_dump_json())
    assert {"sparse", "phases"}.isdisjoint(json.loads(plan.model_dump_json())["training"])


def test_memories_of_two_rounds_are_of_one_model() -> None:
    held = Memory({"unsent": np.ones(MODEL.parameters, dtype=np.float32)}, 1)
    training = terms(sparse=_sparse(share=0.4, feedback=True), learning_rate=1e-9)
    sent = sent_in(training, MODEL, JOB, 1, ZERO.astype(np.float32), None)
    update = update_of(task(training, memory=held, sent=sent))
    assert isinstance(update, FloatUpdate)
    np.testing.assert_allclose(update.values, 1.0, atol=1e-6)
    np.testing.assert_allclose(update.keep["unsent"].sum(), MODEL.parameters - 2, atol=1e-5)
