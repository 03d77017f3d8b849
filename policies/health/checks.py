"""What must hold for a process to be ready: named checks, each of which says what it saw or why not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from privacy.errors import ConfigurationError, SealsumError


@dataclass(frozen=True)
class Check:
    """One thing to look at."""

    name: str
    look: Callable[[], str]
    """Says what it saw; raises ``SealsumError`` or ``OSError`` where that is not as it must be."""


@dataclass(frozen=True)
class Seen:
    """What a check came to."""

    name: str
    ok: bool
    said: str


def look_at(checks: Sequence[Check]) -> tuple[Seen, ...]:
    """Every check, in order; none stops the others."""
    return tuple(_seen(check) for check in checks)


def _seen(check: Check) -> Seen:
    try:
        return Seen(check.name, True, check.look())
    except (SealsumError, OSError) as error:
        return Seen(check.name, False, " ".join(str(error).split()))


def assert_room(directory: Path, least_bytes: int) -> str:
    """Refuse a state directory that takes no more: nothing may be trained that cannot be written down.

    Raises:
        ConfigurationError: nothing can be written there, or less room is left than ``least_bytes``.
    """
    try:
        # Free blocks do not tell of a read-only mount, of inodes or of quotas: only writing does.
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".room-") as probe:
            probe.write(b"\0")
            probe.flush()
        free = free_bytes(directory)
    except OSError as error:
        raise ConfigurationError(
            f"{directory}: expected a directory that can be written to, got {error.strerror}; "
            "make room, mount it writable, or give it to the user that runs this"
        ) from error
    if free < least_bytes:
        raise ConfigurationError(
            f"{directory}: expected at least {least_bytes >> 20} MiB free, got {free >> 20} MiB; make room"
        )
    return f"{free >> 20} MiB free"


def free_bytes(directory: Path) -> int:
    """Room that this user has left on the directory's file system."""
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: expected a certificate in PEM; restore it") from error


def assert_in_force(path: Path, now: datetime) -> str:
    """Refuse a certificate that is over or has not begun.

    Raises:
        ConfigurationError: it is so, or it cannot be read.
    """
    certificate = read_certificate(path)
    if now < certificate.not_valid_before_utc:
        raise ConfigurationError(
            f"{path}: in force from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M} by this machine's clock; set the clock"
        )
    if now >= certificate.not_valid_after_utc:
        raise ConfigurationError(
            f"{path}: it ended at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; renew it "
            "(docs/certificates.md), or enrol anew"
        )
    return f"until {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
