"""The SDK believes the officer's charter and a model's digest, never the aggregator's word."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, Conflict, MalformedMessage, OutOfOrder, SignatureRejected
from privacy.ids import PartyId
from privacy.keystore import Identity
from privacy.plan import JobSpec
from privacy.update import model_bytes, model_digest
from privacy.wire.charter import EndorsedCharter, parse_charter
from privacy.wire.envelope import Envelope, open_envelope, parse_envelope
from sealsum.sdk import Dial, Federation
from silo_agent.transport import FederationClient
from tests.federation import Federation as World

ZEROS = np.zeros(3, dtype=np.float32)


@dataclass
class Aggregator:
    """Answers as the wire API says; ``views`` are given out one after the other, the last one for good."""

    charter: EndorsedCharter
    models: dict[str, bytes] = field(default_factory=dict)
    jobs: list[Envelope] = field(default_factory=list)
    views: list[dict[str, Any]] = field(default_factory=list)

    def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/charter":
            return httpx.Response(200, content=canonical_bytes(self.charter))
        if path.startswith("/v1/models/"):
            if request.method == "PUT":
                self.models[path.rpartition("/")[2]] = request.read()
                return httpx.Response(201)
            return httpx.Response(200, content=self.models[path.rpartition("/")[2]])
        if path == "/v1/jobs":
            self.jobs.append(parse_envelope(request.content))
            return httpx.Response(201, json={"job": "heart"})
        view = self.views[0]
        if int(request.url.params.get("after", -1)) >= view["version"]:
            if len(self.views) == 1:
                return httpx.Response(204)
            view = self.views[1]
            del self.views[0]
        return httpx.Response(200, json=view)

    def dial(self, identity: Identity, url: str) -> FederationClient:
        return FederationClient(identity, url, transport=httpx.MockTransport(self.handle), patience_s=0.1)


def view(version: int, state: str, model: str = "0" * 64, **more: Any) -> dict[str, Any]:
    return {
        "version": version,
        "job": "heart",
        "state": state,
        "round": version,
        "rounds": 2,
        "reason": "",
        "openings": 0,
        "refusals": [],
        "history": [],
        "model": model,
        "initial_model": "0" * 64,
        **more,
    }


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def aggregator(world: World) -> Aggregator:
    return Aggregator(world.endorsed_charter, views=[view(1, "waiting")])


@pytest.fixture
def state(world: World, tmp_path: Path) -> Path:
    directory = tmp_path / "researcher"
    world.identity("researcher", directory)
    return directory


def test_a_submitted_job_is_signed_and_its_model_uploaded(
    world: World, aggregator: Aggregator, state: Path
) -> None:
    spec = world.job_spec()
    with Federation.connect(state, dial=aggregator.dial) as federation:
        assert federation.submit(spec, ZEROS).now().state == "waiting"
    sent = open_envelope(
        aggregator.jobs[0],
        JobSpec,
        kind="job",
        context=world.charter.digest,
        verify_key_of=lambda party: world.charter.member(party).verify_key,
        max_bytes=1 << 20,
    )
    assert (sent.message, sent.sender) == (spec, "researcher")
    assert aggregator.models == {spec.initial_model: model_bytes(ZEROS)}


def test_submitting_twice_sends_the_same_bytes_and_other_terms_are_a_conflict(
    world: World, aggregator: Aggregator, state: Path
) -> None:
    with Federation.connect(state, dial=aggregator.dial) as federation:
        federation.submit(world.job_spec(), ZEROS)
        federation.submit(world.job_spec(), ZEROS)
        assert aggregator.jobs[0] == aggregator.jobs[1]
        with pytest.raises(Conflict, match="choose another name"):
            federation.submit(world.job_spec(rounds=3), ZEROS)
    assert len(aggregator.jobs) == 2


def test_a_job_for_another_model_or_charter_is_not_sent(
    world: World, aggregator: Aggregator, state: Path
) -> None:
    with Federation.connect(state, dial=aggregator.dial) as federation:
        with pytest.raises(ConfigurationError, match=r"job\.initial_model"):
            federation.submit(world.job_spec(), ZEROS + 1)
        with pytest.raises(ConfigurationError, match=r"job\.charter"):
            federation.submit(world.job_spec(charter="0" * 64), ZEROS)
    assert aggregator.jobs == []


def test_watching_ends_with_the_job_and_repeats_nothing(
    world: World, aggregator: Aggregator, state: Path
) -> None:
    aggregator.views = [view(1, "waiting"), view(2, "running"), view(5, "finished")]
    with Federation.connect(state, dial=aggregator.dial) as federation:
        seen = [(now.version, now.state) for now in federation.submit(world.job_spec(), ZEROS).watch()]
    assert seen == [(1, "waiting"), (2, "running"), (5, "finished")]


def test_the_model_is_the_one_its_digest_names(world: World, aggregator: Aggregator, state: Path) -> None:
    spec = world.job_spec()
    trained = np.array([1, 2, 3], dtype=np.float32)
    digest = model_digest(spec.model, [model_bytes(trained)])
    with Federation.connect(state, dial=aggregator.dial) as federation:
        job = federation.submit(spec, ZEROS)
        with pytest.raises(OutOfOrder, match="expected it finished, it is waiting"):
            job.model()
        aggregator.views = [view(2, "finished", digest)]
        aggregator.models[digest] = model_bytes(trained)
        assert np.array_equal(federation.job("heart").model(), trained)
        aggregator.models[digest] = model_bytes(trained + 1)
        with pytest.raises(SignatureRejected, match="model: expected digest"):
            job.model()


def test_a_view_of_another_job_is_refused(world: World, aggregator: Aggregator, state: Path) -> None:
    aggregator.views = [view(1, "running", job="other")]
    with (
        Federation.connect(state, dial=aggregator.dial) as federation,
        pytest.raises(MalformedMessage, match="expected job heart, got other"),
    ):
        federation.submit(world.job_spec(), ZEROS).now()


def test_a_job_unknown_here_is_named_and_a_path_is_no_name(aggregator: Aggregator, state: Path) -> None:
    with Federation.connect(state, dial=aggregator.dial) as federation:
        with pytest.raises(ConfigurationError, match="known here: none"):
            federation.job("heart")
        with pytest.raises(ConfigurationError, match="expected a name"):
            federation.job("../identity")


def refused_connection(state: Path, dial: Dial, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Federation.connect(state, dial=dial)


def test_a_charter_of_other_officers_is_refused(world: World, state: Path) -> None:
    impostor = Aggregator(World().endorsed_charter)
    refused_connection(state, impostor.dial, SignatureRejected, "not among the versions shown")


def test_an_older_charter_than_the_one_held_is_refused(
    world: World, aggregator: Aggregator, state: Path
) -> None:
    later = world.endorse(world.next_charter())
    Federation.connect(state, dial=Aggregator(later).dial).close()
    assert parse_charter((state / "charter.json").read_bytes()) == later
    refused_connection(state, aggregator.dial, OutOfOrder, "an older charter is never taken back")


def test_a_charter_that_does_not_list_us_with_our_key_is_refused(world: World, state: Path) -> None:
    members = tuple(
        member.model_copy(update={"verify_key": "ab" * 32}) if member.id == "researcher" else member
        for member in world.charter.members
    )
    left = (world.charter.member(PartyId("researcher")).verify_key,)
    other = Aggregator(world.endorse(world.next_charter(members=members, revoked=left)))
    refused_connection(state, other.dial, ConfigurationError, "does not list researcher as a researcher")


def test_only_researchers_connect(world: World, aggregator: Aggregator, tmp_path: Path) -> None:
    world.identity("silo-1", tmp_path / "silo")
    refused_connection(tmp_path / "silo", aggregator.dial, ConfigurationError, "enrolled as silo")


def test_without_a_charter_an_address_is_asked_for_once(aggregator: Aggregator, state: Path) -> None:
    (state / "charter.json").unlink()
    refused_connection(state, aggregator.dial, ConfigurationError, "--aggregator https")
    Federation.connect(state, aggregator_url="https://first.test", dial=aggregator.dial).close()
    dialled: list[str] = []

    def remember(identity: Identity, url: str) -> FederationClient:
        dialled.append(url)
        return aggregator.dial(identity, url)

    Federation.connect(state, dial=remember).close()
    assert dialled == ["https://aggregator.test"]
