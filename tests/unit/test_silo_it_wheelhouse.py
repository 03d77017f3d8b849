"""A wheelhouse says what is in it, and any changed byte shows."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "wheelhouse.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheelhouse", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, name: str, version: str) -> None:
    said = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nLicense-Expression: MIT\n\nText.\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", said)
        archive.writestr(f"{name}/vendored-1.0.dist-info/METADATA", "Name: another\n")


def check(folder: Path) -> int:
    return subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=folder, capture_output=True).returncode


def test_a_wheelhouse_lists_what_it_holds_and_shows_any_change(tmp_path: Path) -> None:
    wheel(tmp_path, "sealsum", "0.1.0")
    wheel(tmp_path, "httpx", "0.28.1")
    module = script()
    assert module.finish(tmp_path) == 2
    bill = json.loads((tmp_path / "sbom.cdx.json").read_text())
    assert [(one["name"], one["version"]) for one in bill["components"]] == [
        ("httpx", "0.28.1"),
        ("sealsum", "0.1.0"),
    ]
    listed = {one["hashes"][0]["content"] for one in bill["components"]}
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert len(listed) == 2
    assert all(digest in sums for digest in listed)
    assert check(tmp_path) == 0
    again = (tmp_path / "sbom.cdx.json").read_bytes(), sums
    module.finish(tmp_path)
    assert ((tmp_path / "sbom.cdx.json").read_bytes(), (tmp_path / "SHA256SUMS").read_text()) == again
    with (tmp_path / "httpx-0.28.1-py3-none-any.whl").open("ab") as file:
        file.write(b"x")
    assert check(tmp_path) != 0


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected wheels, got none"):
        script().finish(tmp_path)
