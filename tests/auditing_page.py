"""Runs the commands of docs/auditing.md as written, on a pack, in one shell that stops at a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "auditing.md"


def commands() -> str:
    """Every block that the page marks as shell, in order."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))


def run_page(pack: Path, officers: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What an auditor's shell says; a command that fails ends it."""
    programs = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PACK": str(pack),
        "OFFICERS": officers,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
