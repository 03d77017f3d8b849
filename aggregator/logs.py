"""JSON lines on stderr: one event a line. Ids, counts and phases only; no message bodies."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final

_TOKENS: Final = re.compile(r"sealsum_[0-9a-f]{12}_[0-9a-f]+|eyJ[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
"""API tokens, and JWTs, whose header is a JSON object in base64url."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({})))


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, event, and what the caller gave as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return without_tokens(json.dumps(line, default=str))


def without_tokens(text: str) -> str:
    """The text, with each bearer token in it struck out: nobody means to log one, and callers write paths."""
    return _TOKENS.sub("[token]", text)


def log_to_stderr(level: str) -> None:
    """Send every logger of this process there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # They speak of requests line by line; ours say what matters under a request id.
    for chatty in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
