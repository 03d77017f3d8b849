"""How far one sink has come in a log, kept so that a restart repeats entries and never skips one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import ConfigurationError, MalformedMessage

_MAX_BYTES: Final = 4096


class _Kept(Frozen):
    origin: str
    place: str
    next: Annotated[int, Field(ge=0)]


class Position:
    """``<state>/sinks/<name>.json``. A sink that was given another place begins at entry 0."""

    def __init__(self, path: Path, origin: str, place: str, size: int) -> None:
        """Read it.

        Raises:
            ConfigurationError: it does not read back, or is beyond a log of ``size`` entries.
        """
        self._path = path
        self._origin = origin
        self._place = place
        self.next = 0
        """Number of the first entry that is not known to be there for good."""
        try:
            kept = _Kept.model_validate(parse_canonical(path.read_bytes(), _MAX_BYTES))
        except FileNotFoundError:
            return
        except (MalformedMessage, ValidationError) as error:
            raise ConfigurationError(
                f"{path}: expected how far a sink has come, got something else; delete it to send the whole "
                "log again"
            ) from error
        if (kept.origin, kept.place) != (origin, place):
            return
        if kept.next > size:
            raise ConfigurationError(
                f"{path}: expected a place in a log of {size} entries, got {kept.next}; the log is older "
                "than what the sink has had: restore the newest copy of the state"
            )
        self.next = kept.next

    def keep(self, number: int) -> None:
        """Keep a place, durably.

        Raises:
            OSError: the disk refused.
        """
        scratch = self._path.with_suffix(".tmp")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(canonical_bytes(_Kept(origin=self._origin, place=self._place, next=number)))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self._path)
        self.next = number
