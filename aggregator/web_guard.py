"""The access table at the door: each route asks its row before anything else of the request is looked at."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from aggregator.access import AGGREGATOR, REGISTRAR, SHARE_SERVER, Access, Table
from aggregator.web_identity import caller
from privacy.errors import ConfigurationError, NotAllowed
from privacy.people import PersonRole
from privacy.roster import Member


class GuardedRoute(APIRoute):
    """A route that has a row in the table, and refuses whoever has no cell in it."""

    table: ClassVar[Table] = {}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler behind its row.

        Raises:
            ConfigurationError: there is no row for this route.
        """
        handle = super().get_route_handler()
        rows = {method: self._row(method) for method in self.methods or ()}

        async def guarded(request: Request) -> Response:
            assert_allowed(rows[request.method], request)
            return await handle(request)

        return guarded

    def _row(self, method: str) -> Access:
        for (named, path), row in self.table.items():
            if (named, path) == (method, self.path):
                return row
        raise ConfigurationError(
            f"route {method} {self.path}: expected a row in aggregator/access.py that says who may call it"
        )


class AggregatorRoute(GuardedRoute):
    """Of the aggregator."""

    table = AGGREGATOR


class ShareServerRoute(GuardedRoute):
    """Of a share server."""

    table = SHARE_SERVER


class RegistrarRoute(GuardedRoute):
    """Of the registrar."""

    table = REGISTRAR


def assert_allowed(row: Access, request: Request) -> None:
    """Refuse a caller without a cell; checks, in this order:

    (1) the row is open, or the wall knows who calls; (2) a member's role is among the members' in the row;
    (3) one of a person's roles is among the people's; (4) an API token was given the row's scope.

    Raises:
        SignatureRejected: (1). NotAllowed: (2) to (4).
    """
    # (1)
    if row.anyone:
        return
    found = caller(request)
    if isinstance(found, Member):
        # (2)
        if found.role not in row.members:
            people = f"people with the role {_or(row.people)}, who are no members"
            wanted = _or(row.members) if row.members else people
            raise NotAllowed(f"party {found.id!r}: this call is for {wanted}; it is enrolled as {found.role}")
        return
    # (3)
    if not found.roles & row.people:
        wanted = _or(row.people) if row.people else "members of the charter, by their certificates"
        raise NotAllowed(f"{found.name}: this call is for {wanted}; this caller has {_roles(found.roles)}")
    # (4)
    if row.scope is not None and found.scopes is not None and row.scope not in found.scopes:
        raise NotAllowed(
            f"{found.name}: this call takes the scope {row.scope}; the token was given {_or(found.scopes)}"
        )


def _or(names: frozenset[Any]) -> str:
    return " or ".join(sorted(names))


def _roles(roles: frozenset[PersonRole]) -> str:
    return f"the role {_or(roles)}" if roles else "no role here; groups become roles by oidc.roles"


def assert_all_guarded(app: FastAPI, table: Table) -> None:
    """Refuse to start an application with a way in that the table does not know, or a row without a route.

    Raises:
        ConfigurationError: names them.
    """
    guarded = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, GuardedRoute) and route.table is table
        for method in route.methods or ()
    }
    strays = [repr(route) for route in app.routes if not isinstance(route, GuardedRoute)]
    stale = [" ".join(endpoint) for endpoint in sorted(set(table) - guarded)]
    if strays or stale:
        raise ConfigurationError(
            "aggregator/access.py: expected a row for each route and a route for each row; "
            f"without a row: {', '.join(strays) or 'none'}; without a route: {', '.join(stale) or 'none'}"
        )
