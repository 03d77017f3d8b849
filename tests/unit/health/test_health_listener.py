"""The health listener: on loopback unless told otherwise, and never ready where a check fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from policies.health import checks
from policies.health.checks import Check, assert_room
from policies.health.listener import HealthListener
from policies.health.meters import Meters
from policies.health.settings import HealthSettings
from privacy.errors import ConfigurationError, SealsumError
from tests.health_world import get, value

ANYWHERE = HealthSettings(listen="127.0.0.1:0")


def refuse() -> str:
    raise SealsumError("disk: it is full; make room")


def listener(tmp_path: Path, look: Callable[[], str], alive: bool = True) -> HealthListener:
    meters = Meters("silo", tmp_path)
    fine = Check("fine", lambda: "as it must be")
    return HealthListener(ANYWHERE, meters, [fine, Check("disk", look)], lambda: None, lambda: alive)


def test_a_process_whose_checks_hold_is_ready(tmp_path: Path) -> None:
    with listener(tmp_path, lambda: "roomy") as health:
        assert get(health.url, "/livez").status_code == 200
        assert get(health.url, "/readyz").json() == {"status": "ready"}
        verbose = get(health.url, "/readyz?verbose").json()
        assert verbose["checks"][1] == {"check": "disk", "ok": True, "said": "roomy"}
        assert value(get(health.url, "/metrics").text, "sealsum_ready") == 1
        assert get(health.url, "/state").status_code == 404


def test_one_check_that_fails_makes_it_not_ready_and_says_why(tmp_path: Path) -> None:
    with listener(tmp_path, refuse) as health:
        answer = get(health.url, "/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"] == [
            {"check": "disk", "ok": False, "said": "disk: it is full; make room"}
        ]
        metrics = get(health.url, "/metrics").text
        assert value(metrics, "sealsum_check_ok", check="disk") == 0
        assert value(metrics, "sealsum_check_ok", check="fine") == 1
        assert value(metrics, "sealsum_ready") == 0


def test_a_stuck_process_is_not_alive(tmp_path: Path) -> None:
    with listener(tmp_path, lambda: "", alive=False) as health:
        assert get(health.url, "/livez").status_code == 503


@pytest.mark.parametrize("listen", ["0.0.0.0:9464", "[::]:9464", "10.0.0.7:9464"])
def test_an_address_that_others_reach_takes_a_line_of_its_own(listen: str) -> None:
    with pytest.raises(ValidationError, match="expected a loopback address"):
        HealthSettings(listen=listen)
    assert HealthSettings(listen=listen, exposed=True).listen == listen


@pytest.mark.parametrize("listen", ["example.org:1", "127.0.0.1:70000", "9464", "300.1.1.1:2"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(ValidationError):
        HealthSettings(listen=listen)


def test_an_address_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with listener(tmp_path, lambda: "") as health:
        taken = HealthSettings(listen=health.url.removeprefix("http://"))
        with pytest.raises(ConfigurationError, match=r"health\.listen: 127\.0\.0\.1:\d+: Address already"):
            HealthListener(taken, Meters("silo", tmp_path), [], lambda: None)


def test_a_state_directory_without_room_or_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "MiB free" in assert_room(tmp_path, 0)
    monkeypatch.setattr(checks, "free_bytes", lambda _directory: 10 << 20)
    with pytest.raises(ConfigurationError, match="at least 256 MiB free, got 10 MiB"):
        assert_room(tmp_path, 256 << 20)
    with pytest.raises(ConfigurationError, match="expected a directory that can be written to"):
        assert_room(tmp_path / "gone", 0)
