"""The tools that judge deploy/: found, run, and missed aloud. A check that cannot be made has failed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def tool(name: str, package: str) -> str:
    """A program of the system; ``package`` is Debian's."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    assert found is not None, f"{name} is not here; run: apt-get install {package}"
    return found


def venv_tool(name: str) -> str:
    """A program of the validators' own environment."""
    found = ROOT / ".venv-deploy" / "bin" / name
    assert found.exists(), f"{name} is not here; run: make deploy-venv"
    return str(found)


def ran(command: Sequence[str], cwd: Path | None = None, given: str | None = None) -> str:
    """What a tool printed; it must have found nothing wrong."""
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def directives(path: Path) -> list[tuple[str, str, str]]:
    """Section, key and value of each line of a unit file, in order; continued lines are joined."""
    section, found = "", []
    for line in path.read_text("utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            found.append((section, key, value))
    return found


def yaml_of(path: Path) -> dict[str, object]:
    """A mapping in a YAML file."""
    loaded = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(loaded, dict)
    return loaded
