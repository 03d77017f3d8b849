"""Run by its path, before anything heavy: give up network, secrets and limits, then become the worker.

Stays in the standard library and imports nothing of Sealsum: a user namespace is entered while there is one
thread, and torch and NumPy start threads as they are imported. What this process has given up is said in a
first frame (``silo_agent.training.frames``), for the agent to judge. In its order:

(1) it ends with the thread of the agent that started it (PR_SET_PDEATHSIG) and gains nothing by exec
(PR_SET_NO_NEW_PRIVS); (2) no core dumps, its caps, its niceness; (3) a user, a mount and a network namespace
of its own: there is no interface but loopback; what lies under ``hidden`` is covered; whatever capabilities
entering them gave are dropped for good; (4) exec.

Covering is for keys and ledgers: from a user namespace of its own this process can neither look into the
agent's memory (ptrace needs CAP_SYS_PTRACE in the agent's) nor uncover what was covered. From outside a file
is uncovered by renaming another over it, which is not done while a worker runs (ADR 0046).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_LAST_CAPABILITY = 63
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_MIB = 1 << 20


def main() -> None:
    """``confine.py FD JSON``: confine this process, say how far it went, become ``command``."""
    wire, asked = int(sys.argv[1]), json.loads(sys.argv[2])
    # (1)
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if os.getppid() != asked["parent"]:
            return  # it ended before it could be followed
    # (2)
    _limit(asked)
    # (3)
    why = _leave_network(asked["hidden"])
    head = json.dumps({"kind": "confined", "fields": {"why_not": why}, "arrays": []}).encode()
    os.write(wire, struct.pack(">I", len(head)) + head)
    # (4)
    if asked["command"]:
        os.execv(asked["command"][0], asked["command"])  # noqa: S606 (this interpreter, named by the agent)


def _limit(asked: dict[str, int]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if asked["memory_mib"]:
        # Private memory that can be written to. Address space would count what libraries map and never touch.
        resource.setrlimit(resource.RLIMIT_DATA, (asked["memory_mib"] * _MIB,) * 2)
    if asked["cpu_seconds"]:
        resource.setrlimit(resource.RLIMIT_CPU, (asked["cpu_seconds"], asked["cpu_seconds"] + 1))
    if asked["nice"]:
        os.nice(asked["nice"])


def _leave_network(hidden: list[str]) -> str:
    """Empty, or why this process still has its network and sees what was to be hidden."""
    if sys.platform != "linux":
        return f"{sys.platform} has no network namespaces"
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWNET)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
        _raise_loopback()
        _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
        for path in hidden:
            _cover(path)
        for capability in range(_LAST_CAPABILITY + 1):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    except OSError as error:
        return f"{error.strerror} ({error.filename or 'namespaces'})"
    return ""


def _cover(path: str) -> None:
    if os.path.isdir(path):
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _call("mount", b"none", os.fsencode(path), b"tmpfs", flags, b"size=4k,mode=000")
    elif os.path.exists(path):
        _call("mount", b"/dev/null", os.fsencode(path), None, _MS_BIND, None)


def _raise_loopback() -> None:
    """Workers on several devices speak to each other over it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, name))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _prctl(option: int, value: int) -> None:
    _call("prctl", option, value, 0, 0, 0)


def _call(name: str, *arguments: int | bytes | None) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)


if __name__ == "__main__":
    main()
