"""docs/access.md says, cell by cell, what the access table says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from aggregator.access import AGGREGATOR, REGISTRAR, SHARE_SERVER, Table
from privacy.people import PERSON_ROLES
from privacy.roster import Role

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
TABLES = {"Aggregator": AGGREGATOR, "Share server": SHARE_SERVER, "Registrar": REGISTRAR}
MEMBERS: tuple[Role, ...] = get_args(Role)


def rendered(table: Table) -> list[str]:
    """The table in Markdown: a row an endpoint, a column a role."""
    head = ["endpoint", *MEMBERS, *(f"*{role}*" for role in PERSON_ROLES), "scope"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for (method, path), row in table.items():
        if row.anyone:
            cells = ["anyone"] + [""] * (len(head) - 3) + ["–"]
        else:
            cells = ["✓" if role in row.members else "" for role in MEMBERS]
            cells += ["✓" if role in row.people else "" for role in PERSON_ROLES]
            cells.append(row.scope or "–")
        lines.append(f"| `{method} {path}` | {' | '.join(cells)} |")
    return lines


def page(title: str) -> list[str]:
    """The table below a heading of the page."""
    section = re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.M)
    (text,) = [part for part in section if part.startswith(f"{title}\n")]
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("title", TABLES)
def test_the_page_has_every_cell_of_the_code(title: str) -> None:
    expected = rendered(TABLES[title])
    assert page(title) == expected, "put this there:\n" + "\n".join(expected)
