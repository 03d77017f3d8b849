"""``sealsum silo run`` as IT sees it: signals, exit codes, and a log in which no secret shows."""

from __future__ import annotations

import base64
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from privacy.errors import ConfigurationError
from privacy.keystore import load_identity
from sealsum.cli import cli
from silo_agent import footing
from silo_agent.footing import assert_private
from silo_agent.ledger.books import ledger_path
from tests.silo_yaml import registered
from tests.unit.silo_agent.loopback import Loopback, patients

CANARY = "canary-5be0"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """The command sets signal handlers and the root logger, which are the whole process's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    root.handlers[:], root.level = handlers, level


def silo_run(config: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, ["silo", "run", "--config", str(config), *more])


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]


def in_the_background(*steps: Callable[[], None]) -> threading.Thread:
    """These, one after the other, while the agent has the main thread, which alone gets signals."""

    def run() -> None:
        try:
            for step in steps:
                step()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def edited(config: Path, **changes: Any) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))


def test_sighup_takes_up_changed_settings_and_sigterm_ends_with_0(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    (tmp_path / "more.csv").write_text(patients(80))

    def change() -> None:
        servers.wait_until(lambda: servers.polls > 0)
        datasets = {"cardio": registered(), "lungs": registered(path="more.csv")}
        edited(config, datasets=datasets)
        os.kill(os.getpid(), signal.SIGHUP)

    polls = servers.polls
    thread = in_the_background(change, lambda: servers.wait_until(lambda: servers.polls > polls + 1))
    result = silo_run(config)
    thread.join()
    assert result.exit_code == 0, result.stderr
    starts = [one["datasets"] for one in events(result) if one["event"] == "starting"]
    assert starts == [["cardio"], ["cardio", "lungs"]]
    assert "reloaded" in {one["event"] for one in events(result)}


def test_settings_that_cannot_be_read_leave_those_in_force(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))

    def spoil() -> None:
        servers.wait_until(lambda: servers.polls > 0)
        config.write_text("datasets: 7")
        os.kill(os.getpid(), signal.SIGHUP)

    def see_it_goes_on() -> None:
        seen = servers.polls
        servers.wait_until(lambda: servers.polls > seen)

    thread = in_the_background(spoil, see_it_goes_on)
    result = silo_run(config)
    thread.join()
    assert result.exit_code == 0
    names = [one["event"] for one in events(result)]
    assert names.count("starting") == 1
    assert "reload_failed" in names


def test_what_is_wrong_here_ends_with_78_and_names_the_path(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    state = tmp_path / "state"
    (state / "identity.key").chmod(0o640)
    keys = silo_run(config)
    assert (keys.exit_code, str(state / "identity.key") in keys.stderr) == (78, True)
    (state / "identity.key").chmod(0o600)
    state.chmod(0o755)
    open_to_all = silo_run(config)
    assert (open_to_all.exit_code, f"chmod 700 {state}" in open_to_all.stderr) == (78, True)
    state.chmod(0o700)
    (tmp_path / "cardio.csv").unlink()
    data = silo_run(config)
    assert (data.exit_code, "cardio.csv" in data.stderr) == (78, True)
    assert silo_run(tmp_path / "nowhere.yaml").exit_code == 78


def test_a_full_or_read_only_state_directory_ends_with_78(
    servers: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    with monkeypatch.context() as full:
        full.setattr("policies.health.checks.free_bytes", lambda _path: 1 << 20)
        result = silo_run(config)
        assert (result.exit_code, "got 1 MiB; make room" in result.stderr) == (78, True)

    def read_only(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("policies.health.checks.tempfile.NamedTemporaryFile", read_only)
    result = silo_run(config)
    assert (result.exit_code, "Read-only file system" in result.stderr) == (78, True)
    assert str(tmp_path / "state") in result.stderr


def test_a_state_directory_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(footing, "private_directory", refuse)
    with pytest.raises(ConfigurationError, match=r"state_dir: .*state: cannot be made .*Permission denied"):
        assert_private(tmp_path / "state")


def test_nobody_there_ends_with_2_and_no_budget_with_4(servers: Loopback, tmp_path: Path) -> None:
    budget = {"epsilon": {"round": 0.01, "job": 0.01, "lifetime": 0.01}, "delta_max": 1e-4}
    cardio = registered(budget=budget)
    config = servers.silo_files(tmp_path, patients(80), datasets={"cardio": cardio})
    servers.open_round(servers.job())
    assert silo_run(config, "--until-idle").exit_code == 4
    stranger = Loopback(tmp_path / "stranger", name="elsewhere")
    edited(config, aggregator_url=stranger.url)
    result = silo_run(config, "--until-idle")
    stranger.close()
    assert (result.exit_code, "TLS is opened on the way" in result.stderr) == (2, True)


def test_a_ledger_that_does_not_verify_ends_with_5(servers: Loopback, tmp_path: Path) -> None:
    config = servers.silo_files(tmp_path, patients(80))
    servers.open_round(servers.job(rounds=1))
    assert silo_run(config, "--until-idle").exit_code == 0
    ledger = ledger_path(tmp_path / "state", "cardio")
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join([lines[0], *lines[2:]]))
    result = silo_run(config, "--until-idle")
    assert (result.exit_code, "cardio" in result.stderr.splitlines()[-1]) == (5, True), result.stderr


def test_no_secret_is_in_logs_metrics_files_or_messages(
    servers: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canaries: the keys, the proxy's password, patients' ids and an environment variable."""
    rows = patients(80).replace("p1,", f"{CANARY}-patient,")
    assert CANARY in rows
    config = servers.silo_files(
        tmp_path,
        rows,
        proxy="http://proxy.invalid:3128",
        proxy_credentials="env:SEALSUM_PROXY",
        log_level="debug",
        health={"listen": "127.0.0.1:0"},
    )
    state = tmp_path / "state"
    identity = load_identity(state)
    assert identity.sealing is not None
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SEALSUM_PROXY", f"ada:{CANARY}-password")
    pem = identity.signing.to_pem().decode()
    monkeypatch.setenv("SEALSUM_IDENTITY", pem)
    (state / "identity.key").unlink()
    (state / "keys.json").write_text(json.dumps({"identity_key": "env:SEALSUM_IDENTITY"}))
    servers.open_round(servers.job(rounds=1))

    result = silo_run(config, "--until-idle")

    assert result.exit_code == 0, result.stderr
    assert {"trained", "round_result"} <= {one["event"] for one in events(result)}
    sealing = identity.sealing.to_bytes()
    secrets = [
        CANARY.encode(),
        pem.splitlines()[1].encode(),
        identity.signing.private.private_bytes_raw().hex().encode(),
        *(form(sealing) for form in (bytes.hex, lambda raw: base64.b64encode(raw).decode())),
    ]
    needles = [one if isinstance(one, bytes) else one.encode() for one in secrets]
    written = {str(path): path.read_bytes() for path in state.rglob("*") if path.is_file()}
    sent = {path: b"".join(bodies) for path, bodies in servers.uploads.items()}
    places = {"log": result.stderr.encode(), "stdout": result.stdout.encode(), **written, **sent}
    places.pop(str(state / "sealing.key"))
    for place, raw in places.items():
        for needle in needles:
            assert needle not in raw, place
    assert sealing not in b"".join(raw for raw in places.values())
