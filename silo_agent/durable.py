"""Write files so that a power cut leaves the old bytes or the new ones, never a mixture. Knows no formats."""

from __future__ import annotations

import os
from pathlib import Path


def private_directory(path: Path) -> Path:
    """Create ``path`` (and parents) readable by its owner only, durably; an existing one is left as it is."""
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(path.parent)
    return path


def sync_directory(path: Path) -> None:
    """Make names created, renamed or removed in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, raw: bytes) -> None:
    """Replace a file as a whole, mode 0600."""
    scratch = path.with_name(path.name + ".tmp")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_directory(path.parent)
