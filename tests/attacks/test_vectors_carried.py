"""Attacks on rounds with several vectors: shared keystreams, parts out of place, vectors nobody signed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sealsum_verify.encoding import Fault, canonical
from sealsum_verify.messages import Roster
from sealsum_verify.offers import Job, read_offers
from sealsum_verify.rounds import check_further, read_round

from aggregator.received import open_manifest
from policies.findings import PolicyRefusal
from policies.gates import admit_plan, admit_update
from policies.loader import load_threat_model
from policies.rules_binding import binding_findings
from policies.rules_plan import limit_findings
from privacy.canonical import sha256_hex
from privacy.errors import Unprocessable
from privacy.ids import PartyId, SiloId
from privacy.plan import JobSpec, RoundPlan, VectorTerms
from privacy.secagg import additive
from privacy.secagg.additive import AdditiveSiloHalf
from privacy.secagg.pairwise import masks
from privacy.secagg.pairwise.masks import own_mask, pair_mask
from privacy.secagg.vectors import VectorName, vectors_of
from privacy.vector_terms import FurtherVector
from privacy.wire.messages import RoundResult
from silo_agent.encoded import EncodedUpdate
from silo_agent.participation import Site, clear_offer, open_offer
from silo_agent.results import open_result
from silo_agent.settings import DatasetSettings
from silo_agent.update import FloatUpdate
from tests.aggregator_world import client_of, on_loop
from tests.federation import Federation
from tests.vectors_world import (
    CONTROL,
    MEASURED,
    METRICS_VECTOR,
    NO_DP,
    STATISTICS,
    MeasuringSilo,
    SharingSilo,
    VectorsWorld,
    with_metrics,
    without_dp,
)

GRID = VectorTerms(coordinate_bound=4.0, scale_bits=20)
ALIKE = FurtherVector(name="offsets", coordinates=5, terms=GRID)
"""As long as the model's vector of five parameters, and at its scale."""
LAST = "silo-4"


def _plan(federation: Federation, **terms: Any) -> tuple[JobSpec, RoundPlan]:
    spec = federation.job_spec(**terms)
    return spec, federation.plan(spec, further=spec.further)


# --- keystreams ---


def _shares_of_zeros() -> list[additive.Ring]:
    """What server 0 gets of vectors that are zero but for their weights: bare keystream."""
    federation = Federation(policy_text=without_dp("hospitals"))
    _, plan = _plan(federation, parameters=5, **NO_DP, further=(ALIKE,))
    zero = np.zeros(5, dtype=np.float32)
    update = EncodedUpdate(plan, FloatUpdate(zero, {VectorName("offsets"): FloatUpdate(zero)}), 1.0)
    keys = {slot.server: federation.charter.member(slot.server).sealing_key for slot in plan.servers[1:]}
    names = tuple(vectors_of(plan).lengths)
    half = AdditiveSiloHalf(plan.context, plan.model, SiloId(PartyId("silo-1")), keys, names)
    return [half.share(0, update.elements(0, 6, name), name) for name in names]


def test_no_two_vectors_leave_a_silo_under_one_keystream(monkeypatch: pytest.MonkeyPatch) -> None:
    model, control = _shares_of_zeros()
    assert not np.any(model == control), "their difference would be that of the vectors"
    # What a key for the round instead of the vector would have let server 0 see:
    monkeypatch.setattr(additive, "purpose_for", lambda purpose, vector: purpose)
    model, control = _shares_of_zeros()
    assert np.array_equal(model, control)


def test_no_two_vectors_are_masked_alike_in_pairwise(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, names = sha256_hex(b"K"), (SiloId(PartyId("silo-1")), SiloId(PartyId("silo-2")))

    def bare(vector: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        stream = np.zeros(64, dtype=np.uint32)
        name = VectorName(vector)
        own_mask(b"s" * 32, digest, digest, digest, names[0], name).apply(0, stream)  # type: ignore[arg-type]
        pair_mask(b"p" * 32, digest, digest, digest, *names, name).apply(0, stream)  # type: ignore[arg-type]
        return stream

    assert not np.any(bare("model") == bare("offsets"))
    monkeypatch.setattr(masks, "purpose_for", lambda purpose, vector: purpose)
    assert np.array_equal(bare("model"), bare("offsets"))


# --- parts in another's place ---


class _Rearranging(SharingSilo):
    """Uploads two vectors' parts in each other's place."""

    def uploaded(self, parts: list[bytes]) -> list[bytes]:
        return parts[::-1]


@on_loop
async def test_parts_of_two_vectors_in_each_others_place_are_refused_by_name(tmp_path: Path) -> None:
    world = VectorsWorld(tmp_path, Federation(policy_text=without_dp("hospitals")))
    names = world.federation.charter.silos
    silos = [(_Rearranging if name == LAST else SharingSilo)(world, name, 0.5) for name in names]
    outcome = await world.run_job(world.spec(**NO_DP, further=(ALIKE,)), silos)
    (fault,) = silos[-1].faults
    assert "part 0 here is not the one the manifest names" in str(fault)
    (round_,) = outcome.view["history"]
    assert (round_["outcome"], round_["survivors"]) == ("opened", list(names[:3]))
    np.testing.assert_allclose(round_["further"]["offsets"], 0.25, atol=3 * 2.0**-20)


@pytest.mark.parametrize(
    "change",
    [lambda parts: parts[:-1], lambda parts: (*parts, parts[-1]), lambda parts: (parts[0],)],
    ids=["one omitted", "one doubled", "the model's alone"],
)
def test_a_manifest_with_a_vector_too_few_or_too_many_is_refused(change: Any) -> None:
    federation = Federation(policy_text=without_dp("hospitals"))
    spec, plan = _plan(federation, **NO_DP, further=(CONTROL, STATISTICS))
    policy = load_threat_model(federation.policy_text)
    job = federation.sign_job(spec)
    admitted = admit_plan(
        [policy], *open_offer(federation.offer(plan, job), federation.charter), federation.charter
    )
    shared = federation.share(plan, LAST)
    whole = (*shared.manifest.parts, sha256_hex(b"offsets"), sha256_hex(b"statistics"))

    def judged(parts: tuple[str, ...]) -> None:
        message = shared.manifest.model_copy(update={"parts": parts})
        envelope = federation.sign(message, "manifest", plan.context, LAST)
        admit_update(admitted, _verified(federation, plan, envelope))

    judged(whole)
    with pytest.raises(PolicyRefusal, match="manifest_length"):
        judged(change(whole))


def _verified(federation: Federation, plan: RoundPlan, envelope: Any) -> Any:
    return open_manifest(federation.charter, plan, SiloId(PartyId(LAST)), envelope)


# --- vectors that nobody signed, lists or charges ---


def test_a_plan_with_a_vector_that_its_job_did_not_sign_is_refused() -> None:
    federation = Federation(policy_text=without_dp("hospitals"))
    spec, _ = _plan(federation, **NO_DP)
    plan = federation.plan(spec, further=(STATISTICS,))
    rules = [finding.rule for finding in binding_findings(plan, spec, federation.charter)]
    assert rules == ["altered_further"]


def test_a_plan_that_leaves_out_or_widens_a_signed_vector_is_refused() -> None:
    federation = Federation(policy_text=without_dp("hospitals"))
    spec, _ = _plan(federation, **NO_DP, further=(STATISTICS,))
    wider = STATISTICS.model_copy(update={"coordinates": 4})
    for further in ((), (wider,), (STATISTICS, CONTROL)):
        plan = federation.plan(spec, further=further)
        assert [one.rule for one in binding_findings(plan, spec, federation.charter)] == ["altered_further"]


def _limits(text: str, **terms: Any) -> list[str]:
    federation = Federation(policy_text=text)
    _, plan = _plan(federation, parameters=3, **terms)
    policy = load_threat_model(text)
    return [finding.rule for finding in limit_findings(policy, plan, federation.charter)]


def test_metrics_leave_only_by_the_names_that_a_threat_model_lists() -> None:
    listed = with_metrics("hospitals")
    assert _limits(listed, **MEASURED) == []
    assert _limits(listed.replace("names: [accuracy, loss]", "names: [loss]"), **MEASURED) == [
        "metric_withheld"
    ]
    withheld = listed.replace("{names: [accuracy, loss], dp: charged}", "{names: [], dp: withheld}")
    assert _limits(withheld, **MEASURED) == ["metric_withheld", "metric_withheld"]


def test_under_dp_no_vector_is_opened_that_nothing_charges() -> None:
    terms = MEASURED | {"further": (METRICS_VECTOR, STATISTICS)}
    assert _limits(with_metrics("hospitals"), **terms) == ["further_uncharged"]


@pytest.mark.parametrize(
    ("terms", "rule"),
    [
        ({"scale_bits": 2, "coordinate_bound": 256.0}, "metrics_grid"),
        ({"scale_bits": 14, "coordinate_bound": 8.0}, "metrics_headroom"),
        ({"scale_bits": 22, "coordinate_bound": 256.0}, "ring"),
    ],
)
def test_metrics_on_an_unsound_grid_are_refused(terms: dict[str, Any], rule: str) -> None:
    vector = METRICS_VECTOR.model_copy(update={"terms": VectorTerms(**terms)})
    assert rule in _limits(with_metrics("hospitals"), **(MEASURED | {"further": (vector,)}))


def test_metrics_make_a_job_too_dear_that_its_gradient_alone_would_not() -> None:
    text = with_metrics("hospitals")
    dear = MEASURED["dp"].model_copy(
        update={"metrics": MEASURED["dp"].metrics.model_copy(update={"noise_multiplier": 0.8})}
    )
    assert set(_limits(text, **(MEASURED | {"dp": dear}))) >= {"epsilon_round"}


def test_a_silo_refuses_vectors_that_its_algorithm_does_not_compute(tmp_path: Path) -> None:
    """Before anything is charged: an agent that found out after training would have paid for nothing."""
    federation = Federation(policy_text=without_dp("hospitals"))
    spec, plan = _plan(federation, **NO_DP, further=(STATISTICS,))
    offer = open_offer(federation.offer(plan, federation.sign_job(spec)), federation.charter)
    dataset = DatasetSettings.model_construct(
        purpose=("test",), patient_id="patient", schemas=(), budget=None
    )
    site = Site(
        SiloId(PartyId("silo-1")),
        federation.key("silo-1").verify_key,
        federation.charter,
        (load_threat_model(federation.policy_text),),
        {"cardio": dataset},
    )
    with pytest.raises(PolicyRefusal, match=r"offer\.vectors"):
        clear_offer(site, *offer, 0)


# --- what a verifier and a silo make of it ---


@on_loop
async def test_the_verifier_reads_a_round_with_metrics_and_no_altered_one(tmp_path: Path) -> None:
    world = VectorsWorld(tmp_path, Federation(policy_text=with_metrics("hospitals")))
    spec = world.spec(parameters=3, **MEASURED)
    silos = [MeasuringSilo(world, name, 0.0) for name in world.federation.charter.silos]
    aggregator = world.build_aggregator()
    aggregator.state.store.close()
    await world.run_job(spec, silos)
    aggregator = world.build_aggregator()
    async with client_of(aggregator.app, world.federation.certificate_der("researcher")) as client:
        evidence = (await client.get("/v1/jobs/heart/evidence")).json()
    aggregator.state.store.close()
    charter = world.federation.charter.model_dump(mode="json")
    members = {member["id"]: member for member in charter["members"]}
    roster = Roster(world.federation.charter.digest, charter, members)
    job = Job(evidence["job"], spec.model_dump(mode="json"), spec.digest)

    def read(round_: dict[str, Any]) -> None:
        (offer,) = read_offers({"rounds/0001.json": canonical(round_)}, roster, job)
        read_round(offer, roster)

    (round_,) = evidence["rounds"]
    read(round_)
    (offer,) = read_offers({"rounds/0001.json": canonical(round_)}, roster, job)
    result = json.loads(round_["result"]["body"])
    check_further(offer, result, True)
    values = result["further"]["metrics"]
    for altered in (
        {"metrics": values[:-1]},
        {"metrics": [*values[:-1], "0.00001"]},
        {"metrics": [*values[:-1], "4096.0"]},
        {"metrics": values, "statistics": ["1.0"]},
        {},
    ):
        with pytest.raises(Fault, match="further"):
            check_further(offer, result | {"further": altered}, True)
    unsigned = copy.deepcopy(job.terms)
    del unsigned["further"]
    with pytest.raises(Fault, match=r"plan\.further"):
        read_offers({"rounds/0001.json": canonical(round_)}, roster, Job(job.envelope, unsigned, job.digest))


@on_loop
async def test_a_silo_does_not_believe_a_result_that_leaves_out_a_vector(tmp_path: Path) -> None:
    federation = Federation(policy_text=with_metrics("hospitals"))
    _, plan = _plan(federation, parameters=3, **MEASURED)
    honest = RoundResult(
        outcome="opened", reason="4 of 4 silos", survivors=plan.silos, model_in=plan.model,
        model_out=plan.model, openings=1, job_state="running", further={"metrics": (1.0, 2.0, 3.0)},
    )  # fmt: skip
    for changes, fits in (({}, True), ({"further": {}}, False), ({"further": {"metrics": (1.0,)}}, False)):
        envelope = federation.sign(honest.model_copy(update=changes), "result", plan.context, "aggregator")
        if fits:
            open_result(envelope, plan, federation.charter)
            continue
        with pytest.raises(Unprocessable, match="further"):
            open_result(envelope, plan, federation.charter)
