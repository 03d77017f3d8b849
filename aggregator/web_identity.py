"""The wall before a server's routes: whoever cannot say who it is, goes no further. Default deny.

Who calls is found out in ``operators/callers.py``; what they may call is the table's (``web_guard``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.operators.callers import Identified
from aggregator.operators.operator import Operator, PersonRefused, TokenEnded
from aggregator.web_errors import OnRefused, Refused, problem
from privacy.errors import NotAllowed, PeerFault, SignatureRejected
from privacy.ids import PartyId
from privacy.roster import Member

_log = logging.getLogger("sealsum.web")


class IdentityWall:
    """ASGI middleware: nobody passes without proof of who they are, open paths excepted."""

    def __init__(
        self,
        app: ASGIApp,
        identify: Callable[[Scope], Awaitable[Identified]],
        open_paths: frozenset[str],
        on_refused: OnRefused | None = None,
    ) -> None:
        self._app = app
        self._identify = identify
        self._open_paths = open_paths
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Identify the caller, then pass the request on."""
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        try:
            state["caller"] = await self._identify(scope)
        except PeerFault as fault:
            request_id = str(state.get("request_id", ""))
            fields = {"request_id": request_id, "method": scope["method"], "path": scope["path"]}
            _log.warning("request_refused", extra={**fields, "status": fault.status, "kind": fault.kind})
            if self._on_refused is not None:
                person = fault.pseudonym if isinstance(fault, PersonRefused | TokenEnded) else ""
                method, path = scope["method"], scope["path"]
                told = Refused(request_id, "", method, path, fault.status, fault.kind, str(fault), person)
                self._on_refused(told)
            answer = problem(fault.status, fault.kind, fault.kind.replace("-", " "), str(fault), request_id)
            if fault.status == SignatureRejected.status:
                answer.headers["www-authenticate"] = "Bearer"  # RFC 6750, section 3
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


def caller(request: Request) -> Identified:
    """Who calls, as the wall found out.

    Raises:
        SignatureRejected: the wall let a stranger through, to a path that is open.
    """
    found = request.scope.get("state", {}).get("caller")
    if not isinstance(found, Member | Operator):
        raise SignatureRejected("certificate: expected a client certificate, got none")
    return found


# Coroutines, though they await nothing: FastAPI runs a plain function in a thread, at every request.


async def anyone_calling(request: Request) -> Identified:
    """A FastAPI dependency: ``caller``."""
    return caller(request)


async def calling_member(request: Request) -> Member:
    """A FastAPI dependency: the calling member of the charter.

    Raises:
        NotAllowed: it is a person.
    """
    found = caller(request)
    if not isinstance(found, Member):
        raise NotAllowed("caller: this call is for members of the charter; it came from a person")
    return found


async def calling_person(request: Request) -> Operator:
    """A FastAPI dependency: the calling person.

    Raises:
        NotAllowed: it is a member of the charter.
    """
    found = caller(request)
    if not isinstance(found, Operator):
        raise NotAllowed(f"party {found.id!r}: this call is for people; it came from a member's machine")
    return found


def must_be(member: Member, claimed: PartyId) -> None:
    """Refuse a party that speaks in another's name.

    Raises:
        NotAllowed: the certificate and the message name different parties.
    """
    if member.id != claimed:
        raise NotAllowed(f"sender: expected {member.id} (the certificate's party), got {claimed}")
