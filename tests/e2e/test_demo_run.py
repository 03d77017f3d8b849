"""The demo as a user runs it: real processes, one short run, and every way it may end."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import stat
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from sealsum.demo.cast import CAST, SHARE_SERVERS
from sealsum.demo.patients import HOSPITALS, patients_of
from sealsum.demo.watchdog import alive
from tests.auditing_page import run_page
from tests.threshold_cohort import openfhe_python

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ROUNDS = 2
RUN_S = 280
TORCHLESS = Path(__file__).parents[2] / ".venv-aggregator" / "bin" / "python"


@dataclass(frozen=True)
class Run:
    """A finished run."""

    out: Path
    summary: dict[str, object]
    stderr: str


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "sealsum", "demo", "--out", str(out), *more]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("demo") / "out"
    ended = subprocess.run(
        command(out, "--rounds", str(ROUNDS), "--json"), capture_output=True, text=True, timeout=RUN_S
    )
    assert ended.returncode == 0, ended.stderr
    return Run(out, json.loads(ended.stdout), ended.stderr)


def test_stdout_is_the_summary_and_nothing_else(run: Run) -> None:
    assert run.summary == json.loads((run.out / "summary.json").read_text())


def test_the_summary_tells_what_happened(run: Run) -> None:
    summary = run.summary
    assert summary["verified"] is True
    assert summary["openings"] == summary["rounds"] == ROUNDS
    assert summary["refusals"] == 0
    assert summary["params"] == 1016
    silos = summary["silos"]
    assert isinstance(silos, list)
    assert [silo["name"] for silo in silos] == [hospital.silo for hospital in HOSPITALS]
    for silo in silos:
        assert silo["rounds_trained"] == ROUNDS
        assert 0 < silo["epsilon"] <= 3.0
        assert silo["epsilon"] <= silo["epsilon_rdp"]


def test_everything_promised_lies_in_the_folder(run: Run) -> None:
    tensors = load_file(run.out / "model.safetensors")
    assert sum(tensor.size for tensor in tensors.values()) == 1016
    assert (run.out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "✓ verified" in (run.out / "report.html").read_text(encoding="utf-8")


def test_the_verifier_accepts_the_pack_and_rejects_it_with_one_byte_changed(run: Run, tmp_path: Path) -> None:
    verifier = Path(sys.executable).parent / "sealsum-verify"
    pack = bytearray((run.out / "evidence.zip").read_bytes())
    key = ["--officers", str(run.summary["officers"])]
    assert subprocess.run([verifier, run.out / "evidence.zip", *key], capture_output=True).returncode == 0
    pack[len(pack) // 2] ^= 1
    altered = tmp_path / "altered.zip"
    altered.write_bytes(pack)
    assert subprocess.run([verifier, altered, *key], capture_output=True).returncode == 5


def test_every_command_of_the_page_on_auditing_runs_as_written(run: Run, tmp_path: Path) -> None:
    ended = run_page(run.out / "evidence.zip", str(run.summary["officers"]), tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("by hand at most") == len(HOSPITALS)


def test_each_hospital_has_its_own_training_patients_and_nobody_has_those_held_out(run: Run) -> None:
    held_out: set[str] = set()
    for hospital in HOSPITALS:
        with (run.out / "parties" / hospital.silo / "patients.csv").open() as file:
            given = {row["patient_id"] for row in csv.DictReader(file)}
        everyone = {row[0] for row in patients_of(hospital).rows}
        assert given < everyone
        assert len(given) == pytest.approx(2 / 3 * len(everyone), abs=1)
        held_out |= everyone - given
    needles = [f"{patient},".encode() for patient in held_out]
    for path in (run.out / "parties").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(needle in content for needle in needles), path


def test_no_patient_lies_with_a_server_or_the_researcher(run: Run) -> None:
    needles = [f"{row[0]}".encode() for hospital in HOSPITALS for row in patients_of(hospital).rows]
    for part in CAST:
        if part.role == "silo":
            continue
        for path in (run.out / "parties" / part.name).rglob("*.csv"):
            pytest.fail(f"{part.name} holds a table: {path}")
        log = (run.out / "logs" / f"{part.name}.log") if part.serves else None
        if log is not None:
            content = log.read_bytes()
            assert not any(needle in content for needle in needles)


def test_private_directories_and_keys_are_private(run: Run) -> None:
    for part in CAST:
        state = run.out / "parties" / part.name / "state"
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert stat.S_IMODE((state / "identity.key").stat().st_mode) == 0o600
    keys = {(run.out / "parties" / part.name / "state" / "identity.key").read_bytes() for part in CAST}
    assert len(keys) == len(CAST)


def test_one_time_secrets_appear_in_no_log(run: Run) -> None:
    secrets = [
        json.loads(path.read_text())["secret"].encode() for path in (run.out / "harness").glob("token-*.json")
    ]
    assert len(secrets) == len(CAST)
    for log in (run.out / "logs").iterdir():
        assert not any(secret in log.read_bytes() for secret in secrets), log


def test_share_servers_have_scrubbed_what_they_held(run: Run) -> None:
    state = run.out / "parties" / SHARE_SERVERS[0] / "state"
    assert (state / "parts").is_dir()
    assert [path for path in (state / "parts").rglob("*") if path.is_file()] == []


def processes_of(out: Path) -> list[int]:
    """Processes that name the run's folder in their command line, other than the demo itself."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\x00")
            if any(str(out).encode() in part for part in argv) and b"demo" not in argv:
                found.append(int(entry.name))
    return found


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A demo whose registrar is up, so that it has children."""
    out = tmp_path / "out"
    process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (out / "logs" / "registrar.log").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    assert processes_of(out)
    yield process, out
    if process.poll() is None:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes under /proc")
@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_however_the_demo_ends_no_child_outlives_it(
    started: tuple[subprocess.Popen[bytes], Path], number: signal.Signals, expected: int
) -> None:
    process, out = started
    os.kill(process.pid, number)
    assert process.wait(60) == expected
    deadline = time.monotonic() + 20
    while processes_of(out) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(out) == []
    assert not alive(process.pid)


def test_a_child_that_cannot_run_is_named_with_its_own_words_and_its_log(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    out = tmp_path / "out"
    ended = subprocess.run(
        command(out, "--server-python", str(bare / "bin" / "python")),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
    )
    assert ended.returncode == 1
    assert "registrar: ended with exit code 1" in ended.stderr
    assert "No module named sealsum" in ended.stderr
    assert str(out / "logs" / "registrar.log") in ended.stderr
    assert "Traceback" not in ended.stderr
    assert processes_of(out) == []


@pytest.mark.skipif(not TORCHLESS.exists(), reason="needs .venv-aggregator (make aggregator-venv)")
def test_servers_run_where_no_learning_framework_is_installed(tmp_path: Path) -> None:
    without = subprocess.run([TORCHLESS, "-c", "import torch"], capture_output=True)
    assert without.returncode != 0
    out = tmp_path / "out"
    ended = subprocess.run(
        command(out, "--rounds", "1", "--server-python", str(TORCHLESS)),
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads((out / "summary.json").read_text())["verified"] is True


def test_a_joint_key_is_made_by_real_processes_or_refused_before_anything_starts(tmp_path: Path) -> None:
    openfhe = openfhe_python() or Path(sys.executable)
    out = tmp_path / "out"

    def run_with(python: Path) -> subprocess.CompletedProcess[str]:
        options = ("--rounds", "1", "--scheme", "threshold_bfv", "--threshold-he-python", str(python))
        return subprocess.run(command(out, *options), capture_output=True, text=True, timeout=RUN_S)

    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    refused = run_with(bare / "bin" / "python")
    assert refused.returncode == 78
    assert "threshold_he.python" in refused.stderr
    assert "make threshold-he" in refused.stderr
    assert not out.exists()
    ended = run_with(openfhe)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["verified"], summary["openings"], summary["scheme"]) == (True, 1, "threshold_bfv")
    assert processes_of(out) == []
