"""The agent's log: one JSON object a line on stderr, an event name and public fields.

Fields are rounds, contexts, rules and times; never counts of records, losses, norms or gradients.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """``{"at", "level", "event", …}``; a record's ``extra`` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def log_to_stderr(level: str) -> None:
    """Send this process's log to stderr. Libraries speak from ``warning`` on: httpx would log each URL."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.setLevel(level.upper())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for ours in ("silo_agent", "policies", "sealsum"):
        # Never above info: what is measured is counted from these events (silo_agent/meters.py).
        logging.getLogger(ours).setLevel(min(logging.INFO, logging.getLevelName(level.upper())))
