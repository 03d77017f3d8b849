"""docs/faults.md has every case once, and names only tests that exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DOC = TESTS.parent / "docs" / "faults.md"
CASES = 67
ROW = re.compile(r"^\| (\d+) \| .+ \| .+ \| (.+) \|$", re.MULTILINE)


def _rows() -> list[tuple[int, str]]:
    """Each case's number and what it says it is shown by."""
    return [(int(number), shown) for number, shown in ROW.findall(DOC.read_text("utf-8"))]


@functools.cache
def _named_in(path: str) -> frozenset[str]:
    """Names of the tests in one file."""
    found = re.findall(r"^(?:async )?def (test_\w+)\(", (TESTS / path).read_text("utf-8"), re.MULTILINE)
    return frozenset(found)


def test_every_case_has_one_row() -> None:
    assert [number for number, _ in _rows()] == list(range(1, CASES + 1))


def test_every_case_names_tests_that_exist_or_says_that_it_is_open() -> None:
    wrong = []
    for number, shown in _rows():
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", shown)
        if not named and not shown.startswith("open"):
            wrong.append(f"case {number} names no test and does not say that it is open")
        for path, name in named:
            if not (TESTS / path).is_file() or name not in _named_in(path):
                wrong.append(f"case {number} names {path}::{name}, which is not there")
    assert wrong == []
