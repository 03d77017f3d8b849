"""The Containerfiles: what hadolint says, who runs in them, and that a server's image has no framework."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.deploy.validators import DEPLOY, ROOT, ran, venv_tool

FILES = {name: DEPLOY / "containers" / f"{name}.Containerfile" for name in ("aggregator", "silo")}


def _final_stage(name: str) -> str:
    return FILES[name].read_text("utf-8").rpartition("\nFROM ")[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name: str) -> None:
    ran([venv_tool("hadolint"), str(FILES[name])])


@pytest.mark.parametrize("name", FILES)
def test_an_image_runs_as_nobody_and_holds_no_build_tools(name: str) -> None:
    last = _final_stage(name)
    assert "\nUSER 65532:65532\n" in last
    assert "--gid 65532" in last
    assert "-m 0700 -o 65532 -g 65532 /var/lib/sealsum" in last
    assert "pip install" not in last
    assert re.findall(r"^COPY .*$", last, re.MULTILINE) == ["COPY --from=build /opt/sealsum /opt/sealsum"]
    assert "uninstall --quiet --yes pip setuptools" in FILES[name].read_text("utf-8")


def _installed(name: str) -> set[str]:
    (extras,) = re.findall(r"'\.\[([a-z0-9,]+)\]'", FILES[name].read_text("utf-8"))
    return set(extras.split(","))


def test_a_servers_image_has_no_framework_and_a_silos_has_no_server() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert _installed("aggregator") | _installed("silo") <= known.keys()
    assert not {"silo", "demo", "dev"} & _installed("aggregator")
    assert not {"aggregator", "demo", "dev"} & _installed("silo")
    assert "torch" not in FILES["aggregator"].read_text("utf-8")


@pytest.mark.parametrize("name", FILES)
def test_an_image_carries_the_list_of_what_is_in_it(name: str) -> None:
    text = FILES[name].read_text("utf-8")
    assert "/opt/sbom/bin/cyclonedx-py environment" in text
    assert "/opt/sealsum/share/doc/sealsum/sbom.cdx.json /opt/sealsum/bin/python" in text
