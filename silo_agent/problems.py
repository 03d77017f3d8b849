"""What a server's refusal means to us: problem documents (RFC 9457) as our own exceptions."""

from __future__ import annotations

import json
from typing import Any, Final

from privacy.errors import (
    Conflict,
    MalformedMessage,
    NotAllowed,
    NotFound,
    OutOfOrder,
    PeerFault,
    SealsumError,
    SecondInstance,
    SignatureRejected,
    TooLarge,
    Unprocessable,
)

MAX_PROBLEM_BYTES: Final = 1 << 16
_MAX_WORDS: Final = 2000
_UNREACHABLE_STATUSES: Final = frozenset({502, 503, 504, 507})
_FAULTS: Final[tuple[type[PeerFault], ...]] = (
    MalformedMessage,
    SignatureRejected,
    NotAllowed,
    NotFound,
    OutOfOrder,
    Conflict,
    SecondInstance,
    TooLarge,
    Unprocessable,
)
_FAULT_BY_KIND: Final[dict[str, type[PeerFault]]] = {fault.kind: fault for fault in _FAULTS}
_FAULT_BY_STATUS: Final[dict[int, type[PeerFault]]] = {
    400: MalformedMessage,
    401: SignatureRejected,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: Unprocessable,
}


class Stopped(SealsumError):
    """The agent was told to end while it trained or waited for a step; what was reserved stays charged."""


class Diverged(SealsumError):
    """Training led to numbers that are no update; which numbers stays here."""


class WorkerLost(SealsumError):
    """The process that trains ended, or answers nothing that makes sense; what was reserved stays charged."""


class OutOfMemory(SealsumError):
    """Reading or training needs more memory than there is, or than ``worker.memory_mib`` allows."""


class WentOn(PeerFault):
    """The round is over, or goes on without this silo: its last message was refused, or came too late."""

    status, kind = 409, "went-on"


class Interrupted(BaseException):
    """The agent was told to end while it was only waiting."""


class Unreachable(PeerFault):
    """The server did not answer, or said that it cannot now, for as long as we were patient."""

    status, kind = 503, "unreachable"


def fault_from(where: str, status: int, body: bytes) -> PeerFault:
    """The exception for an answer other than 2xx: by its problem's kind, else by its status."""
    problem = _parse_problem(body)
    if status in _UNREACHABLE_STATUSES:
        fault: type[PeerFault] = Unreachable
    else:
        kind = str(problem.get("type", "")).removeprefix("urn:sealsum:")
        fault = _FAULT_BY_KIND.get(kind, _FAULT_BY_STATUS.get(status, PeerFault))
    return fault(f"{where}: {status} {_printable(problem)}".rstrip())


def _parse_problem(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _printable(problem: dict[str, Any]) -> str:
    """A peer's words on one line, without control characters: they end in our log."""
    text = ": ".join(words for name in ("title", "detail") if (words := str(problem.get(name, ""))))
    if "request_id" in problem:
        text = f"{text} (request {problem['request_id']})"
    text = text[:_MAX_WORDS]
    return "".join(character if character.isprintable() else " " for character in text)
