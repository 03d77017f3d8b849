"""The setting ``threshold_he``: which Python runs OpenFHE, at a silo and at the aggregator alike."""

from __future__ import annotations

from pathlib import Path

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError


class ThresholdHeSettings(Frozen):
    """Only its owner names a program that a party starts: nothing that a peer sends reaches this."""

    python: Path
    """CPython with openfhe and numpy (``make threshold-he``); relative to the settings file."""


def anchored(settings: ThresholdHeSettings | None, base: Path) -> ThresholdHeSettings | None:
    """The setting with an absolute path. Links are kept: Python finds a virtual environment by them.

    Raises:
        ConfigurationError: there is no such file.
    """
    if settings is None:
        return None
    python = base / settings.python
    if not python.is_file():
        raise ConfigurationError(
            f"threshold_he.python: expected a Python interpreter at {python}, got no file; "
            "'make threshold-he' makes .venv-openfhe/bin/python"
        )
    return ThresholdHeSettings(python=python)


def python_of(settings: ThresholdHeSettings | None) -> Path | None:
    """The interpreter, or ``None`` for the one that runs this party."""
    return None if settings is None else settings.python
