"""What comes with a round's result is used, and judged exactly as if it had been asked for."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privacy.keystore import load_identity
from privacy.plan import JobSpec, RoundPlan
from privacy.wire.envelope import Envelope
from privacy.wire.next_round import CarriedModel, NextRound
from silo_agent.agent import EXIT_DONE, Agent
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import read_settings
from tests.unit.silo_agent.loopback import Loopback, patients


class Carrying(Loopback):
    """Servers that send the next round's offer and its model along with each result."""

    job_spec: JobSpec
    raw: bytes

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.asked: list[str] = []
        self.forge: Any = lambda envelope: envelope
        handler: Any = self.server.RequestHandlerClass
        answered = handler.do_GET

        def counted(request: Any) -> None:
            self.asked.append(request.path.split("?")[0].split("/")[2])
            answered(request)

        handler.do_GET = counted

    def following(self, result: Envelope) -> bytes:
        plan = self.plans[result.context]  # type: ignore[index]  # a digest that is a context
        if plan.round == plan.rounds:
            return super().following(result)
        coming = next((one for one in self.plans.values() if one.round == plan.round + 1), None)
        if coming is None:
            coming = self.federation.plan(self.job_spec, plan.round + 1)
            self.plans[coming.context] = coming
        offer = self.forge(self.federation.offer(coming, self.federation.sign_job(self.job_spec)))
        model = CarriedModel(digest=coming.model, raw=base64.b64encode(self.raw))
        return NextRound(result=result, offer=offer, model=model).model_dump_json().encode()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Carrying]:
    loopback = Carrying(tmp_path)
    yield loopback
    loopback.close()


def _run(servers: Carrying, tmp_path: Path, rounds: int = 3) -> tuple[int, RoundPlan]:
    config = servers.silo_files(tmp_path, patients(80))
    servers.job_spec = servers.job(rounds=rounds)
    servers.raw = getattr(servers, "raw", servers.models[servers.job_spec.initial_model])
    first = servers.open_round(servers.job_spec)
    settings = read_settings(config)
    agent = Agent(settings, load_identity(settings.state_dir), load_own_policy(settings))
    try:
        return agent.run(until_idle=True), first
    finally:
        agent.close()


def test_a_job_asks_for_one_offer_and_its_first_and_last_model_whatever_its_rounds(
    servers: Carrying, tmp_path: Path
) -> None:
    code, _ = _run(servers, tmp_path)
    assert code == EXIT_DONE
    assert (servers.asked.count("offers"), servers.asked.count("models")) == (1, 2)
    assert servers.asked.count("rounds") == 3
    assert len([path for path in servers.uploads if path.endswith("/parts/0")]) == 3
    assert not servers.refusals


def test_another_model_than_the_offers_that_came_along_is_refused_by_name(
    servers: Carrying, tmp_path: Path
) -> None:
    servers.ended = True
    raw = servers.federation.initial_model(3)
    servers.raw = raw[:-1] + bytes([raw[-1] ^ 1])
    _run(servers, tmp_path)
    assert servers.refusals[0].rule == "model.digest"
    assert len([path for path in servers.uploads if path.endswith("/parts/0")]) == 1


def test_an_offer_that_came_along_is_judged_as_any_other(servers: Carrying, tmp_path: Path) -> None:
    servers.forge = lambda offer: offer.model_copy(update={"signature": "00" * 64})
    servers.ended = True
    _run(servers, tmp_path)
    assert "sign" in servers.refusals[0].sentence
    assert len([path for path in servers.uploads if path.endswith("/parts/0")]) == 1


def test_a_large_share_goes_ahead_of_its_manifest_and_a_small_one_along(
    servers: Carrying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silo_agent.delivery.INLINE_BYTES", 8)
    _, plan = _run(servers, tmp_path, rounds=1)
    base = f"/v1/rounds/{plan.context}"
    [vector] = servers.uploads[f"{base}/manifests#vector"]
    assert b'"parts":[]' in vector
    assert len(servers.uploads[f"{base}/parts/0"]) == 1
