"""Reading what a child process wrote: events of a JSON-lines log, as they come, and its last error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TAIL_BYTES = 64 * 1024
_ERROR_LEVELS = ("error", "critical")


class LogReader:
    """Follows one log file; each call yields the events that were completed since the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._torn = b""

    def new_events(self) -> list[dict[str, Any]]:
        """Events on lines that are complete by now; lines that are not JSON objects are not events."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        self._offset += len(fresh)
        *lines, self._torn = (self._torn + fresh).split(b"\n")
        return [event for line in lines if (event := _event(line)) is not None]


def last_error(path: Path) -> str:
    """The last thing a child complained of: its last error event, else its last line of plain text."""
    if not path.exists():
        return "it wrote nothing"
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        lines = [line for line in file.read().split(b"\n") if line.strip()]
    if not lines:
        return "it wrote nothing"
    for line in reversed(lines):
        event = _event(line)
        if event is None:
            return line.decode(errors="replace").strip()
        if str(event.get("level", "")).lower() in _ERROR_LEVELS:
            return str(event.get("message") or event.get("detail") or event.get("event") or event)
    return lines[-1].decode(errors="replace").strip()


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
