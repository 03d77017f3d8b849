"""Rounds a minute of a job with one gradient step a round, and where a round's time goes.

    python benchmarks/rounds.py [--rounds 300] [--silos 4] [--params 1000] [--json]

Founds a federation and runs the parties' own programs as processes over HTTPS with client certificates, under
the shipped policy ``demo-hospitals`` (two share servers, every promise on) with its cap on rounds raised. A
round lasts from one logged result of a silo to its next. CPU time is that of each process from the job's
submission to its end, start-up not counted; Linux only. A second, short run counts requests (a launcher wraps
httpx) and, where strace is there, fsyncs. The baseline: as many requests of equal sizes, by the same client
and server libraries over mutual TLS, one after the other, with nothing done for them. What is claimed is the
ratio of CPU times: on a shared machine the clock measures the neighbours.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import streaming_memory as federation
from rounds_bare import Sizes, cpu_ms, measure_bare
from streaming_memory import Parties, cast, network

from policies.loader import LoadedPolicy, load_threat_model
from privacy.ids import JobId
from privacy.plan import DpTerms, JobSpec, ModelTerms
from privacy.roster import Charter
from sealsum.demo.cast import AGGREGATOR, RESEARCHER, SHARE_SERVERS
from sealsum.demo.folder import DemoFolder, prepare_folder
from sealsum.demo.logs import LogReader
from sealsum.demo.ports import free_ports
from sealsum.demo.supervise import Child, Supervisor
from sealsum.job_view import ENDED
from sealsum.policy_file import read_policy
from sealsum.sdk import Federation
from silo_agent.models.layouts import initial_vector

NOISE, NORMALISER = 40.0, 600.0
"""So much noise that thousands of rounds are within the policy's ε, and divided so that it fits the ring."""
COUNTED_ROUNDS = 20
SETTLED = 10
"""Rounds at the start that are left out of the clock: caches fill, connections open."""
BARE_REPEATS = 30
LOOK_S = 0.5
LAST_WORDS_S = 10.0


def policy_of_many_rounds() -> LoadedPolicy:
    """``demo-hospitals``, for jobs of any length."""
    text = read_policy(federation.POLICY).text
    return load_threat_model(re.sub(r"rounds_max: \d+", "rounds_max: 100000", text))


def job_of(charter: Charter, model: ModelTerms, rounds: int) -> JobSpec:
    """One step of DP-SGD a round at every silo."""
    first = initial_vector(model, seed=0)
    terms = {"noise_multiplier": NOISE, "normaliser": NORMALISER}
    dp = DpTerms(**{**federation.DP.model_dump(), **terms})
    changed = {"job": JobId("many-rounds"), "rounds": rounds, "dp": dp}
    return JobSpec(**{**dict(federation.job_of(charter, model, first)), **changed})


def kind_of(name: str) -> str:
    """Kind of process, as figures are reported."""
    return "silo" if name.startswith("silo") else name


def run(silos: int, params: int, rounds: int, root: Path) -> tuple[DemoFolder, dict[str, float], float]:
    """One job; the folder it leaves, CPU milliseconds of each process, and seconds of the whole job."""
    policy, folder, model = policy_of_many_rounds(), prepare_folder(root), network(params)
    own = folder.harness / "policy.yaml"
    own.write_text(policy.text, encoding="utf-8")
    federation.POLICY = str(own)
    served = (AGGREGATOR, *SHARE_SERVERS)
    urls = {
        name: f"https://127.0.0.1:{port}" for name, port in zip(served, free_ports(len(served)), strict=True)
    }
    with Supervisor(folder.logs) as supervisor:
        parties = Parties(supervisor, folder, cast(silos), urls)
        charter = parties.enrol(policy)
        running = [one.child for one in (*parties.start_servers(), *parties.start_silos())]
        with Federation.connect(folder.state(RESEARCHER), aggregator_url=urls[AGGREGATOR]) as researcher:
            before = {child.name: cpu_ms(child.process.pid) for child in running}
            started = time.monotonic()
            job = researcher.submit(job_of(charter, model, rounds), initial_vector(model, seed=0))
            _until_ended(folder, supervisor)
            took = time.monotonic() - started
            cpu = {child.name: cpu_ms(child.process.pid) - before[child.name] for child in running}
            view = job.now()
        if view.state != "finished" or view.openings != rounds:
            raise SystemExit(f"job: expected {rounds} opened sums, got {view.openings} ({view.reason})")
        _last_words(folder, [child for child in running if kind_of(child.name) == "silo"], rounds)
        supervisor.stop(running)
    return folder, cpu, took


def _until_ended(folder: DemoFolder, supervisor: Supervisor) -> None:
    """Watch the aggregator's log, which costs it nothing."""
    log = LogReader(folder.logs / f"{AGGREGATOR}.log")
    while not any(entry.get("event") == "job" and entry["state"] in ENDED for entry in log.new_events()):
        supervisor.check()
        time.sleep(LOOK_S)


def results_at(folder: DemoFolder, silo: str) -> list[float]:
    """When a silo had each round's result, in seconds."""
    events = LogReader(folder.logs / f"{silo}.log").new_events()
    return [
        datetime.fromisoformat(event["at"]).timestamp()
        for event in events
        if event.get("event") == "round_result"
    ]


def _last_words(folder: DemoFolder, silos: Sequence[Child], rounds: int) -> None:
    deadline = time.monotonic() + LAST_WORDS_S
    while any(len(results_at(folder, silo.name)) < rounds for silo in silos):
        if time.monotonic() > deadline:
            raise SystemExit(f"silos: expected each to have {rounds} results by {LAST_WORDS_S:.0f} s")
        time.sleep(LOOK_S)


def count(silos: int, params: int, root: Path) -> tuple[list[Sizes], dict[str, float]]:
    """One round's requests by size, and fsyncs a round of each kind of process (empty without strace)."""
    sent, traced = root / "requests", shutil.which("strace")
    program = federation.program

    def counted(*arguments: str) -> list[str]:
        if arguments[1] not in ("run", "serve") or arguments[0] == "federation":
            return program(*arguments)
        launcher = Path(__file__).with_name("rounds_counted.py")
        command = [sys.executable, str(launcher), str(sent), *arguments]
        party = Path(arguments[-1]).parent.name
        trace = ["-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(root / f"fsyncs-{party}")]
        return [traced, *trace, *command] if traced else command

    federation.program = counted
    try:
        folder, _, _ = run(silos, params, COUNTED_ROUNDS, root / "federation")
    finally:
        federation.program = program
    requests = Counter(tuple(json.loads(line)) for line in sent.read_text(encoding="ascii").splitlines())
    of_round = [
        size for size, times in sorted(requests.items()) for _ in range(round(times / COUNTED_ROUNDS))
    ]
    fsyncs: dict[str, float] = {}
    for trace in sorted(root.glob("fsyncs-*")):
        calls = sum("sync(" in line for line in trace.read_text(errors="replace").splitlines())
        kind = kind_of(trace.name.removeprefix("fsyncs-"))
        fsyncs[kind] = max(fsyncs.get(kind, 0.0), calls / COUNTED_ROUNDS)
    del folder
    return of_round, fsyncs


def measure(silos: int, params: int, rounds: int, root: Path) -> dict[str, Any]:
    """Everything, as one result."""
    requests, fsyncs = count(silos, params, _made(root / "counted"))
    folder, cpu, took = run(silos, params, rounds, root / "timed")
    at = results_at(folder, "silo-1")[SETTLED:]
    lasted = sorted(1000 * (later - earlier) for earlier, later in itertools.pairwise(at))
    bare = measure_bare(folder.state(AGGREGATOR), folder.state("silo-1"), requests, BARE_REPEATS)
    of_kind: dict[str, list[float]] = {}
    for name, spent in cpu.items():
        of_kind.setdefault(kind_of(name), []).append(spent / rounds)
    total = sum(cpu.values()) / rounds
    return {
        "rounds": rounds,
        "silos": silos,
        "params": network(params).parameters,
        "machine": {"cpus": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)},
        "rounds_a_minute": round(60_000 * len(lasted) / sum(lasted)),
        "round_ms": {
            "median": round(statistics.median(lasted), 1),
            "p95": round(lasted[int(0.95 * (len(lasted) - 1))], 1),
        },
        "whole_job_s": round(took, 1),
        "cpu_ms": {
            **{kind: round(statistics.mean(spent), 1) for kind, spent in of_kind.items()},
            "all": round(total, 1),
        },
        "requests": len(requests),
        "request_bytes": sum(sent + received for _, sent, received in requests),
        "fsyncs": {kind: round(times, 1) for kind, times in fsyncs.items()},
        "bare": {"wall_ms": round(bare.wall_ms, 1), "cpu_ms": round(bare.cpu_ms, 1)},
        "cpu_ratio": round(total / bare.cpu_ms, 2),
        "wall_ratio": round(statistics.median(lasted) / bare.wall_ms, 2),
    }


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def print_result(result: Mapping[str, Any]) -> None:
    """For people."""
    machine, lasted, cpu = result["machine"], result["round_ms"], result["cpu_ms"]
    print(
        f"{result['rounds_a_minute']} rounds a minute: {result['silos']} silos, {result['params']:,} "
        f"parameters, {machine['cpus']} cores under load {machine['load_average']:g}"
    )
    print(f"a round: median {lasted['median']:.0f} ms, p95 {lasted['p95']:.0f} ms")
    print("CPU, ms a round: " + ", ".join(f"{kind} {spent:.0f}" for kind, spent in cpu.items()))
    print("fsyncs a round: " + (", ".join(f"{k} {n:g}" for k, n in result["fsyncs"].items()) or "no strace"))
    print(
        f"{result['requests']} requests a round; as many bare ones take {result['bare']['wall_ms']:.0f} ms "
        f"({result['bare']['cpu_ms']:.0f} ms CPU): a round is {result['cpu_ratio']:.1f} × their CPU, "
        f"{result['wall_ratio']:.1f} × their time"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--silos", type=int, default=4)
    parser.add_argument("--params", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="sealsum-rounds-") as folder:
        result = measure(options.silos, options.params, options.rounds, Path(folder))
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_result(result)


if __name__ == "__main__":
    main()
