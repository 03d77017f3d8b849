"""What a confined process can reach: a probe in a worker's place tries, and says how far it came."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from silo_agent.problems import WorkerLost
from silo_agent.training import worker_process
from silo_agent.training.worker_process import look_at_confinement
from silo_agent.worker_settings import WorkerSettings

_PROBE = """
import json, os, resource, socket, sys
wire, host, port, secret, file = int(sys.argv[5]), *sys.argv[1:5]
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
def dial():
    socket.create_connection((host, int(port)), 2).close()
    return "connected"
def uncover():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.umount2(secret.encode(), 0), libc.unshare(0x20000)
found = {
    "dial": tried(dial),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "secret": tried(lambda: os.listdir(secret)),
    "uncover": uncover(),
    "secret_then": tried(lambda: os.listdir(secret)),
    "file": tried(lambda: open(file, "rb").read().decode()),
    "memory": tried(lambda: len(open(f"/proc/{os.getppid()}/mem", "rb").read(0)) == 0),
    "environment": sorted(os.environ),
    "theirs": tried(lambda: len(open(f"/proc/{os.getppid()}/environ", "rb").read())),
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")],
    "user": os.geteuid(),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "data": resource.getrlimit(resource.RLIMIT_DATA),
    "cpu": resource.getrlimit(resource.RLIMIT_CPU)[0],
    "nice": os.nice(0),
}
os.write(wire, json.dumps(found).encode())
"""


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def secrets(tmp_path: Path) -> tuple[Path, Path]:
    directory, file = tmp_path / "state", tmp_path / "identity.key"
    directory.mkdir()
    (directory / "sealing.key").write_text("secret")
    file.write_text("secret")
    return directory, file


def probed(
    settings: WorkerSettings, listening: socket.socket, secrets: tuple[Path, Path]
) -> tuple[str, dict[str, Any]]:
    """Why it is not confined, and what it found."""
    host, port = listening.getsockname()
    told = [host, str(port), str(secrets[0]), str(secrets[1])]
    command = [sys.executable, "-I", "-S", "-c", _PROBE, *told]
    wire, process = worker_process._spawned(settings, secrets, command)
    with wire:
        why_not = worker_process._confined(wire, process)
        found = json.loads(wire.recv(1 << 16))
    assert process.wait() == 0
    return why_not, found


def test_a_worker_reaches_no_network_no_key_and_nothing_of_the_agents_memory(
    listening: socket.socket, secrets: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALSUM_PROXY", "user:password")
    why_not, found = probed(WorkerSettings(), listening, secrets)
    assert why_not == ""
    assert found["dial"] != "connected"
    assert found["interfaces"] == ["lo"]
    assert found["secret"] != ["sealing.key"]
    assert found["secret_then"] != ["sealing.key"], "uncovered"
    assert found["uncover"] == [-1, -1]
    assert found["file"] in ("", "PermissionError")
    assert found["memory"] == found["theirs"] == "PermissionError"
    assert "SEALSUM_PROXY" not in found["environment"]
    assert found["capabilities"] == ["0000000000000000"]
    assert found["user"] == os.geteuid()
    assert found["core"] == [0, 0]


def test_the_caps_that_the_settings_name_are_the_kernels(
    listening: socket.socket, secrets: tuple[Path, Path]
) -> None:
    caps = WorkerSettings(memory_mib=512, cpu_seconds=77, nice=os.nice(0) + 3)
    _, found = probed(caps, listening, secrets)
    assert found["data"] == [512 << 20] * 2
    assert found["cpu"] == 77
    assert found["nice"] == 2 * os.nice(0) + 3


def test_where_there_are_no_namespaces_to_be_had_the_worker_says_so() -> None:
    """As in a container whose seccomp profile denies them: here, where their number is 0."""
    script = """
from pathlib import Path
from silo_agent.training.worker_process import look_at_confinement
from silo_agent.worker_settings import WorkerSettings
Path("/proc/sys/user/max_user_namespaces").write_text("0")
print(look_at_confinement(WorkerSettings(), []))
"""
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "No space left on device (unshare)\n"


def test_a_worker_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_CONFINE", Path("/nonexistent/confine.py"))
    with pytest.raises(WorkerLost, match=r"exit code 2\): its last words are above"):
        look_at_confinement(WorkerSettings(), [])


def test_no_worker_outlives_an_agent_that_is_killed(tmp_path: Path) -> None:
    """Not even one that never looks at its socket."""
    script = """
import sys, time
from silo_agent.training import worker_process
from silo_agent.worker_settings import WorkerSettings
sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
wire, process = worker_process._spawned(WorkerSettings(), [], sleeping)
worker_process._confined(wire, process)
print(process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        worker = int(agent.stdout.readline())
        os.kill(agent.pid, signal.SIGKILL)
    for _ in range(600):
        if _ended(worker):
            return
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker went on")


def _ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
