"""docs/threat-models.md says what the schema and the rules say: every field, every default, every cell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic_core import PydanticUndefined

from policies.faults import NOT_ENFORCED
from policies.fields import fields, spoken_value
from policies.loader import load_threat_model
from policies.profiles import PROFILES, profile_text
from policies.threat_table import threat_table
from sealsum.cli import cli

DOCS = Path(__file__).parents[3] / "docs"
BY_SCHEME = {
    "additive": "cross-hospital-strict",
    "pairwise": "cross-hospital-one-server",
    "one key": "single-operator-research",
    "joint key": "demo-threshold-bfv",
}
"""Column of the table → a shipped profile of that scheme."""


def _text() -> str:
    return (DOCS / "threat-models.md").read_text("utf-8")


def default_of(path: str) -> str:
    """What a line that is left out says."""
    (found,) = [one for one in fields() if one.path == path]
    value: Any = found.info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if found.group is not None:
        return "given"
    return spoken_value(value)


def threat_rows() -> Iterator[str]:
    """The table threat × lock, from the rules' own answers."""
    tables = {
        column: threat_table(load_threat_model(profile_text(name)).model)
        for column, name in BY_SCHEME.items()
    }
    shown = {"stops": "stops", "bounds": "bounds", "does not": "**does not**", "not asked": "–"}
    for number, row in enumerate(tables["additive"]):
        sums = [shown[table[number].cells["secure sum"].effect] for table in tables.values()]
        rest = [shown[row.cells[lock].effect] for lock in ("noise", "logs and people")]
        yield f"| {row.threat} | {rest[0]} | {' | '.join(sums)} | {rest[1]} |"


def test_every_field_is_in_the_table_with_its_default_and_no_other() -> None:
    section = _text().partition("## Fields")[2]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    said = {line.split("|")[1].strip().strip("`"): line.split("|")[2].strip() for line in rows}
    assert said == {one.path: default_of(one.path) for one in fields()}
    assert all(len(line.split("|")[3].strip()) > 20 for line in rows), "each says what it changes"


def test_the_table_of_threats_and_locks_is_what_the_rules_answer() -> None:
    missing = [row for row in threat_rows() if row not in _text()]
    assert not missing, "\n".join(missing)


def test_every_profile_and_every_field_that_does_not_exist_is_named() -> None:
    assert [name for name in PROFILES if f"`{name}`" not in _text()] == []
    decision = next((DOCS / "adr").glob("0024-*.md")).read_text("utf-8")
    assert [path for path in NOT_ENFORCED if path.removeprefix("spec.") not in decision] == []


def test_every_command_of_the_page_exists_with_its_options() -> None:
    block = _text().partition("```sh\n")[2].partition("```")[0]
    for line in block.splitlines():
        words = shlex.split(line, comments=True)[1:]
        command: click.Command = cli
        with click.Context(cli) as context:
            while isinstance(command, click.Group):
                found = command.get_command(context, words.pop(0))
                assert found is not None, line
                command = found
            known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
