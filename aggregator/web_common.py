"""What every server's web application has: problems, the identity wall, health, and refusals in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, FastAPI, Path
from starlette.responses import JSONResponse
from starlette.types import Scope

from aggregator.logs import without_tokens
from aggregator.operators.callers import Identified, People, identify
from aggregator.operators.operator import Operator
from aggregator.store import Store
from aggregator.web_errors import OnRefused, Refused, install_problems
from aggregator.web_guard import GuardedRoute
from aggregator.web_identity import IdentityWall, anyone_calling, calling_member, calling_person
from privacy.ids import HEX32_PATTERN, NAME_PATTERN, Context, Digest, JobId, PartyId
from privacy.roster import Charter, Member

ContextPath = Annotated[Context, Path(pattern=HEX32_PATTERN)]
DigestPath = Annotated[Digest, Path(pattern=HEX32_PATTERN)]
JobPath = Annotated[JobId, Path(pattern=NAME_PATTERN)]
PartyPath = Annotated[PartyId, Path(pattern=NAME_PATTERN)]
StepPath = Annotated[str, Path(pattern=r"^[a-z_]{1,32}$")]
Caller = Annotated[Member, Depends(calling_member)]
"""The member that calls; the table has judged its role before."""
PersonCalling = Annotated[Operator, Depends(calling_person)]
"""The person that calls, likewise."""
AnyoneCalling = Annotated[Identified, Depends(anyone_calling)]
"""Either, where a row has both."""
IndexPath = Annotated[int, Path(ge=0, lt=100_000)]

LOGGED_KINDS: Final = frozenset(
    {
        "malformed-message",
        "signature-rejected",
        "not-allowed",
        "conflict",
        "second-instance",
        "too-large",
        "unprocessable",
        "policy-refusal",
    }
)
"""Refusals that an auditor wants to see; a missing round or a late call is everyday life."""


def bare_app(title: str, route: type[GuardedRoute]) -> FastAPI:
    """An application whose every route asks the table of ``route`` first; no path is redirected."""
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.route_class = route
    return app


def new_app(
    title: str, route: type[GuardedRoute], store: Store, charter_of: Callable[[], Charter], people: People
) -> FastAPI:
    """An application in which every route but health is closed to strangers."""
    app = bare_app(title, route)
    on_refused = refusals_to_log(store)
    open_paths = frozenset(path for (_, path), row in route.table.items() if row.anyone)

    def who(scope: Scope) -> Awaitable[Identified]:
        return identify(scope, charter_of(), people)

    app.add_middleware(IdentityWall, identify=who, open_paths=open_paths, on_refused=on_refused)
    install_problems(app, on_refused)  # outside the wall, so that its refusals have a request id too

    @app.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        with store.read() as view:
            store.log.check_ours(view.connection)
        return JSONResponse({"status": "ready"})

    return app


def refusals_to_log(store: Store) -> OnRefused:
    """Enter refusals of parties and known people in the audit log; strangers cannot make it grow."""

    def enter(refused: Refused) -> None:
        if refused.kind not in LOGGED_KINDS or not (refused.party or refused.person):
            return
        who = {"party": refused.party} if refused.party else {"person": refused.person}
        counted = store.refusals.take(f"request {refused.party} {refused.person}")
        if counted is None:
            return
        with store.write() as transaction:
            transaction.record(
                "request_refused",
                **who,
                method=refused.method,
                path=without_tokens(refused.path),
                status=refused.status,
                refusal=refused.kind,
                request_id=refused.request_id,
                **counted,
            )

    return enter
