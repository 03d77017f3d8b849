"""What must hold of this machine before a round costs budget: data to read, a disk that takes more."""

from __future__ import annotations

import stat
from pathlib import Path

from policies.health.checks import assert_room
from policies.health.settings import STATE_FREE_BYTES
from privacy.errors import ConfigurationError
from silo_agent.data.sources import assert_readable
from silo_agent.durable import private_directory
from silo_agent.settings import DatasetSettings


def assert_private(state_dir: Path) -> Path:
    """The state directory, made if it is not there; keys and ledgers lie in it, so it is nobody else's.

    Raises:
        ConfigurationError: others can look into it, or it cannot be made or written to.
    """
    try:
        private_directory(state_dir)
        mode = stat.S_IMODE(state_dir.stat().st_mode)
    except OSError as error:
        raise ConfigurationError(
            f"state_dir: {state_dir}: cannot be made or read ({error.strerror}); make it, mode 0700, for the "
            "user that runs the agent"
        ) from error
    if mode & 0o077:
        raise ConfigurationError(
            f"state_dir: {state_dir}: expected mode 0700, got {mode:04o}; run: chmod 700 {state_dir}"
        )
    assert_room(state_dir, STATE_FREE_BYTES)
    return state_dir


def assert_able(dataset: DatasetSettings, state_dir: Path) -> None:
    """Refuse a round that could not be written down, or whose data are not there; it costs nothing then.

    Raises:
        ConfigurationError: the data cannot be opened, or the state directory is full or read-only.
    """
    assert_readable(dataset)
    assert_room(state_dir, STATE_FREE_BYTES)
