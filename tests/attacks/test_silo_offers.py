"""A hostile coordinator's offers: each refused at the silo, before anything is fetched, charged or read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from policies.findings import PolicyRefusal
from policies.loader import load_threat_model
from privacy.chain import EMPTY
from privacy.dp.events import round_event
from privacy.errors import (
    MalformedMessage,
    NotAllowed,
    OutOfOrder,
    SealsumError,
    SignatureRejected,
    Unprocessable,
)
from privacy.ids import Digest, PartyId, SiloId
from privacy.plan import DpTerms, JobSpec, RoundPlan, TrainingTerms
from privacy.wire.envelope import Envelope
from silo_agent.data.records import Records
from silo_agent.ledger.admission import Costs, Quote
from silo_agent.ledger.ledger import Reserved
from silo_agent.participation import (
    Invitation,
    Site,
    charge_for,
    check_model,
    clear_offer,
    open_offer,
    paid_work,
    work_of,
)
from silo_agent.settings import DatasetSettings
from silo_agent.training.here import weight_of
from silo_agent.update import GridUpdate
from tests.federation import Federation, demo_policy_text
from tests.unit.policies.policies_terms import bent

FEDERATION = Federation()
JOB = FEDERATION.job_spec()
DATASET = DatasetSettings(path=Path("cardio.csv"), purpose=("test",), patient_id="patient")


def _site(own: str | None = None, **changes: Any) -> Site:
    text = demo_policy_text()
    fields: dict[str, Any] = {
        "silo": SiloId(PartyId("silo-1")),
        "verify_key": FEDERATION.key("silo-1").verify_key,
        "charter": FEDERATION.charter,
        "policies": (load_threat_model(text), load_threat_model(own or text)),
        "datasets": {"cardio": DATASET},
        **changes,
    }
    return Site(**fields)


def _offer(plan: RoundPlan | None = None, job: JobSpec = JOB, sender: str = "aggregator") -> Envelope:
    return FEDERATION.offer(plan or FEDERATION.plan(job), FEDERATION.sign_job(job), sender=sender)


def _clear(envelope: Envelope, site: Site | None = None, last_round: int = 0) -> Invitation:
    site = site or _site()
    return clear_offer(site, *open_offer(envelope, site.charter), last_round)


def test_an_honest_offer_is_cleared() -> None:
    invitation = _clear(_offer())
    assert invitation.job == JOB
    charge = charge_for(invitation)
    assert charge is not None
    assert charge.context == invitation.plan.context
    assert JOB.dp is not None
    assert charge.event == round_event(JOB.dp, JOB.training)


def _looser(**changes: float) -> DpTerms:
    assert JOB.dp is not None
    return JOB.dp.model_copy(update=changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"dp": None},
        {"dp": _looser(noise_multiplier=0.5)},
        {"dp": _looser(clip_l2=1.0e3)},
        {"dp": _looser(sample_rate=1.0)},
        {"training": JOB.training.model_copy(update={"local_steps": 50})},
        {"training": JOB.training.model_copy(update={"weights": "examples"})},
        {"min_survivors": 2},
        {"model_architecture": None},
        {"policy": "0" * 64},
        {"charter": "0" * 64},
        {"roster_epoch": 7},
        {"silos": ["silo-1", "silo-2"]},
    ],
    ids=str,
)
def test_a_plan_that_differs_from_the_signed_job_or_charter_is_refused(changes: dict[str, Any]) -> None:
    if "model_architecture" in changes:
        changes = {"architecture": "0" * 64}
    with pytest.raises(PolicyRefusal):
        _clear(_offer(FEDERATION.plan(JOB, **changes)))


def test_the_silos_own_stricter_threat_model_refuses_what_the_federations_admits() -> None:
    stricter = demo_policy_text().replace("round: 1.0, job: 3.0", "round: 0.05, job: 0.1")
    assert stricter != demo_policy_text()
    with pytest.raises(PolicyRefusal, match="epsilon"):
        _clear(_offer(), _site(own=stricter))


@pytest.mark.parametrize("sender", ["server-0", "silo-2", "researcher"])
def test_an_offer_of_anybody_but_the_aggregator_is_refused(sender: str) -> None:
    with pytest.raises(PolicyRefusal, match="offer_sender"):
        _clear(_offer(sender=sender))


def test_a_job_signed_by_the_aggregator_is_refused() -> None:
    plan = FEDERATION.plan(JOB)
    envelope = FEDERATION.offer(plan, FEDERATION.sign_job(JOB, "aggregator"))
    with pytest.raises(PolicyRefusal, match="job_sender"):
        _clear(envelope)


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (lambda one: one.model_copy(update={"signature": "00" * 64}), SignatureRejected),
        (
            lambda one: one.model_copy(update={"body": one.body.replace('"round":1', '"round":2')}),
            SignatureRejected,
        ),
        (lambda one: one.model_copy(update={"context": "0" * 64}), SignatureRejected),
        (lambda one: one.model_copy(update={"sender": "nobody"}), NotAllowed),
        (lambda one: FEDERATION.sign(JOB, "offer", one.context, "aggregator"), MalformedMessage),
    ],
    ids=["signature", "body", "context", "sender", "kind"],
)
def test_a_forged_offer_is_refused(
    forge: Callable[[Envelope], Envelope], expected: type[SealsumError]
) -> None:
    with pytest.raises(expected):
        _clear(forge(_offer()))


def test_a_job_of_another_charter_is_refused() -> None:
    stale = FEDERATION.sign(JOB, "job", FEDERATION.charter.policy, "researcher")
    with pytest.raises(SignatureRejected, match="context"):
        _clear(FEDERATION.offer(FEDERATION.plan(JOB), stale))


def test_a_round_no_later_than_the_last_is_refused() -> None:
    with pytest.raises(OutOfOrder, match="expected one after 1"):
        _clear(_offer(), last_round=1)


def test_a_plan_without_this_silo_is_refused() -> None:
    plan = FEDERATION.plan(JOB, silos=["silo-2", "silo-3", "silo-4"])
    with pytest.raises(PolicyRefusal, match="not_invited"):
        _clear(_offer(plan))


def test_a_job_that_counts_other_units_than_the_silos_patients_is_refused() -> None:
    rows = DATASET.model_copy(update={"patient_id": "mrn"})
    with pytest.raises(PolicyRefusal, match=r"dataset\.patient_id"):
        _clear(_offer(), _site(datasets={"cardio": rows}))


# --- evidence ---


def test_a_model_other_than_the_plans_is_refused_by_its_hash() -> None:
    invitation = _clear(_offer())
    good = FEDERATION.initial_model()
    assert check_model(invitation, good).digest == invitation.plan.model
    for other in (np.array([0, 0, 1e-30], dtype="<f4").tobytes(), good[:-4], good + b"\0\0\0\0", b""):
        with pytest.raises(Unprocessable, match="model"):
            check_model(invitation, other)


def test_training_takes_the_reservation_of_this_very_round() -> None:
    invitation = _clear(_offer())
    other = _clear(_offer(FEDERATION.plan(JOB, session="ff" * 16))).plan.context
    paid = charge_for(invitation)
    assert paid is not None
    nothing = Quote(Costs(0, 0, 0), Costs(0, 0, 0), 0)
    for unpaid in (
        None,
        Reserved(replace(paid, context=other), (1, 1), True, nothing, EMPTY),
        Reserved(
            replace(paid, event=paid.event.model_copy(update={"steps": 1})), (1, 1), True, nothing, EMPTY
        ),
    ):
        with pytest.raises(SealsumError, match="expected a reservation for this round"):
            paid_work(work_of(invitation, _site()), unpaid)


def test_a_plan_with_dp_never_tells_the_number_of_records() -> None:
    invitation = _clear(_offer())
    for count in (50, 51, 5000):
        records = Records(np.zeros((count, 2), dtype=np.float32), np.zeros(count, dtype=np.float32))
        assert weight_of(invitation.plan, records, GridUpdate(np.zeros(3))) == 1.0


def test_a_schema_that_the_datas_owner_has_not_read_is_refused() -> None:
    reviewed = DATASET.model_copy(update={"schemas": (JOB.data.digest,)})
    assert _clear(_offer(), _site(datasets={"cardio": reviewed})).job == JOB
    other = DATASET.model_copy(update={"schemas": (Digest("0" * 64),)})
    with pytest.raises(PolicyRefusal, match=r"dataset\.schema"):
        _clear(_offer(), _site(datasets={"cardio": other}))


def test_a_job_that_protects_records_is_not_charged_to_a_ledger_that_counts_patients() -> None:
    """Else a threat model without DP admits a job that protects a patient less than its ε says."""
    curious = {"behaviour": "honest_but_curious", "colludes_with_silos": 0}
    among_friends = {"assume.recipient.kind": "silos", "assume.network.tls_inspection": False}
    no_dp = {"require.dp": "none", "assume.aggregator": curious, "release.model.to": "silos"}
    text = bent({**among_friends, **no_dp})
    federation = Federation(policy_text=text)
    assert JOB.dp is not None
    job = federation.job_spec(dp=JOB.dp.model_copy(update={"unit": "record"}))
    offer = federation.offer(federation.plan(job), federation.sign_job(job))
    policy = load_threat_model(text)
    site = _site(
        charter=federation.charter, verify_key=federation.key("silo-1").verify_key, policies=(policy, policy)
    )
    with pytest.raises(PolicyRefusal, match=r"dataset\.unit"):
        _clear(offer, site)


@pytest.mark.parametrize("field", ["learning_rate", "server_learning_rate"])
def test_a_step_size_that_float32_cannot_hold_is_not_a_job(field: str) -> None:
    """torch would raise in the middle of training, and end the agent of every silo."""
    terms = {"local_steps": 1, "learning_rate": 0.1, "server_learning_rate": 1.0, field: 1e39}
    with pytest.raises(ValidationError, match="less than or equal to"):
        TrainingTerms.model_validate(terms)
