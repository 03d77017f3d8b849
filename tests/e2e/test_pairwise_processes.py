"""Pairwise rounds between real processes over mutual TLS, with silos killed in the middle of them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from privacy.canonical import canonical_bytes
from privacy.ids import PartyId, SiloId
from privacy.update import model_digest
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.models.layouts import model_terms
from tests.federation import Federation, demo_policy_text
from tests.pairwise_world import files_under
from tests.silo_yaml import approving, registered
from tests.unit.silo_agent.loopback import patients

ROOT = Path(__file__).parents[2]
PATIENCE_S = 150
pytestmark = [pytest.mark.slow, pytest.mark.e2e]


class Process:
    """One ``sealsum`` process and the log it writes."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        with log.open("a") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sealsum", *command],
                cwd=ROOT,
                stderr=stderr,
                env={**os.environ, "NO_PROXY": "*"},
            )

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it, and whoever wrote to this log before it, has logged under a name."""
        lines = self._log.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [entry for entry in entries if entry["event"] == name]

    def wait_for(self, name: str, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(self.events(name)) < count:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        return self._process.wait(PATIENCE_S)


@contextmanager
def ended(*processes: Process) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_silos_killed_before_and_after_their_upload_cost_their_round_at_most_and_sign_nothing_twice(
    tmp_path: Path,
) -> None:
    url = f"https://127.0.0.1:{_free_port()}"
    federation = Federation(servers=0, policy_text=demo_policy_text("pairwise"), urls={"aggregator": url})
    federation.identity("aggregator", tmp_path / "aggregator")
    to_aggregator = federation.identity("researcher", tmp_path / "researcher").client_context
    config = tmp_path / "server.yaml"
    listen = url.removeprefix("https://")
    config.write_text(f"state_dir: aggregator\nlisten: {listen}\ngrace_s: 60\n")
    aggregator = Process(tmp_path / "aggregator.log", "aggregator", "serve", "--config", str(config))

    def start(number: int) -> Process:
        directory = tmp_path / f"silo-{number}"
        if not directory.exists():
            federation.identity(f"silo-{number}", directory / "state")
            (directory / "cardio.csv").write_text(patients(80))
            settings = {
                "state_dir": "state",
                "aggregator_url": url,
                "threat_model": "demo-pairwise",
                "worker": {"process": False},
                "datasets": {"cardio": registered()},
                "approval_rules": approving("cardio"),
            }
            (directory / "silo.yaml").write_text(json.dumps(settings))
        log = tmp_path / f"silo-{number}.log"
        return Process(log, "silo", "run", "--config", str(directory / "silo.yaml"), "--until-idle")

    terms = model_terms("logistic", 2)
    raw = federation.initial_model(terms.parameters)
    job = federation.job_spec(
        scheme="pairwise",
        model=terms,
        initial_model=model_digest(terms, [raw]),
        rounds=3,
        round_deadline_s=60,
    )
    with ended(aggregator):
        aggregator.wait_for("listening", 1)
        silos = {number: start(number) for number in (1, 2, 3, 4)}
        with (
            ended(*silos.values()),
            httpx.Client(base_url=url, verify=to_aggregator) as researcher,
        ):
            params = {"architecture": terms.architecture}
            assert researcher.put(f"/v1/models/{job.initial_model}", params=params, content=raw).is_success
            submitted = researcher.post("/v1/jobs", content=canonical_bytes(federation.sign_job(job)))
            assert submitted.status_code == 201, submitted.text
            # Round 1: its update is whole, so it comes back and helps to open the sum.
            silos[2].wait_for("uploaded", 1)
            silos[2].kill()
            silos[2] = start(2)
            silos[1].wait_for("round_result", 1)
            # Round 2: it has paid and not masked yet, so it is a dropout by name.
            silos[3].wait_for("reserved", 2)
            silos[3].kill()
            silos[3] = start(3)
            codes = {number: silo.end() for number, silo in silos.items()}
            view = researcher.get("/v1/jobs/heart").json()
        assert codes == dict.fromkeys(silos, 0)
        for silo in silos.values():
            silo.kill()
    assert view["state"] == "finished", view
    survivors = [one["survivors"] for one in view["history"]]
    everybody = ["silo-1", "silo-2", "silo-3", "silo-4"]
    assert survivors[0] == everybody, "whose update was whole is in the sum"
    assert survivors[1] in (everybody, ["silo-1", "silo-2", "silo-4"]), "killed when it was, or just too late"
    assert survivors[2] == everybody
    assert view["openings"] == 3
    for number in (1, 2, 3, 4):
        state = tmp_path / f"silo-{number}" / "state"
        assert list(files_under(state / "secrets")) == []
        assert list(files_under(state / "outbox")) == []
        silo = SiloId(PartyId(f"silo-{number}"))
        origin = ledger_origin("testfed", silo, "cardio")
        entries = read_account(ledger_path(state, "cardio"), origin, federation.key(silo).verify_key)[1]
        assert [entry.kind for entry in entries].count("reserve") == 3
    assert list(files_under(tmp_path / "aggregator" / "parts")) == []
