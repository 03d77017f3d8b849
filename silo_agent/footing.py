"""What must hold of this machine before a round costs budget: data to read, a disk that takes more."""

from __future__ import annotations

from pathlib import Path

from health.checks import assert_room
from health.settings import STATE_FREE_BYTES
from silo_agent.datasets import assert_readable
from silo_agent.settings import DatasetSettings


def assert_able(dataset: DatasetSettings, state_dir: Path) -> None:
    """Refuse a round that could not be written down, or whose data are not there; it costs nothing then.

    Raises:
        ConfigurationError: the data cannot be opened, or the state directory is full or read-only.
    """
    assert_readable(dataset)
    assert_room(state_dir, STATE_FREE_BYTES)
