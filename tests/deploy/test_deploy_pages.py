"""The operators' pages name commands, options, files and sections that exist."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from sealsum.cli import cli
from tests.deploy.validators import DEPLOY, ROOT

PAGES = ("operating-a-silo.md", "operating-an-aggregator.md")


def _text(page: str) -> str:
    return (ROOT / "docs" / page).read_text("utf-8")


def _shell_lines(page: str) -> list[str]:
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", _text(page), re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def _sealsum(page: str) -> list[list[str]]:
    """Arguments of each ``sealsum`` in the page's shell blocks."""
    said = (re.search(r"/opt/sealsum/bin/sealsum (.*?)(?: > .*)?$", line) for line in _shell_lines(page))
    return [shlex.split(found[1]) for found in said if found is not None]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_is_known(page: str) -> None:
    commands = _sealsum(page)
    assert len(commands) > 5
    for arguments in commands:
        if arguments == ["--version"]:
            continue
        command: click.Command = cli
        context = click.Context(cli)
        rest = arguments
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = command.get_command(context, rest[0])
            assert found is not None, arguments
            command, rest, context = found, rest[1:], click.Context(found, parent=context)
        options, _, _ = command.make_parser(context).parse_args(list(rest))
        needed = {one.name for one in command.params if one.required and isinstance(one, click.Option)}
        assert needed <= options.keys(), arguments


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_deploy_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"deploy/[\w./-]*\w", _text(page)))
    assert named
    for name in named - {"deploy/systemd/sealsum"}:
        assert (ROOT / name).exists(), name
    for server in re.findall(r"for server in ([a-z -]+);", _text(page)):
        for one in server.split():
            assert (DEPLOY / "systemd" / f"sealsum-{one}.service").exists()


@pytest.mark.parametrize("page", PAGES)
def test_every_incident_that_operators_fear_has_a_section(page: str) -> None:
    headings = set(re.findall(r"^#+ (.+)$", _text(page), re.MULTILINE))
    common = {"Install", "Start", "Upgrading", "Backing up", "Restoring"}
    rotations = {f"Rotating {what}" for what in ("certificates", "keys", "the CA")}
    incidents = {f"Incident: {what}" for what in ("a stolen key", "a full disk", "an expired certificate")}
    own = "Incident: a lost ledger" if page == "operating-a-silo.md" else "Incident: revoking a silo"
    assert common | rotations | incidents | {own} <= headings
