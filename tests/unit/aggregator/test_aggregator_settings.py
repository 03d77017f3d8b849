"""A server's settings file: each fault is told with what came and what to do, and no password with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator.settings import AggregatorSettings, load_settings
from privacy.errors import ConfigurationError


def refused(directory: Path, text: str) -> str:
    path = directory / "server.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, AggregatorSettings)
    return str(caught.value)


def test_each_fault_says_what_came_and_what_to_do(tmp_path: Path) -> None:
    said = refused(tmp_path, "listen: 127.0.0.1\nchartr: ../charter.json\n")
    assert "state_dir: Field required; add it" in said
    assert "got '127.0.0.1'" in said
    assert "chartr: Extra inputs are not permitted; correct its name or leave it out" in said


def test_a_database_url_is_never_shown(tmp_path: Path) -> None:
    said = refused(tmp_path, "state_dir: s\nlisten: 127.0.0.1:1\ndatabase_url: 'nonsense:hunter2'\n")
    assert "database_url" in said
    assert "hunter2" not in said
