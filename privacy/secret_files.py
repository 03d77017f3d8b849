"""Files that hold secrets: read only where nobody else can, written once with mode 0600. Knows no formats."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from privacy.errors import ConfigurationError


def read_file(path: Path) -> bytes:
    """Read a public file.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error


def read_secret(path: Path) -> bytes:
    """Read a private key file.

    Raises:
        ConfigurationError: it cannot be read, or group or world can.
    """
    raw = read_file(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ConfigurationError(
            f"{path}: expected mode 0600 or tighter, got {mode:04o}; run: chmod 600 {path}"
        )
    return raw


def write_secret(path: Path, raw: bytes) -> None:
    """Create a private key file with mode 0600; never overwrites.

    Raises:
        ConfigurationError: it exists already.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigurationError(f"{path}: a key exists already; move it, or name another file") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
