"""A person's call for a token whose answer was lost is made once more, under the same key."""

from __future__ import annotations

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from sealsum.login.client import PersonClient, Proof
from silo_agent.problems import Unreachable
from tests.federation import Federation


def client_over(answers: list[httpx.Response | None], asked: list[tuple[str, bytes]]) -> PersonClient:
    """A server that gives these answers; ``None`` is lost on the way."""

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append((request.headers.get("idempotency-key", ""), request.content))
        answer = answers.pop(0)
        if answer is None:
            raise httpx.ReadError("lost", request=request)
        return answer

    ca = Federation().ca.certificate.public_bytes(Encoding.PEM).decode()
    return PersonClient("https://server.test", ca, Proof(bearer="x"), httpx.MockTransport(handle))


def test_a_lost_answer_is_asked_for_again_under_the_same_key_and_each_call_has_its_own() -> None:
    asked: list[tuple[str, bytes]] = []
    issued = httpx.Response(201, json={"id": "1"})
    with client_over([None, issued, httpx.Response(201, json={"id": "2"})], asked) as client:
        assert client.post_safely("/v1/tokens", {"days": 7}) == {"id": "1"}
        assert client.post_safely("/v1/tokens", {"days": 7}) == {"id": "2"}
    assert asked[0] == asked[1]
    assert asked[0][0] != asked[2][0]


def test_a_server_that_does_not_answer_twice_is_said_to_be_unreachable() -> None:
    asked: list[tuple[str, bytes]] = []
    with client_over([None, None], asked) as client, pytest.raises(Unreachable, match="no answer"):
        client.post_safely("/v1/tokens", {"days": 7})
    assert len(asked) == 2
