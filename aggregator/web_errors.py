"""Each refusal leaves as problem+json (RFC 9457) with a request id; whose mistake it was sets the status."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from aggregator.not_now import NotNow
from aggregator.operators.operator import Operator
from aggregator.request_ids import HEADER, RequestIds, request_id_of
from policies.findings import PolicyRefusal
from privacy.errors import PeerFault, SealsumError

_log = logging.getLogger("sealsum.web")
_HIDDEN = "something failed on our side; the operator finds it in the log under this request id"


@dataclass(frozen=True)
class Refused:
    """A request that was turned away, in words fit for an audit log."""

    request_id: str
    party: str
    """Which member asked, or "" where none did."""
    method: str
    path: str
    status: int
    kind: str
    detail: str
    person: str = ""
    """The pseudonym of the person who asked, if it was one."""


OnRefused = Callable[[Refused], None]


def install_problems(app: FastAPI, on_refused: OnRefused | None = None) -> None:
    """Give ``app`` request ids and problem documents; tell ``on_refused`` of every 4xx."""

    async def refusal(request: Request, error: Exception) -> Response:
        status, kind, title, extra = _describe(error)
        detail = str(error) if status < 500 or isinstance(error, NotNow) else _HIDDEN
        if isinstance(error, NotNow):
            _log.warning("not_now", extra=_fields(request, status, kind))
        elif status >= 500:
            _log.error("request_failed", extra=_fields(request, status, kind), exc_info=error)
        else:
            _log.warning("request_refused", extra=_fields(request, status, kind))
            if on_refused is not None:
                on_refused(_refused(request, status, kind, detail))
        answer = problem(status, kind, title, detail, request_id_of(request), extra)
        if isinstance(error, NotNow) and error.retry_after_s:
            answer.headers["Retry-After"] = str(error.retry_after_s)
        return answer

    async def http_refusal(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = str(error.detail) if isinstance(error, HTTPException) else _HIDDEN
        _log.warning("request_refused", extra=_fields(request, status, "http"))
        answer = problem(status, "http", detail, detail, request_id_of(request))
        if isinstance(error, HTTPException):
            answer.headers.update(error.headers or {})  # 405 says what is allowed (RFC 9110, 15.5.6)
        return answer

    async def bad_request(request: Request, error: Exception) -> Response:
        # Only where and why: what came may hold a secret, so it is not echoed.
        faults = error.errors() if isinstance(error, RequestValidationError) else []
        words = "; ".join(f"{'.'.join(str(step) for step in f['loc'])}: {f['msg']}" for f in faults)
        _log.warning("request_refused", extra=_fields(request, 400, "malformed-message"))
        return problem(400, "malformed-message", "malformed request", words, request_id_of(request))

    async def gone(request: Request, _: Exception) -> Response:
        # Nobody reads this; it is the caller that broke off, so it is no failure of ours in log and metrics.
        _log.warning("request_refused", extra=_fields(request, 400, "disconnected"))
        told = "the connection ended before the body did"
        return problem(400, "disconnected", "disconnected", told, request_id_of(request))

    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(SealsumError, refusal)
    app.add_exception_handler(HTTPException, http_refusal)
    app.add_exception_handler(RequestValidationError, bad_request)
    app.add_exception_handler(Exception, refusal)
    app.add_middleware(RequestIds)


def problem(
    status: int, kind: str, title: str, detail: str, request_id: str, extra: dict[str, Any] | None = None
) -> Response:
    """One problem document as a response."""
    body = {
        "type": f"urn:sealsum:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "request_id": request_id,
        **(extra or {}),
    }
    # The header here, too: the answer to a failure of ours is sent from outside the middleware.
    headers = {HEADER: request_id} if request_id else {}
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


def _describe(error: Exception) -> tuple[int, str, str, dict[str, Any]]:
    """Status, kind, title and extra members: a peer's mistake is 4xx, ours is 500."""
    if isinstance(error, PolicyRefusal):
        findings = [
            {
                "rule": finding.rule,
                "sentence": finding.sentence,
                "expected": finding.expected,
                "got": finding.got,
                "remedy": finding.remedy,
            }
            for finding in error.findings
        ]
        return 422, "policy-refusal", "refused by the threat model", {"findings": findings}
    if isinstance(error, PeerFault):
        return error.status, error.kind, error.kind.replace("-", " "), {}
    if isinstance(error, NotNow):
        return error.status, error.kind, error.kind.replace("-", " "), {}
    return 500, "internal", "internal error", {}


def _refused(request: Request, status: int, kind: str, detail: str) -> Refused:
    party, person = _caller_of(request)
    return Refused(
        request_id_of(request),
        party,
        request.method,
        request.url.path,
        status,
        kind,
        detail,
        person,
    )


def _caller_of(request: Request) -> tuple[str, str]:
    """The member's name or the person's pseudonym; "" for the other, or for both."""
    caller = request.scope.get("state", {}).get("caller")
    if isinstance(caller, Operator):
        return "", caller.pseudonym
    return ("", "") if caller is None else (str(caller.id), "")


def _fields(request: Request, status: int, kind: str) -> dict[str, Any]:
    party, person = _caller_of(request)
    return {
        "request_id": request_id_of(request),
        **({"person": person} if person else {"party": party}),
        "method": request.method,
        "path": request.url.path,
        "status": status,
        "kind": kind,
    }
