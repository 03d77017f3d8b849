"""A federation under load against plaintext FedAvg over the same stack, and against what the machine can do.

    python benchmarks/load.py [--cells small,20x1M,100x1M,8x100M | --quick] [--json]

Each cell founds a federation and runs one job of ``additive``: the aggregator and two share servers are the
project's own programs, under the shipped policy ``demo-hospitals`` with its caps on rounds and bytes raised;
silos are simulated, many to a process (benchmarks/load_agents.py: real HTTPS with client certificates, real
signatures, masks and outbox; no training). Then as many rounds of plaintext FedAvg with the same update,
parts and client (benchmarks/load_plain.py): ``plain`` keeps each part durably as a share server does, and
``plain_memory`` adds parts up in memory as they come. The model that comes out is compared with the exact
one.

A round lasts from everybody's result to everybody's next; CPU time is of all processes, from the job's
submission to its end. Throughput is silos · parameters · 4 bytes over the round. Memory is VmRSS of a server,
looked at twice a second: ``growth`` is what the median of the job's last quarter has above that of its
second. Linux only. The machine is as loaded as it says: what is claimed are ratios within a run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import streaming_memory as federation
from load_agents import update_of
from load_limits import MIB, limits
from load_watch import LOOK_S, Watched
from numpy.typing import NDArray
from streaming_memory import FEDERATION, READY_S, TOKEN_LIFE, Parties, cast, network

from aggregator.enrolment.authority import found_alone
from aggregator.enrolment.governing import seal_charter
from aggregator.enrolment.invitations import Guest, invite
from aggregator.enrolment.messages import EnrolRequest
from aggregator.enrolment.registrar import Registrar
from policies.loader import LoadedPolicy, load_threat_model
from privacy.canonical import canonical_bytes
from privacy.ids import JobId
from privacy.plan import JobSpec, ModelTerms
from privacy.roster import Charter
from privacy.update import FLOAT_BYTES
from sealsum.demo.cast import AGGREGATOR, RESEARCHER, SHARE_SERVERS
from sealsum.demo.folder import prepare_folder
from sealsum.demo.ports import free_ports
from sealsum.demo.supervise import Child, Supervisor
from sealsum.enrolment import enrol
from sealsum.job_view import ENDED
from sealsum.policy_file import read_policy
from sealsum.sdk import Federation
from silo_agent.models.layouts import initial_vector

NOISE, NORMALISER = 40.0, 600.0
"""Terms under which the policy admits hundreds of rounds; simulated silos draw no noise."""


@dataclass(frozen=True)
class Cell:
    """One size of federation and model."""

    silos: int
    params: int
    rounds: int
    processes: int = 2
    """That the simulated silos share."""


CELLS = {
    "small": Cell(8, 1_000, 200),
    "20x1M": Cell(20, 1_000_000, 5),
    "100x1M": Cell(100, 1_000_000, 3, processes=4),
    "8x100M": Cell(8, 100_000_000, 2),
}
QUICK = {"quick": Cell(3, 70_000, 4, processes=1)}


def policy_under_load() -> LoadedPolicy:
    """``demo-hospitals``, for any number of rounds and updates of any size."""
    text = re.sub(r"rounds_max: \d+", "rounds_max: 100000", read_policy(federation.POLICY).text)
    return load_threat_model(text.replace("upload_bytes_max: 64MiB", "upload_bytes_max: 4GiB"))


def found(parties: Parties, policy: LoadedPolicy) -> Charter:
    """Found the federation and enrol everybody by the real code, the registrar called without a network."""
    authority = found_alone(parties.folder.party("officer"), FEDERATION, policy, datetime.now(UTC))
    registrar = Registrar(authority.federation, authority.certificate_authority(), authority.register)

    def answer(request: httpx.Request) -> httpx.Response:
        asked = EnrolRequest.model_validate_json(request.content)
        return httpx.Response(201, content=canonical_bytes(registrar.enrol(asked, datetime.now(UTC))))

    for part in parties.parts:
        url = parties.urls.get(part.name, "")
        guest = Guest(part.name, part.role, part.legal_entity, part.operator, url)
        invitation = invite(authority, guest, "https://127.0.0.1:1", datetime.now(UTC), TOKEN_LIFE, False)
        parties.folder.party(part.name).mkdir(mode=0o700)
        enrol(invitation, parties.folder.state(part.name), httpx.MockTransport(answer))
    return seal_charter(authority, drop_pending=False)


def job_of(charter: Charter, model: ModelTerms, first: NDArray[np.float32], rounds: int) -> JobSpec:
    """All silos in every round."""
    terms = {"noise_multiplier": NOISE, "normaliser": NORMALISER}
    dp = type(federation.DP)(**{**federation.DP.model_dump(), **terms})
    one_round = dict(federation.job_of(charter, model, first))
    return JobSpec(**{**one_round, "job": JobId("load"), "rounds": rounds, "dp": dp})


class Trial:
    """One cell in one folder: the federated job, then the baselines."""

    def __init__(self, cell: Cell, root: Path) -> None:
        self.cell, self.folder, self.model = cell, prepare_folder(root), network(cell.params)
        served = (AGGREGATOR, *SHARE_SERVERS)
        ports = free_ports(len(served))
        self.urls = {name: f"https://127.0.0.1:{port}" for name, port in zip(served, ports, strict=True)}

    def federated(self) -> dict[str, Any]:
        """The project's own job."""
        cell, folder = self.cell, self.folder
        with Supervisor(folder.logs) as supervisor:
            parties = Parties(supervisor, folder, cast(cell.silos), self.urls)
            charter = found(parties, policy_under_load())
            servers = [one.child for one in parties.start_servers()]
            agents = self._start_silos(supervisor, "federated", self.urls[AGGREGATOR])
            first = initial_vector(self.model, seed=0)
            with Federation.connect(
                folder.state(RESEARCHER), aggregator_url=self.urls[AGGREGATOR]
            ) as researcher:
                watched = Watched(servers, agents)
                job = researcher.submit(job_of(charter, self.model, first, cell.rounds), first)
                at = watched.wait(supervisor, cell.silos, cell.rounds)
                cpu = watched.cpu(cell.rounds)
                while (view := job.now()).state not in ENDED:
                    time.sleep(LOOK_S)
                if view.state != "finished" or view.openings != cell.rounds:
                    raise SystemExit(f"job: expected {cell.rounds} opened sums, got {view.openings}")
                error = self._error(job.model() - first)
        return {**self._figures(at), "cpu_ms": cpu, "memory_mib": watched.memory(), "max_error": error}

    def plain(self, durable: bool) -> dict[str, Any]:
        """A baseline."""
        cell, name = self.cell, "plain" if durable else "plain-memory"
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        root = self.folder.harness / name
        config: dict[str, Any] = {
            "root": str(root),
            "state": str(self.folder.state(AGGREGATOR)),
            "listen": listen,
        }
        config |= {"silos": cell.silos, "params": self.model.parameters, "durable": durable}
        with Supervisor(self.folder.logs) as supervisor:
            server = supervisor.start(name, _script("load_plain.py", self._config(name, config)))
            supervisor.wait_for(server, "listening", READY_S)
            agents = self._start_silos(supervisor, "plain", f"https://{listen}", name)
            watched = Watched([server], agents)
            at = watched.wait(supervisor, cell.silos, cell.rounds)
            cpu = watched.cpu(cell.rounds)
            opened = np.fromfile(root / "models" / str(cell.rounds + 1), dtype="<f4")
        figures = {**self._figures(at), "cpu_ms": cpu, "memory_mib": watched.memory()}
        return {**figures, "max_error": self._error(opened)}

    def limits(self) -> dict[str, float]:
        """The machine's own figures, now."""
        measured = limits(self.folder.state(AGGREGATOR), self.folder.state("silo-1"), self.folder.harness)
        return {name: round(value) for name, value in measured.items()}

    def _start_silos(self, supervisor: Supervisor, kind: str, url: str, name: str = "") -> list[Child]:
        cell = self.cell
        states = [str(self.folder.state(f"silo-{number}")) for number in range(1, cell.silos + 1)]
        children = []
        for number in range(cell.processes):
            config: dict[str, Any] = {"kind": kind, "url": url, "states": states[number :: cell.processes]}
            config |= {"params": self.model.parameters, "rounds": cell.rounds}
            process = f"{name or kind}-silos-{number}"
            children.append(
                supervisor.start(
                    process,
                    _script("load_agents.py", self._config(process, config)),
                )
            )
        for child in children:
            supervisor.wait_for(child, "serving", READY_S)
        return children

    def _config(self, name: str, config: Mapping[str, Any]) -> Path:
        path = self.folder.harness / f"{name}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def _figures(self, at: Sequence[float]) -> dict[str, Any]:
        """Of rounds after the first, in which connections are made."""
        lasted = sorted(later - earlier for earlier, later in itertools.pairwise(at))
        median = statistics.median(lasted)
        sent = self.cell.silos * self.model.parameters * FLOAT_BYTES / MIB
        return {
            "round_ms": round(1000 * median, 1),
            "round_p95_ms": round(1000 * lasted[math.ceil(0.95 * len(lasted)) - 1], 1),
            "mib_per_s": round(sent / median, 2),
        }

    def _error(self, change: NDArray[np.float32]) -> float:
        """Largest distance of the job's whole change from the exact one: rounding, and nothing else."""
        exact = update_of(self.model.parameters) * np.float32(self.cell.rounds)
        error = float(np.max(np.abs(change - exact)))
        scale_bits = 20  # of ``streaming_memory.job_of``
        if not error <= self.cell.rounds * 2.0**-scale_bits + 1e-5:
            raise SystemExit(f"model: expected the sum of all updates, got one {error:.2g} away from it")
        return error


def _script(name: str, config: Path) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name(name)), str(config)]


def measure(cell: Cell, root: Path) -> dict[str, Any]:
    """One cell: the job, both baselines, the limits; one after the other."""
    trial = Trial(cell, root)
    result: dict[str, Any] = {
        "silos": cell.silos,
        "params": trial.model.parameters,
        "rounds": cell.rounds,
        "load_average": round(os.getloadavg()[0], 1),
        "federated": trial.federated(),
    }
    for name, durable in (("plain", True), ("plain_memory", False)):
        plain = trial.plain(durable)
        result[name] = plain
        mine = result["federated"]
        result[f"ratio_to_{name}"] = {
            "wall": round(mine["round_ms"] / plain["round_ms"], 2),
            "cpu": round(sum(mine["cpu_ms"].values()) / max(1.0, sum(plain["cpu_ms"].values())), 2),
        }
    return {**result, "limits_mib_per_s": trial.limits()}


def print_cell(name: str, cell: Mapping[str, Any]) -> None:
    """For people."""
    print(f"{name}: {cell['silos']} silos, {cell['params']:,} parameters, load {cell['load_average']}")
    for way in ("federated", "plain", "plain_memory"):
        row = cell[way]
        ratio = cell.get(f"ratio_to_{way}")
        against = f"; federated takes {ratio['wall']} × the time, {ratio['cpu']} × the CPU" if ratio else ""
        print(f"  {way:>13}: {row['round_ms']:.0f} ms a round, {row['mib_per_s']:g} MiB/s{against}")
    grown = {server: row["growth"] for server, row in cell["federated"]["memory_mib"].items()}
    print("  memory grew by, MiB: " + ", ".join(f"{server} {by:g}" for server, by in grown.items()))
    shown = ", ".join(f"{what} {speed:,.0f}" for what, speed in cell["limits_mib_per_s"].items())
    print(f"  the machine itself, MiB/s: {shown}")


def main() -> None:
    """Measure the cells that were asked for and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="small,20x1M", help=f"of {','.join(CELLS)}", metavar="NAME,…")
    parser.add_argument("--quick", action="store_true", help="one tiny cell, to see that it runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    cells = QUICK if options.quick else {name: CELLS[name] for name in options.cells.split(",")}
    measured = {}
    for name, cell in cells.items():
        with tempfile.TemporaryDirectory(prefix="sealsum-load-") as folder:
            measured[name] = measure(cell, Path(folder))
    result = {"machine": {"cpus": os.cpu_count()}, "cells": measured}
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, row in measured.items():
            print_cell(name, row)


if __name__ == "__main__":
    main()
