"""A health listener that strangers reach: they fill no memory, hold no thread for long, and leave room."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from policies.health import bounds
from policies.health.checks import Check
from policies.health.listener import HealthListener
from policies.health.meters import Meters
from policies.health.settings import HealthSettings


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HealthListener]:
    monkeypatch.setattr(bounds, "REQUEST_S", 0.5)
    meters = Meters("silo", tmp_path)
    checks = (Check("there", lambda: "yes"),)
    settings = HealthSettings(listen="127.0.0.1:0")
    with HealthListener(settings, meters, checks, lambda: None) as one:
        yield one


def _dial(listener: HealthListener) -> socket.socket:
    _, _, place = listener.url.rpartition("/")
    host, _, port = place.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _ended(connection: socket.socket) -> bool:
    """Whether the other side has closed, or does within the socket's timeout."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return True


def test_a_byte_now_and_then_holds_no_connection(listener: HealthListener) -> None:
    with _dial(listener) as slow:
        slow.settimeout(0.05)
        gone = False
        for _ in range(200):
            try:
                slow.sendall(b"G")
                gone = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                gone = True
            if gone:
                break
        assert gone


def test_a_head_without_end_is_let_go_of(listener: HealthListener) -> None:
    with _dial(listener) as long:
        try:
            for _ in range(100):
                long.sendall(b"GET /livez HTTP/1.1\r\n" if _ == 0 else b"X-Long: " + b"x" * 4000 + b"\r\n")
        except OSError:
            return  # let go of while it was sending
        assert _ended(long)


def test_beyond_its_bound_one_address_is_closed_at_once_and_makes_room_when_it_goes(
    listener: HealthListener,
) -> None:
    held = [_dial(listener) for _ in range(bounds.CONNECTIONS_OF_ONE_MAX)]
    with _dial(listener) as one_more:
        one_more.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert _ended(one_more)
    for connection in held:
        connection.close()
    for _ in range(100):
        try:
            assert httpx.get(listener.url + "/livez", trust_env=False).status_code == 200
            break
        except httpx.TransportError:
            time.sleep(0.05)
    else:
        raise AssertionError("there was no room again")


def test_an_ordinary_probe_is_answered(listener: HealthListener) -> None:
    for path in ("/livez", "/readyz?verbose", "/metrics"):
        assert httpx.get(listener.url + path, trust_env=False).status_code == 200
