"""No child outlives the demo, whichever way the demo ends; and a child's failure is told in its own words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sealsum.demo.logs import LogReader, last_error
from sealsum.demo.supervise import ChildFailed, Supervisor
from sealsum.demo.watchdog import alive

READY = (
    'import sys,time; print(\'{"event":"listening","url":"u"}\', file=sys.stderr, flush=True); time.sleep(60)'
)
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}"
PARENT = f"""
import sys
from pathlib import Path
from sealsum.demo.supervise import Supervisor
with Supervisor(Path(sys.argv[1])) as supervisor:
    child = supervisor.start("server", [sys.executable, "-c", {READY!r}])
    supervisor.wait_for(child, "listening", 20)
    print(child.process.pid, flush=True)
    child.process.wait()
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def gone_within(group: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not alive(group):
            return True
        time.sleep(0.05)
    return False


def test_a_ready_child_is_awaited_by_its_own_words_and_ended_with_the_block(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("server", python(READY))
        assert supervisor.wait_for(child, "listening", 20)["url"] == "u"
        supervisor.check()
    assert child.process.returncode == -signal.SIGTERM
    assert not alive(child.process.pid)


def test_a_child_that_fails_to_start_is_quoted_with_its_log(tmp_path: Path) -> None:
    code = "import sys; print('Error: server.yaml: no such file', file=sys.stderr); sys.exit(78)"
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("server", python(code))
        with pytest.raises(
            ChildFailed, match=r"exit code 78[\s\S]*server\.yaml: no such file[\s\S]*server\.log"
        ):
            supervisor.wait_for(child, "listening", 20)


def test_a_child_that_dies_while_needed_is_noticed(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("silo", python("raise SystemExit(3)"))
        child.process.wait()
        with pytest.raises(ChildFailed, match="silo: ended with exit code 3"):
            supervisor.check()


def test_a_child_that_never_gets_ready_is_not_waited_for_forever(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("server", python("import time; time.sleep(60)"))
        with pytest.raises(ChildFailed, match=r"expected to be ready within 0 s"):
            supervisor.wait_for(child, "listening", 0.2)
    assert not alive(child.process.pid)


def test_grandchildren_end_too(tmp_path: Path) -> None:
    start = f"subprocess.Popen([sys.executable, '-c', {READY!r}])"
    code = f"import subprocess, sys, time; {start}; time.sleep(60)"
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("server", python(code))
        supervisor.wait_for(child, "listening", 20)
    assert gone_within(child.process.pid, 5)


@pytest.mark.slow
def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("server", python(STUBBORN))
        supervisor.wait_for(child, "listening", 20)
    assert child.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killing_the_demo_leaves_no_orphan(tmp_path: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    with parent.stdout:
        group = int(parent.stdout.readline())
        assert alive(group)
        os.kill(parent.pid, number)
        parent.wait(20)
    assert gone_within(group, 15)


def test_events_are_read_once_they_are_whole(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    reader = LogReader(log)
    assert reader.new_events() == []
    log.write_bytes(b'plain text\n{"event":"one"}\n{"event":"tw')
    assert [event["event"] for event in reader.new_events()] == ["one"]
    with log.open("ab") as file:
        file.write(b'o"}\n')
    assert [event["event"] for event in reader.new_events()] == ["two"]


def test_the_last_error_is_preferred_to_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(
        '{"level":"error","event":"failed","message":"disk full"}\n{"level":"info","event":"stopped"}\n'
    )
    assert last_error(log) == "disk full"
    log.write_text("")
    assert last_error(log) == "it wrote nothing"
