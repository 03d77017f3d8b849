"""Asks ``sealsum-verify``, a program of its own, about a pack; believes its exit code and its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from privacy.errors import ConfigurationError
from sealsum.report.content import Verdict

_VERIFY_S = 600.0
_JUDGED = (0, 5)


def verifier() -> str:
    """Where ``sealsum-verify`` is: a program of its own, installed beside this Python.

    Raises:
        ConfigurationError: it is not.
    """
    program = Path(sys.executable).parent / "sealsum-verify"
    if not program.is_file():
        raise ConfigurationError(
            f"sealsum-verify: expected it at {program}; install it: pip install ./auditor (or make setup)"
        )
    return str(program)


def verdict_of(pack: Path, officers: str | None) -> Verdict:
    """What it says of a pack.

    Raises:
        ConfigurationError: it is not installed, or could not judge the pack.
    """
    pinned = [] if officers is None else ["--officers", officers]
    ended = subprocess.run(  # noqa: S603 - our own program, a path and a digest, no shell
        [verifier(), str(pack), "--json", *pinned], capture_output=True, timeout=_VERIFY_S, check=False
    )
    if ended.returncode not in _JUDGED:
        told = ended.stderr.decode(errors="replace").strip()
        raise ConfigurationError(
            f"sealsum-verify: expected a verdict on {pack}, got exit {ended.returncode}: {told}"
        )
    said = json.loads(ended.stdout)
    fault = said["fault"]
    return Verdict(
        exit_code=ended.returncode,
        checks=sum(bool(one["passed"]) for one in said["checks"]),
        of=len(said["checks"]),
        fault="" if fault is None else f"{fault['entry']}: {fault['reason']}",
        pinned=bool(said["officers"]["pinned"]),
        version=said["version"],
    )
