"""Transport claims: refusals arrive as our exceptions, only passing faults are retried, bodies are capped."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from privacy.errors import (
    ConfigurationError,
    Conflict,
    MalformedMessage,
    NotAllowed,
    NotFound,
    OutOfOrder,
    PeerFault,
    SignatureRejected,
    TooLarge,
    Unprocessable,
)
from privacy.keystore import Identity
from silo_agent.egress import Egress
from silo_agent.problems import Unreachable
from silo_agent.transport import FederationClient

Handler = Callable[[httpx.Request], httpx.Response]


class _TlsOnly:
    """As much of an identity as the transport may look at."""

    client_context = ssl.create_default_context()


def _client(
    handler: Handler, patience_s: float = 5.0, stopping: threading.Event | None = None
) -> FederationClient:
    return FederationClient(
        cast(Identity, _TlsOnly()),
        "https://aggregator.example:8443",
        patience_s=patience_s,
        stopping=stopping,
        transport=httpx.MockTransport(handler),
    )


def _problem(status: int, kind: str, detail: str = "why") -> httpx.Response:
    body = {
        "type": f"urn:sealsum:{kind}",
        "title": "no",
        "status": status,
        "detail": detail,
        "request_id": "r-1",
    }
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "malformed-message", MalformedMessage),
        (401, "signature-rejected", SignatureRejected),
        (403, "not-allowed", NotAllowed),
        (404, "not-found", NotFound),
        (409, "out-of-order", OutOfOrder),
        (409, "conflict", Conflict),
        (413, "too-large", TooLarge),
        (422, "unprocessable", Unprocessable),
        (422, "something-newer", Unprocessable),
        (418, "teapot", PeerFault),
    ],
)
def test_a_problem_document_becomes_the_exception_of_its_kind(
    status: int, kind: str, expected: type[PeerFault]
) -> None:
    calls = []

    def refuse(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return _problem(status, kind)

    with pytest.raises(
        PeerFault, match=r"aggregator\.example:8443/v1/x: \d+ no: why \(request r-1\)"
    ) as caught:
        _client(refuse).get_bytes("/v1/x", limit=100)
    assert type(caught.value) is expected
    assert len(calls) == 1, "a refusal is an answer: it is not asked again"


def test_a_refusal_without_a_problem_document_is_named_by_its_status() -> None:
    with pytest.raises(NotAllowed, match="403"):
        _client(lambda request: httpx.Response(403, text="<html>")).get_bytes("/v1/x", limit=100)


def test_a_peers_words_cannot_forge_a_log_line() -> None:
    with pytest.raises(NotFound) as caught:
        _client(lambda request: _problem(404, "not-found", 'x\n{"event":"\x1b[31m"}')).get_bytes(
            "/v1/x", limit=9
        )
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_passing_outage_is_retried(status: int) -> None:
    answers: Iterator[httpx.Response] = iter([httpx.Response(status), httpx.Response(200, content=b"ok")])
    assert _client(lambda request: next(answers)).get_bytes("/v1/x", limit=100) == b"ok"


def test_a_lost_connection_is_retried_with_the_same_bytes() -> None:
    bodies: list[bytes] = []

    def lose_the_first_response(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        if len(bodies) == 1:
            raise httpx.ReadError("connection reset")
        return httpx.Response(200)

    _client(lose_the_first_response).put_part("c" * 64, 3, b"part")
    assert bodies == [b"part", b"part"]


def test_an_outage_beyond_patience_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="503"):
        _client(lambda request: httpx.Response(503), patience_s=0.0).get_bytes("/v1/x", limit=100)

    def refuse_connection(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Unreachable, match="no answer \\(ConnectError\\)"):
        _client(refuse_connection, patience_s=0.0).get_bytes("/v1/x", limit=100)


def test_a_certificate_that_does_not_verify_is_not_tried_again() -> None:
    calls = []

    def distrust(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        raise httpx.ConnectError("tls") from ssl.SSLCertVerificationError("unknown CA")

    with pytest.raises(Unreachable, match="certificate"):
        _client(distrust).get_bytes("/v1/x", limit=100)
    assert len(calls) == 1


def test_stopping_ends_the_retries() -> None:
    stopping = threading.Event()

    def fail_and_stop(request: httpx.Request) -> httpx.Response:
        stopping.set()
        return httpx.Response(503)

    with pytest.raises(Unreachable):
        _client(fail_and_stop, patience_s=3600.0, stopping=stopping).get_bytes("/v1/x", limit=100)


def test_a_body_beyond_its_limit_is_refused_before_it_is_whole() -> None:
    with pytest.raises(TooLarge, match="at most 10 bytes"):
        _client(lambda request: httpx.Response(200, content=b"x" * 11)).get_bytes("/v1/x", limit=10)


def test_a_stream_lands_in_the_file_even_after_a_failed_try(tmp_path: Path) -> None:
    answers: Iterator[httpx.Response] = iter([httpx.Response(503), httpx.Response(200, content=b"model")])
    target = tmp_path / "model"
    assert _client(lambda request: next(answers)).stream_to("/v1/models/x", target, limit=100) == 5
    assert target.read_bytes() == b"model"


def test_a_stream_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLarge):
        _client(lambda request: httpx.Response(200, content=b"12345")).stream_to(
            "/m", tmp_path / "m", limit=4
        )


def test_a_part_travels_with_its_digest() -> None:
    seen: list[httpx.Request] = []

    def keep(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201)

    _client(keep).put_part("c" * 64, 7, b"part")
    digest = base64.b64encode(hashlib.sha256(b"part").digest()).decode()
    assert seen[0].url.path == f"/v1/rounds/{'c' * 64}/parts/7"
    assert seen[0].headers["Content-Digest"] == f"sha-256=:{digest}:"


def test_a_file_is_put_with_its_length(tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.write_bytes(b"m" * 3_000_000)
    seen: list[tuple[str, int]] = []

    def keep(request: httpx.Request) -> httpx.Response:
        seen.append((request.headers["Content-Length"], len(request.read())))
        return httpx.Response(201)

    _client(keep).put_file("/v1/models/x", source, params={"architecture": "a"})
    assert seen == [("3000000", 3_000_000)]


def test_a_long_poll_without_news_is_none_and_says_how_long_it_waits() -> None:
    seen: list[httpx.Request] = []

    def nothing(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    assert _client(nothing).poll_envelope("/v1/offers", wait_s=20, params={"after": "c"}) is None
    assert dict(seen[0].url.params) == {"after": "c", "wait_s": "20"}


def test_an_answer_that_is_not_an_envelope_is_malformed() -> None:
    client = _client(lambda request: httpx.Response(200, content=json.dumps({"kind": "offer"}).encode()))
    with pytest.raises(MalformedMessage):
        client.get_envelope("/v1/charter")


def test_a_redirect_is_not_followed() -> None:
    client = _client(lambda request: httpx.Response(307, headers={"Location": "https://elsewhere.example/"}))
    with pytest.raises(PeerFault, match="307"):
        client.get_bytes("/v1/x", limit=10)


def test_only_https_is_dialled() -> None:
    with pytest.raises(ConfigurationError, match="expected https://"):
        FederationClient(cast(Identity, _TlsOnly()), "http://aggregator.example")


def test_no_proxy_overrules_the_configured_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "aggregator.example")
    egress = Egress("http://proxy:3128")
    assert egress.proxy_to("aggregator.example") is None
    proxy = egress.proxy_to("elsewhere.example")
    assert proxy is not None
    assert proxy.url == "http://proxy:3128"
