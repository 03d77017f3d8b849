"""The files of a folder in one order that people can repeat: ``find . -type f | LC_ALL=C sort``.

File names may be patients' ids: errors name a file by its number in that order, or by its row in a table.
"""

from __future__ import annotations

import os
from pathlib import Path

from privacy.errors import ConfigurationError


def files_in(folder: Path, least: int = 0) -> list[Path]:
    """Every file below the folder; hidden ones are left out, links to folders are not followed.

    Raises:
        ConfigurationError: the folder cannot be read, or has fewer than ``least`` files.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found.extend(Path(place) / name for name in files if not name.startswith("."))
    if len(found) < least:
        raise ConfigurationError(f"{folder}: expected a folder with files, got none")
    return sorted(found, key=os.fsencode)


def _unreadable(error: OSError) -> None:
    raise ConfigurationError(f"{error.filename}: cannot be read ({error.strerror})") from error
