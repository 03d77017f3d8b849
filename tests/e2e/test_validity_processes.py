"""A job with validity between real processes over mutual TLS: agents train, prove, and one restarts."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from privacy.canonical import canonical_bytes
from privacy.plan import ValidityClaim, VectorTerms
from privacy.secagg.validity.norms import least_coordinate_bound, suggested_norm_bound
from privacy.update import model_digest
from silo_agent.models.layouts import model_terms
from tests.e2e.test_pairwise_processes import Process, _free_port, ended
from tests.federation import Federation
from tests.pairwise_world import files_under
from tests.silo_yaml import approving, registered
from tests.unit.silo_agent.loopback import patients

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
SERVERS = ("aggregator", "server-0", "server-1")


def test_honest_agents_prove_their_noisy_updates_and_one_that_restarts_drops_out(tmp_path: Path) -> None:
    urls = {name: f"https://127.0.0.1:{_free_port()}" for name in SERVERS}
    federation = Federation(servers=2, urls=urls)
    to_servers = federation.identity("researcher", tmp_path / "researcher").client_context
    processes = {}
    for name, url in urls.items():
        federation.identity(name, tmp_path / name)
        config = tmp_path / f"{name}.yaml"
        grace = "grace_s: 60\n" if name == "aggregator" else ""
        config.write_text(f"state_dir: {name}\nlisten: {url.removeprefix('https://')}\n{grace}")
        role = "aggregator" if name == "aggregator" else "share-server"
        processes[name] = Process(tmp_path / f"{name}.log", role, "serve", "--config", str(config))

    def start(number: int) -> Process:
        directory = tmp_path / f"silo-{number}"
        if not directory.exists():
            federation.identity(f"silo-{number}", directory / "state")
            (directory / "cardio.csv").write_text(patients(80))
            settings = {
                "state_dir": "state",
                "aggregator_url": urls["aggregator"],
                "threat_model": "demo-hospitals",
                "worker": {"process": False},
                "datasets": {"cardio": registered()},
                "approval_rules": approving("cardio"),
            }
            (directory / "silo.yaml").write_text(json.dumps(settings))
        log = tmp_path / f"silo-{number}.log"
        return Process(log, "silo", "run", "--config", str(directory / "silo.yaml"), "--until-idle")

    terms = model_terms("logistic", 2)
    raw = federation.initial_model(terms.parameters)
    plain = federation.job_spec(model=terms, initial_model=model_digest(terms, [raw]), round_deadline_s=30)
    assert plain.dp is not None
    norm_bound = suggested_norm_bound(plain.dp, plain.training, terms.parameters)
    coordinate_bound = least_coordinate_bound(norm_bound, plain.vector, terms.parameters)
    job = plain.model_copy(
        update={
            "validity": ValidityClaim(norm_bound=norm_bound),
            "vector": VectorTerms(coordinate_bound=coordinate_bound, scale_bits=plain.vector.scale_bits),
        }
    )
    with ExitStack() as stack:
        stack.enter_context(ended(*processes.values()))
        for process in processes.values():
            process.wait_for("listening", 1)
        silos = {number: start(number) for number in (1, 2, 3, 4)}
        stack.enter_context(ended(*silos.values()))
        researcher = stack.enter_context(httpx.Client(base_url=urls["aggregator"], verify=to_servers))
        params = {"architecture": terms.architecture}
        assert researcher.put(f"/v1/models/{job.initial_model}", params=params, content=raw).is_success
        submitted = researcher.post("/v1/jobs", content=canonical_bytes(federation.sign_job(job)))
        assert submitted.status_code == 201, submitted.text
        # Round 1: silo-2 restarts when its shares are sent, before the last ones are there to toss over.
        silos[1].wait_for("round_started", 1)
        os.kill(silos[1]._process.pid, signal.SIGSTOP)
        silos[2].wait_for("uploaded", 1)
        silos[2].kill()
        silos[2] = start(2)
        stack.enter_context(ended(silos[2]))
        os.kill(silos[1]._process.pid, signal.SIGCONT)
        codes = {number: silo.end() for number, silo in silos.items()}
        view = researcher.get("/v1/jobs/heart").json()
        evidence = researcher.get("/v1/jobs/heart/evidence").json()
    assert codes == dict.fromkeys(silos, 0)
    assert (view["state"], view["openings"]) == ("finished", 2), view
    everybody = ["silo-1", "silo-2", "silo-3", "silo-4"]
    assert [one["survivors"] for one in view["history"]] == [["silo-1", "silo-3", "silo-4"], everybody]
    refused = [entry["fields"] for entry in evidence["log"] if entry["kind"] == "update_refused"]
    assert [(one["silo"]["value"], one["rules"]["value"]) for one in refused] == [
        ("silo-2", ["validity.not_proven"])
    ]
    for name in ("server-0", "server-1"):
        assert list(files_under(tmp_path / name / "parts")) == []
