"""Models, sharing and the outbox: vectors come back as they were, and what is stored is what is sent."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.findings import PolicyRefusal
from privacy.canonical import sha256_hex
from privacy.chain import EMPTY
from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.keystore import FederationPin, Identity
from privacy.plan import RoundPlan
from privacy.secagg.additive import SeedSumHalf, combine, ring_to_bytes, unseal_seed
from privacy.secagg.encoding import UpdateOutOfRange, decode
from privacy.secagg.parts import stretches
from privacy.wire.messages import ShareManifest
from silo_agent.delivery import Delivery
from silo_agent.encoded import EncodedUpdate
from silo_agent.models.adapters import (
    ADAPTERS,
    build_model,
    export_vector,
    find_adapter,
    predict_scores,
)
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.outbox import Contribution, Outbox, encode_seed
from silo_agent.schemes.additive import AdditiveHalf
from silo_agent.schemes.half import Seat
from silo_agent.update import FloatUpdate, GridUpdate
from tests.federation import AGGREGATOR, Federation

SILO = SiloId(PartyId("silo-1"))
SERVER = ServerId(PartyId("server-1"))
FEDERATION = Federation()
PIN = FederationPin(federation=FEDERATION.name, party=SILO, role="silo", officers=FEDERATION.officers.digest)


def _plan(parameters: int) -> RoundPlan:
    return FEDERATION.plan(FEDERATION.job_spec(parameters=parameters))


def _half(plan: RoundPlan) -> AdditiveHalf:
    """A half that deals with nobody: sealing and signing need no network."""
    return AdditiveHalf(
        Seat(
            plan=plan,
            silo=SILO,
            aggregator=AGGREGATOR,
            identity=Identity(Path("none"), PIN, FEDERATION.key(SILO), None),
            charter=FEDERATION.charter,
            policies=(),
            delivery=cast(Delivery, None),
            directory=Path("none"),
        )
    )


def _sealed(
    half: AdditiveHalf, plan: RoundPlan, update: NDArray[np.float32], weight: float = 1.0
) -> list[bytes]:
    return list(half.seal(EncodedUpdate(plan, FloatUpdate(update), weight), plan.model))


# --- models ---


@pytest.mark.parametrize(("adapter", "hidden"), [("logistic", ()), ("mlp", (4,)), ("mlp", (8, 3))])
def test_a_vector_loaded_into_a_model_is_exported_unchanged(adapter: str, hidden: tuple[int, ...]) -> None:
    terms = model_terms(adapter, 6, hidden)
    vector = np.random.default_rng(0).normal(size=terms.parameters).astype(np.float32)
    module = build_model(ADAPTERS[adapter], terms, vector)
    np.testing.assert_array_equal(export_vector(terms, module), vector)


def test_first_models_are_public_and_repeat() -> None:
    mlp, logistic = model_terms("mlp", 6, [4]), model_terms("logistic", 6)
    np.testing.assert_array_equal(initial_vector(mlp, 7), initial_vector(mlp, 7))
    assert np.any(initial_vector(mlp, 7) != initial_vector(mlp, 8))
    assert not np.any(initial_vector(logistic, 7))


def test_scores_are_the_models_logits() -> None:
    terms = model_terms("logistic", 2)
    vector = np.array([1.0, -2.0, 0.5], dtype=np.float32)
    features = np.array([[1, 1], [0, 2]], dtype=np.float32)
    np.testing.assert_allclose(predict_scores(ADAPTERS["logistic"], terms, vector, features), [-0.5, -3.5])


def test_terms_with_another_layout_are_refused() -> None:
    terms = model_terms("logistic", 2)
    altered = terms.model_copy(update={"layout": tuple(reversed(terms.layout))})
    with pytest.raises(PolicyRefusal, match=r"model\.layout"):
        build_model(ADAPTERS["logistic"], altered, np.zeros(3, dtype=np.float32))


def test_a_job_cannot_name_code_that_the_silo_does_not_list() -> None:
    with pytest.raises(PolicyRefusal, match=r"model\.adapter"):
        find_adapter("os:system", {})
    with pytest.raises(ConfigurationError, match="does not load"):
        find_adapter("own", {"own": "no_such_module:Class"})
    with pytest.raises(ConfigurationError, match="no layout and build"):
        find_adapter("own", {"own": "collections:OrderedDict"})
    assert find_adapter("own", {"own": "silo_agent.models.adapters:FeedForward"})


@pytest.mark.parametrize(("adapter", "hidden"), [("logistic", (3,)), ("mlp", ()), ("forest", ())])
def test_terms_that_fit_no_adapter_are_refused(adapter: str, hidden: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError):
        model_terms(adapter, 3, hidden)


# --- sharing ---


@given(st.integers(2, 40), st.floats(0.1, 1.0))
def test_the_shares_of_all_servers_add_up_to_the_weighted_update(parameters: int, weight: float) -> None:
    plan = _plan(parameters)
    update = np.linspace(-2, 2, parameters).astype(np.float32)
    half = _half(plan)
    [part] = _sealed(half, plan, update, weight)
    signed = half.manifest(EMPTY)
    manifest = ShareManifest.model_validate_json(signed.manifest.body)
    assert manifest.parts == (sha256_hex(part),)
    key = FEDERATION.parties["server-1"].sealing
    assert key is not None
    sealed = base64.b64decode(signed.seeds[SERVER])
    assert manifest.seeds == {SERVER: sha256_hex(sealed)}
    seed = unseal_seed(sealed, key, plan.context, plan.model, SILO, SERVER)
    masks = SeedSumHalf([(SILO, seed)], plan.context, plan.model, SERVER).total(0, plan.vector_length)
    opened = decode(combine([part, ring_to_bytes(masks)], plan.vector_length), plan.vector)
    step = 2.0**-plan.vector.scale_bits
    np.testing.assert_allclose(opened[:-1], weight * update.astype(np.float64), atol=step)
    assert opened[-1] == pytest.approx(weight, abs=step)


def test_a_vector_of_several_parts_is_shared_part_by_part() -> None:
    plan = _plan((1 << 21) + 5)
    half = _half(plan)
    sizes = [len(part) for part in _sealed(half, plan, np.zeros(plan.parameters, dtype=np.float32))]
    assert sizes == [stretch.size for stretch in stretches(plan.vector_length)] == [8 << 20, 24]
    assert len(ShareManifest.model_validate_json(half.manifest(EMPTY).manifest.body).parts) == 2


@pytest.mark.parametrize("poison", [np.nan, np.inf, 4.1, -4.1])
def test_an_update_out_of_range_is_refused_never_clipped(poison: float) -> None:
    plan = _plan(3)
    with pytest.raises(UpdateOutOfRange):
        _sealed(_half(plan), plan, np.array([0.0, poison, 0.0], dtype=np.float32))


def test_an_element_is_encoded_once_and_in_order() -> None:
    plan = _plan(3)
    update = EncodedUpdate(plan, FloatUpdate(np.zeros(3, dtype=np.float32)), 1.0)
    with pytest.raises(SealsumError, match="expected elements from 0"):
        update.elements(1, 2)
    update.elements(0, 4)
    with pytest.raises(SealsumError, match="expected elements from 4"):
        update.elements(0, 4)


def test_a_manifest_before_or_after_other_than_one_drawing_is_a_bug() -> None:
    plan = _plan(3)
    half = _half(plan)
    with pytest.raises(SealsumError, match="drawn once"):
        half.manifest(EMPTY)
    _sealed(half, plan, np.zeros(3, dtype=np.float32))
    _sealed(half, plan, np.zeros(3, dtype=np.float32))
    with pytest.raises(SealsumError, match="drawn once"):
        half.manifest(EMPTY)


def test_an_update_of_another_length_is_a_bug() -> None:
    with pytest.raises(SealsumError, match="expected an update of 3 coordinates"):
        EncodedUpdate(_plan(3), FloatUpdate(np.zeros(4, dtype=np.float32)), 1.0)


def test_what_is_on_the_grid_is_encoded_as_it_is() -> None:
    plan = _plan(3)
    steps = np.array([0.0, 4.0 * 2**20, -5.0])
    encoded = EncodedUpdate(plan, GridUpdate(steps), 1.0).elements(0, 4)
    assert encoded.view(np.int32).tolist() == [0, 4 << 20, -5, 1 << 20]


@pytest.mark.parametrize("poison", [np.nan, np.inf, 4.0 * 2**20 + 1, -1e30])
def test_a_step_beyond_the_bound_is_refused_never_wrapped(poison: float) -> None:
    update = EncodedUpdate(_plan(3), GridUpdate(np.array([0.0, poison, 0.0])), 1.0)
    with pytest.raises(UpdateOutOfRange):
        update.elements(0, 4)


def test_what_is_on_the_grid_takes_no_weight() -> None:
    with pytest.raises(SealsumError, match="expected weight 1"):
        EncodedUpdate(_plan(3), GridUpdate(np.zeros(3)), 0.5)


# --- outbox ---

CONTEXT = Context(Digest("ab" * 32))


def _contribution() -> Contribution:
    plan = _plan(3)
    job = FEDERATION.sign_job(FEDERATION.job_spec())
    shared = FEDERATION.share(plan, SILO)
    return Contribution(
        offer=FEDERATION.offer(plan, job),
        manifest=shared.envelope,
        seeds={server: encode_seed(sealed) for server, sealed in shared.sealed_seeds.items()},
    )


def test_a_stored_contribution_reads_back_byte_for_byte(tmp_path: Path) -> None:
    outbox, contribution = Outbox(tmp_path / "outbox"), _contribution()
    outbox.put_parts(CONTEXT, [b"one", b"two"])
    outbox.complete(CONTEXT, contribution)
    [stored] = Outbox(tmp_path / "outbox").pending()
    assert stored.context == CONTEXT
    assert list(stored.parts()) == [(0, b"one"), (1, b"two")]
    assert stored.contribution == contribution


def test_parts_without_their_contribution_are_dropped_not_sent(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.put_parts(CONTEXT, [b"one"])
    assert outbox.pending() == ()
    assert outbox.drop_incomplete() == (CONTEXT,)
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_complete_contribution_never_changes(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.put_parts(CONTEXT, [b"one"])
    outbox.complete(CONTEXT, _contribution())
    with pytest.raises(SealsumError, match="must not change"):
        outbox.put_parts(CONTEXT, [b"other"])
    outbox.remove(CONTEXT)
    assert outbox.pending() == ()
