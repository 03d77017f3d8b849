"""A download that breaks goes on where it broke, with the very bytes that it began with, or begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from privacy.canonical import sha256_hex
from privacy.errors import MalformedMessage, TooLarge
from silo_agent.transport import FederationClient
from tests.unit.silo_agent.test_silo_transport import Handler, _client

MODEL = bytes(range(256)) * 4096 * 3
PIECE = 1 << 20
"""What the transport hands on at a time; of a piece that broke nothing is kept."""
TAG = f'"{sha256_hex(MODEL)}"'


class Cut(httpx.SyncByteStream):
    """A body whose connection breaks in the middle."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __iter__(self) -> Iterator[bytes]:
        yield self._raw
        raise httpx.RemoteProtocolError("peer closed the connection")


def fetched(handler: Handler, target: Path, limit: int = len(MODEL)) -> bytes:
    client: FederationClient = _client(handler)
    assert client.stream_to("/v1/models/x", target, limit=limit) == target.stat().st_size
    return target.read_bytes()


def test_a_model_that_broke_twice_comes_whole_and_no_byte_of_it_twice(tmp_path: Path) -> None:
    asked, sent = [], 0

    def server(request: httpx.Request) -> httpx.Response:
        nonlocal sent
        asked.append((request.headers.get("range"), request.headers.get("if-range")))
        start = int((request.headers.get("range") or "bytes=0-")[6:-1])
        piece = MODEL[start : start + PIECE]
        sent += len(piece)
        whole = start + len(piece) == len(MODEL)
        place = {"content-range": f"bytes {start}-{len(MODEL) - 1}/{len(MODEL)}"} if start else {}
        body = httpx.ByteStream(piece) if whole else Cut(piece)
        return httpx.Response(206 if start else 200, headers={"etag": TAG, **place}, stream=body)

    assert fetched(server, tmp_path / "model") == MODEL
    assert asked == [(None, None), (f"bytes={PIECE}-", TAG), (f"bytes={2 * PIECE}-", TAG)]
    assert sent == len(MODEL)


def test_a_server_that_has_other_bytes_meanwhile_sends_them_from_the_first(tmp_path: Path) -> None:
    answers = iter(
        [
            httpx.Response(200, headers={"etag": '"old"'}, stream=Cut(bytes(PIECE))),
            httpx.Response(200, headers={"etag": TAG}, content=MODEL),
        ]
    )
    assert fetched(lambda _request: next(answers), tmp_path / "model") == MODEL


def test_a_rest_that_is_gone_is_fetched_anew(tmp_path: Path) -> None:
    answers = iter(
        [
            httpx.Response(200, headers={"etag": TAG}, stream=Cut(MODEL)),
            httpx.Response(416),
            httpx.Response(200, headers={"etag": TAG}, content=MODEL),
        ]
    )
    assert fetched(lambda _request: next(answers), tmp_path / "model") == MODEL


@pytest.mark.parametrize(
    "headers",
    [
        {"etag": TAG, "content-range": "bytes 0-1048578/1048579"},
        {"etag": '"other"', "content-range": "bytes 1048576-1048578/1048579"},
        {"content-range": "bytes 1048576-1048578/1048579"},
        {"etag": TAG},
    ],
)
def test_another_part_than_was_asked_for_is_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    answers = iter(
        [
            httpx.Response(200, headers={"etag": TAG}, stream=Cut(bytes(PIECE))),
            httpx.Response(206, headers=headers, content=b"abc"),
        ]
    )
    with pytest.raises(MalformedMessage, match="expected the part"):
        fetched(lambda _request: next(answers), tmp_path / "model")


def test_a_weak_tag_promises_nothing_and_the_limit_holds_over_all_pieces(tmp_path: Path) -> None:
    weak = iter(
        [httpx.Response(200, headers={"etag": 'W/"x"'}, stream=Cut(bytes(PIECE))), httpx.Response(200)]
    )
    seen = []

    def server(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("range"))
        return next(weak)

    fetched(server, tmp_path / "model")
    assert seen == [None, None]
    rest = {"etag": TAG, "content-range": f"bytes {PIECE}-{PIECE + 8}/{PIECE + 9}"}
    long = iter(
        [
            httpx.Response(200, headers={"etag": TAG}, stream=Cut(bytes(PIECE))),
            httpx.Response(206, headers=rest, content=b"nine more"),
        ]
    )
    with pytest.raises(TooLarge, match="at most 1048580 bytes"):
        fetched(lambda _request: next(long), tmp_path / "model", limit=PIECE + 4)
