"""Ends the demo's children if the demo itself was killed and could not: no process outlives it.

Run as a script with a pipe on stdin whose other end only the demo holds. ``+N`` says process group N was
started, ``-N`` that it has been ended; the end of the pipe means that the demo is gone. Standard library
alone, so that it starts before anything else does.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 10.0
_LOOK_S = 0.05


def alive(group: int) -> bool:
    """Whether any process of a group is still there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may have ended meanwhile."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def watch() -> None:
    """Follow the pipe to its end; then ask what is left to end, and after ten seconds end it."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(alive(group) for group in groups):
        time.sleep(_LOOK_S)
    for group in groups:
        signal_group(group, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watch()
