"""Measure the memory that one round of a large model takes in each process, for small and large cohorts.

    python benchmarks/streaming_memory.py [--params 10000000] [--silos 3,8] [--json]

Founds a federation for each number of silos and runs one round with the parties' own programs as processes
over HTTPS with client certificates: ``silo run`` (DP-SGD included), ``aggregator serve``, ``share-server
serve``, under the shipped policy ``demo-hospitals``. A process's figure is its peak resident memory (VmHWM)
after the round less its resident memory (VmRSS) when it had started; Linux only. The data are made up.

That the sum was right shows too: noise of a known spread outweighs all else in an update, so the mean of n
updates has the spread σ·C / normaliser / √n, while masks that did not cancel would be uniform over the ring.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import yaml
from numpy.typing import NDArray

from aggregator.enrolment.authority import found_alone
from aggregator.enrolment.governing import seal_charter
from aggregator.enrolment.invitations import Guest, invite
from policies.loader import LoadedPolicy
from privacy.canonical import canonical_bytes
from privacy.ids import JobId
from privacy.keystore import write_secret
from privacy.plan import DpTerms, JobSpec, ModelTerms, TrainingTerms, VectorTerms
from privacy.roster import Charter, Role
from privacy.schema import DataSchema, Label, NumericFeature
from privacy.secagg.additive import RING_BYTES
from privacy.update import model_bytes, model_digest
from privacy.wire.messages import PART_BYTES
from sealsum.demo.cast import AGGREGATOR, RESEARCHER, SHARE_SERVERS, Part
from sealsum.demo.folder import DemoFolder, prepare_folder
from sealsum.demo.ports import free_ports
from sealsum.demo.supervise import Child, Supervisor
from sealsum.job_view import ENDED, JobView
from sealsum.policy_file import read_policy
from sealsum.sdk import Federation, JobHandle
from silo_agent.models.layouts import initial_vector, model_terms

POLICY = "demo-hospitals"
FEDERATION = "streaming-memory"
DATASET = "made-up"
PURPOSE = "Measure the memory of a round"
READY_S = 180.0
TOKEN_LIFE = timedelta(hours=1)

TRAINING = TrainingTerms(algorithm="dp_fedavg", local_steps=1, learning_rate=1.0, server_learning_rate=1.0)
DP = DpTerms(unit="patient", sample_rate=0.1, noise_multiplier=2.0, clip_l2=0.5, normaliser=6.0, delta=1e-5)
SCHEMA = DataSchema(
    features=tuple(NumericFeature(column=column, low=-1, high=1, impute=0) for column in ("x0", "x1")),
    label=Label(column="label", threshold=0),
    patient_id="patient_id",
)


@dataclass(frozen=True)
class Running:
    """A process of the federation and its resident memory when it had started, in MiB."""

    child: Child
    started_mib: float

    @property
    def peak_mib(self) -> float:
        """Peak until now above what it had when it had started."""
        return memory_mib(self.child, "VmHWM") - self.started_mib


def memory_mib(child: Child, field: str) -> float:
    """A field of /proc/<pid>/status in MiB (proc(5): they are in KiB)."""
    lines = Path(f"/proc/{child.process.pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) / 1024


def network(params: int) -> ModelTerms:
    """The smallest network of two equal hidden layers with at least ``params`` parameters."""
    width = math.isqrt(params) // 2
    while model_terms("mlp", SCHEMA.width, (width, width)).parameters < params:
        width += 1
    return model_terms("mlp", SCHEMA.width, (width, width))


def cast(silos: int) -> list[Part]:
    """Everybody in the federation, each an institution of its own."""
    names: list[tuple[str, Role]] = [(AGGREGATOR, "aggregator"), (RESEARCHER, "researcher")]
    names += [(name, "share_server") for name in SHARE_SERVERS]
    names += [(f"silo-{number}", "silo") for number in range(1, silos + 1)]
    return [Part(name, role, f"Owner of {name}", f"IT of {name}") for name, role in names]


def program(*arguments: str) -> list[str]:
    """A command line of the project's own."""
    return [sys.executable, "-m", "sealsum", *arguments]


@dataclass(frozen=True)
class Parties:
    """The federation's parties, their directories and their processes."""

    supervisor: Supervisor
    folder: DemoFolder
    parts: Sequence[Part]
    urls: Mapping[str, str]
    """Of those that serve."""

    def enrol(self, policy: LoadedPolicy) -> Charter:
        """Found the federation, enrol every party over HTTPS by its own program, seal the charter."""
        authority = found_alone(self.folder.party("officer"), FEDERATION, policy, datetime.now(UTC))
        address = f"127.0.0.1:{free_ports(1)[0]}"
        serve = program("federation", "serve", str(authority.directory), "--listen", address)
        registrar = self.supervisor.start("registrar", serve)
        self.supervisor.wait_for(registrar, "listening", READY_S)
        for part in self.parts:
            url = self.urls.get(part.name, "")
            guest = Guest(part.name, part.role, part.legal_entity, part.operator, url)
            invitation = invite(authority, guest, f"https://{address}", datetime.now(UTC), TOKEN_LIFE, False)
            token = self.folder.harness / f"token-{part.name}.json"
            write_secret(token, canonical_bytes(invitation))
            self.folder.party(part.name).mkdir(mode=0o700)
            state = ["--token-file", str(token), "--state", str(self.folder.state(part.name))]
            enrolling = self.supervisor.start(f"enrol-{part.name}", program(part.command, "enroll", *state))
            self.supervisor.finish(enrolling, READY_S)
        charter = seal_charter(authority, drop_pending=False)
        self.supervisor.stop([registrar])
        return charter

    def start_servers(self) -> list[Running]:
        """Start the aggregator and the share servers; each has started once it listens."""
        charter = str(self.folder.party("officer") / "charter.json")
        children = [
            self._start(part, "serve", {"listen": urlsplit(self.urls[part.name]).netloc, "charter": charter})
            for part in self.parts
            if part.serves
        ]
        for child in children:
            self.supervisor.wait_for(child, "listening", READY_S)
        return [Running(child, memory_mib(child, "VmRSS")) for child in children]

    def start_silos(self) -> list[Running]:
        """Start the agents; each has started once it holds the charter: its libraries are loaded by then."""
        datasets = {DATASET: {"path": "patients.csv", "purpose": PURPOSE, "legal_basis": "none: made up"}}
        rules = {"benchmark": {"researchers": [RESEARCHER], "datasets": [DATASET]}}
        settings = {"aggregator_url": self.urls[AGGREGATOR], "threat_model": POLICY, "datasets": datasets}
        children = []
        for part in self.parts:
            if part.role == "silo":
                write_patients(self.folder.party(part.name) / "patients.csv")
                children.append(self._start(part, "run", {**settings, "approval_rules": rules}))
        deadline = time.monotonic() + READY_S
        for child in children:
            while not (self.folder.state(child.name) / "charter.json").exists():
                self.supervisor.check()
                if time.monotonic() > deadline:
                    raise child.failed(f"expected to be ready within {READY_S:.0f} s")
                time.sleep(0.02)
        return [Running(child, memory_mib(child, "VmRSS")) for child in children]

    def _start(self, part: Part, verb: str, settings: dict[str, Any]) -> Child:
        config = self.folder.party(part.name) / "settings.yaml"
        config.write_text(yaml.safe_dump({"state_dir": "state", **settings}), encoding="utf-8")
        return self.supervisor.start(part.name, program(part.command, verb, "--config", str(config)))


def write_patients(path: Path) -> None:
    """Made-up patients whose label is the sign of their first feature."""
    drawn = np.random.default_rng().uniform(-1, 1, (60, 2))
    rows = [f"p{number},{x0:.6f},{x1:.6f},{int(x0 > 0)}\n" for number, (x0, x1) in enumerate(drawn)]
    path.write_text("".join(["patient_id,x0,x1,label\n", *rows]), encoding="ascii")


def job_of(charter: Charter, model: ModelTerms, first: NDArray[np.float32]) -> JobSpec:
    """One round with every silo."""
    return JobSpec(
        job=JobId("one-round"),
        federation=FEDERATION,
        charter=charter.digest,
        purpose=PURPOSE,
        dataset=DATASET,
        data=SCHEMA,
        model=model,
        initial_model=model_digest(model, [model_bytes(first)]),
        training=TRAINING,
        dp=DP,
        rounds=1,
        vector=VectorTerms(coordinate_bound=8.0, scale_bits=20),
        min_silos=len(charter.silos),
        round_deadline_s=900,
    )


def follow(job: JobHandle, supervisor: Supervisor) -> JobView:
    """Wait for the job's end; it must have opened one sum of every silo's update."""
    view = job.now()
    while view.state not in ENDED:
        supervisor.check()
        view = job.view(view, wait_s=0.5) or view
    if view.state != "finished" or view.openings != 1:
        raise SystemExit(f"job: expected one opened sum, got {view.model_dump_json(indent=2)}")
    return view


def spread_ratio(change: NDArray[np.float32], silos: int) -> float:
    """The spread of the model's change over the one that the mean of ``silos`` noises has.

    The clipped gradients beside the noise move it by less than 10⁻⁴ at a million parameters.
    """
    expected = TRAINING.learning_rate * DP.noise_multiplier * DP.clip_l2 / DP.normaliser / math.sqrt(silos)
    ratio = float(np.sqrt(np.mean(np.square(change, dtype=np.float64)))) / expected
    if not abs(ratio - 1) < 0.01:
        raise SystemExit(f"model: expected the spread of a mean of {silos} noises, got {ratio:.4f} of it")
    return ratio


def measure(silos: int, model: ModelTerms, root: Path) -> dict[str, Any]:
    """One federation, one round, the memory of each process."""
    folder, first = prepare_folder(root), initial_vector(model, seed=0)
    served = (AGGREGATOR, *SHARE_SERVERS)
    ports = free_ports(len(served))
    urls = {name: f"https://127.0.0.1:{port}" for name, port in zip(served, ports, strict=True)}
    with Supervisor(folder.logs) as supervisor:
        parties = Parties(supervisor, folder, cast(silos), urls)
        charter = parties.enrol(read_policy(POLICY))
        servers, agents = parties.start_servers(), parties.start_silos()
        with Federation.connect(folder.state(RESEARCHER), aggregator_url=urls[AGGREGATOR]) as federation:
            job = federation.submit(job_of(charter, model, first), first)
            ended = follow(job, supervisor).history[-1]
            peak = {running.child.name: running.peak_mib for running in servers}
            peak["silo"] = max(running.peak_mib for running in agents)
            ratio = spread_ratio(job.model() - first, silos)
            manifests = job.evidence()["rounds"][0]["manifests"].values()
            upload = RING_BYTES * (model.parameters + 1) + max(len(one["body"]) for one in manifests)
    started = {running.child.name: running.started_mib for running in servers}
    started["silo"] = max(running.started_mib for running in agents)
    return {
        "silos": silos,
        "survivors": len(ended.survivors),
        "peak_mib": {name: round(value, 1) for name, value in peak.items()},
        "started_mib": {name: round(value, 1) for name, value in started.items()},
        "upload_mib": round(upload / 2**20, 2),
        "round_s": round((ended.duration_ms or 0) / 1000, 1),
        "spread_ratio": round(ratio, 5),
    }


def print_table(result: Mapping[str, Any]) -> None:
    """A line for each number of silos."""
    print(f"One round of {result['params']:,} parameters: peak above the started process, MiB")
    names = (AGGREGATOR, *SHARE_SERVERS, "silo")
    rows = [["silos", *names, "upload, MiB", "round, s"]]
    for run in result["runs"]:
        peaks = [run["peak_mib"][name] for name in names]
        rows.append([run["silos"], *peaks, run["upload_mib"], run["round_s"]])
    for row in rows:
        print(" ".join(f"{cell:>15}" for cell in row))


def main() -> None:
    """Measure each number of silos and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", type=int, default=10_000_000)
    parser.add_argument("--silos", default="3,8", metavar="N,…")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    model, runs = network(options.params), []
    for silos in map(int, options.silos.split(",")):
        with tempfile.TemporaryDirectory(prefix="sealsum-memory-") as folder:
            runs.append(measure(silos, model, Path(folder)))
    result = {
        "params": model.parameters,
        "part_mib": PART_BYTES // 2**20,
        "policy": POLICY,
        "agents": "one `sealsum silo run` process a silo, training by DP-SGD",
        "runs": runs,
    }
    print(json.dumps(result, indent=2)) if options.json else print_table(result)


if __name__ == "__main__":
    main()
