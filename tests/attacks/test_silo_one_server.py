"""What the one server gets of a silo that leaves a round early: no second beginning, and no charge."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
import yaml

from policies.loader import load_threat_model
from privacy.errors import OutOfOrder
from privacy.ids import Context, PartyId, SiloId
from privacy.keystore import load_identity
from privacy.plan import JobSpec, RoundPlan
from privacy.update import model_digest
from privacy.wire.envelope import Envelope
from silo_agent.approvals.desk import ApprovalDesk
from silo_agent.attendance import Attendance
from silo_agent.ledger.books import Books
from silo_agent.models.layouts import model_terms
from silo_agent.own_policy import load_own_policy
from silo_agent.participation import Site
from silo_agent.problems import WentOn
from silo_agent.settings import read_settings
from silo_agent.training.here import trainer_here
from tests.federation import Federation, demo_policy_text
from tests.silo_yaml import approving, registered
from tests.unit.silo_agent.loopback import patients

FEDERATION = Federation(silos=4, servers=0, policy_text=demo_policy_text("pairwise"))
SILO = SiloId(PartyId("silo-1"))


class GoesOn:
    """The calls of a silo whose round goes on without it once it has advertised its keys."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.sent: list[str] = []

    share_servers: Mapping[str, Any] = MappingProxyType({})

    @property
    def aggregator(self) -> GoesOn:
        return self

    def post_json(self, _path: str, _document: dict[str, Any]) -> bytes:
        """A cosignature: taken."""
        return b""

    def fetch_model(self, digest: str, parameters: int, scratch: Path) -> bytes:
        return self.model

    def send_step(self, context: Context, step: str, messages: Sequence[Envelope]) -> None:
        self.sent.append(step)

    def await_step(self, context: Context, step: str) -> tuple[Envelope, ...]:
        raise WentOn(f"step {step}: the round is over")


def job() -> JobSpec:
    terms = model_terms("logistic", 2)
    first = model_digest(terms, [FEDERATION.initial_model(terms.parameters)])
    return FEDERATION.job_spec(scheme="pairwise", model=terms, initial_model=first)


@contextmanager
def agent(directory: Path) -> Iterator[tuple[Attendance, Books, Site]]:
    """As an agent's start puts it together from its disk."""
    settings = read_settings(directory / "silo.yaml")
    identity, own = load_identity(settings.state_dir), load_own_policy(settings)
    books = Books(identity, settings, own, datetime.now(UTC))
    desk = ApprovalDesk(settings, identity, load_own_policy(settings))
    desk.meet(FEDERATION.charter)
    attendance = Attendance(settings, identity, books, desk, threading.Event(), trainer_here)
    site = Site(
        silo=SILO,
        verify_key=identity.signing.verify_key,
        charter=FEDERATION.charter,
        policies=(load_threat_model(FEDERATION.policy_text), own),
        datasets=settings.datasets,
    )
    try:
        yield attendance, books, site
    finally:
        attendance.close()
        books.close()


@pytest.fixture
def offered(tmp_path: Path) -> tuple[Envelope, RoundPlan, GoesOn]:
    """A silo on disk, and a round that it is offered."""
    FEDERATION.identity(SILO, tmp_path / "state")
    (tmp_path / "cardio.csv").write_text(patients(80))
    settings = {
        "state_dir": "state",
        "aggregator_url": "https://aggregator.test",
        "threat_model": "demo-pairwise",
        "datasets": {"cardio": registered()},
        "approval_rules": approving("cardio"),
    }
    (tmp_path / "silo.yaml").write_text(yaml.safe_dump(settings))
    spec = job()
    plan = FEDERATION.plan(spec, threshold=3)
    raw = FEDERATION.initial_model(spec.model.parameters)
    return FEDERATION.offer(plan, FEDERATION.sign_job(spec)), plan, GoesOn(raw)


def take_part(running: tuple[Attendance, Books, Site], offer: Envelope, calls: GoesOn) -> Any:
    attendance, _, site = running
    return attendance.take_part(offer, site, cast("Any", calls))


def test_a_round_that_ends_before_the_update_exists_is_not_charged_and_never_begun_again(
    tmp_path: Path, offered: tuple[Envelope, RoundPlan, GoesOn]
) -> None:
    offer, plan, calls = offered
    secrets = tmp_path / "state" / "secrets" / plan.context
    with agent(tmp_path) as running:
        with pytest.raises(WentOn):
            take_part(running, offer, calls)
        assert calls.sent == ["keys"]
        assert running[1].last_round(plan.job_digest) == 0, "nothing is reserved before peers have agreed"
        assert secrets.is_dir()
        with pytest.raises(OutOfOrder, match="expected one after 1"):
            take_part(running, offer, calls)
    # The same after a crash: what is left of the round goes, the memory that it was begun stays.
    with agent(tmp_path) as running:
        assert running[0].drop_incomplete() == (plan.context,)
        assert not secrets.exists()
        with pytest.raises(OutOfOrder, match="expected one after 1"):
            take_part(running, offer, calls)
    assert calls.sent == ["keys"], "no second keys are made for a round"


def test_a_round_that_is_over_leaves_no_secret(
    tmp_path: Path, offered: tuple[Envelope, RoundPlan, GoesOn]
) -> None:
    offer, plan, calls = offered
    with agent(tmp_path) as running:
        with pytest.raises(WentOn):
            take_part(running, offer, calls)
        running[0].forget(plan.context)
        assert list((tmp_path / "state" / "secrets").iterdir()) == []
