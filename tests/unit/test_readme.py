"""The README says what the commands and the measurements say."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.readme import BLOCKS, filled

ROOT = Path(__file__).parents[2]


def test_tables_and_help_text_are_what_their_sources_say() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert filled(readme) == readme, "run: python benchmarks/readme.py"


def test_every_block_comes_from_a_source() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\w+):begin -->", readme)) == set(BLOCKS)


def test_every_path_and_command_named_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:docs|benchmarks|auditor|sealsum)/[\w./-]+)`", readme):
        if not path.startswith("sealsum-"):
            assert (ROOT / path).exists(), path
