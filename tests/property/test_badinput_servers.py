"""For every endpoint and whatever is sent to it: no 5xx, no traceback, and a problem under a request id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aggregator.access import Endpoint
from aggregator.web_errors import install_problems
from tests.bad_input import TABLES, BadInputWorld, Sent, drawn

EXAMPLES = 6
ENDPOINTS = [(server, endpoint) for server, table in TABLES.items() for endpoint in table]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BadInputWorld]:
    made = BadInputWorld(tmp_path_factory.mktemp("servers"))
    yield made
    made.close()


def assert_answered_in_form(answer: httpx.Response) -> None:
    """An answer, or a refusal that says no more than it should."""
    assert answer.status_code < 500, answer.text
    assert answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("server", "endpoint"),
    ENDPOINTS,
    ids=[f"{server} {' '.join(endpoint)}" for server, endpoint in ENDPOINTS],
)
def test_whatever_is_sent_gets_an_answer_or_a_refusal_by_name(
    world: BadInputWorld, server: str, endpoint: Endpoint
) -> None:
    callers = world.may_call(TABLES[server][endpoint])
    requests = st.one_of([st.tuples(st.just(who), world.requests(server, endpoint, who)) for who in callers])

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(drawn(lambda: requests))
    def whatever_comes(said: tuple[str, Sent]) -> None:
        assert_answered_in_form(world.send(server, *said))

    whatever_comes()


@pytest.mark.parametrize("server", ["aggregator", "share_server"])
def test_a_stranger_gets_a_refusal_in_form_whatever_it_sends(world: BadInputWorld, server: str) -> None:
    closed = [endpoint for endpoint, row in TABLES[server].items() if not row.anyone]
    requests = st.one_of([world.requests(server, endpoint, "") for endpoint in closed])

    @settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(drawn(lambda: requests))
    def whatever_comes(sent: Sent) -> None:
        answer = world.send(server, "", sent)
        assert_answered_in_form(answer)
        assert answer.status_code in (401, 404)

    whatever_comes()


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ("silo-1.round-7_2", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("short", False),
        ("with a space", False),
        ("{curly-brackets}", False),
        ("übernommen", False),
    ],
)
def test_a_callers_request_id_is_taken_if_it_is_one_plain_word(
    world: BadInputWorld, caplog: pytest.LogCaptureFixture, sent: str, taken: bool
) -> None:
    for who, path in (
        ("", "/v1/nothing"),
        ("", "/v1/log"),
        ("silo-1", "/v1/nothing"),
        ("silo-1", "/v1/jobs"),
    ):
        caplog.clear()
        post = Sent("POST", path, {}, {"x-request-id": sent}, b"")
        answer = world.send("aggregator", who, post)
        assert_answered_in_form(answer)
        assert (answer.headers["x-request-id"] == sent) == taken
        logged = [vars(record)["request_id"] for record in caplog.records if hasattr(record, "request_id")]
        assert logged == [answer.headers["x-request-id"]]


def test_a_method_that_a_path_does_not_have_is_told_which_it_has(world: BadInputWorld) -> None:
    answer = world.send("aggregator", "silo-1", Sent("DELETE", "/v1/offers", {}, {}, b""))
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert_answered_in_form(answer)


@pytest.mark.parametrize(
    "header", [{"content-digest": "sha-256=:ß" + "A" * 42 + ":"}, {"content-length": "9" * 5000}]
)
def test_a_header_that_is_no_text_of_its_kind_is_malformed(
    world: BadInputWorld, header: dict[str, str]
) -> None:
    path = f"/v1/rounds/{world.plan.context}/parts/0"
    answer = world.send("share_server", "silo-1", Sent("PUT", path, {}, header, b""))
    assert_answered_in_form(answer)
    assert answer.json()["type"] == "urn:sealsum:malformed-message"


def test_a_failure_of_ours_has_a_request_id_and_tells_no_more(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI(openapi_url=None)
    install_problems(app)

    @app.get("/fails")
    async def fails() -> None:
        raise ZeroDivisionError("the secret is a hedgehog")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://server.test") as client:
            return await client.get("/fails")

    answer = asyncio.run(ask())
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert answer.headers.get_list("x-request-id") == [answer.json()["request_id"]]
    assert "hedgehog" not in answer.text
    logged = [vars(record) for record in caplog.records if record.getMessage() == "request_failed"]
    assert [entry["request_id"] for entry in logged] == [answer.headers["x-request-id"]]
