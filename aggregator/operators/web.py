"""What people ask every server: how to log in, who they are here, who else may come, and API tokens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import JSONResponse, Response

from aggregator.operators.api_tokens import TokenRequest
from aggregator.operators.callers import People
from aggregator.operators.repeats import RepeatKey
from aggregator.operators.settings import OidcSettings
from aggregator.web_body import parsed, read_body
from aggregator.web_common import AnyoneCalling, PersonCalling
from privacy.canonical import parse_canonical
from privacy.errors import NotFound
from privacy.roster import Member

REQUEST_BYTES_MAX = 4096
TokenPath = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")]


def add_people_routes(app: FastAPI, people: People, federation: str, oidc: OidcSettings | None) -> None:
    """Add them to a server's application."""

    @app.get("/v1/login")
    async def login() -> JSONResponse:
        if oidc is None:
            raise NotFound(
                "login: no issuer is configured at this server (oidc: in server.yaml); "
                "show a client certificate or an API token"
            )
        return JSONResponse(
            {
                "federation": federation,
                "issuer": oidc.issuer,
                "client_id": oidc.client_id,
                "audience": oidc.audience,
                "scopes": list(oidc.scopes),
            }
        )

    @app.get("/v1/whoami")
    async def whoami(caller: AnyoneCalling) -> JSONResponse:
        if isinstance(caller, Member):
            return JSONResponse(
                {
                    "federation": federation,
                    "kind": "member",
                    "name": caller.id,
                    "roles": [caller.role],
                    "by": "certificate",
                }
            )
        return JSONResponse(
            {
                "federation": federation,
                "kind": "person",
                "name": caller.name,
                "roles": sorted(caller.roles),
                "by": caller.by,
                "pseudonym": caller.pseudonym,
                "scopes": None if caller.scopes is None else sorted(caller.scopes),
                "expires_at": caller.expires_at,
            }
        )

    @app.get("/v1/operators")
    async def operators() -> JSONResponse:
        return JSONResponse({"operators": people.listed(), "groups": {} if oidc is None else oidc.roles})

    @app.post("/v1/tokens")
    async def new_token(request: Request, by: PersonCalling) -> JSONResponse:
        raw = await read_body(request, REQUEST_BYTES_MAX)
        wanted = parsed(TokenRequest, parse_canonical(raw, REQUEST_BYTES_MAX))
        key = RepeatKey.of_header(request.headers.get("idempotency-key"))
        issued = people.api_tokens.issue(wanted, by, key)
        answer: dict[str, Any] = {"id": issued.id, "token": issued.text, "expires_at": issued.expires_at}
        return JSONResponse(answer, 201, headers={"cache-control": "no-store"})

    @app.get("/v1/tokens")
    async def tokens() -> JSONResponse:
        return JSONResponse({"tokens": people.api_tokens.listed()})

    @app.delete("/v1/tokens/{token}")
    async def revoke(token: TokenPath, by: PersonCalling) -> Response:
        people.api_tokens.revoke(token, by)
        return Response(status_code=204)
