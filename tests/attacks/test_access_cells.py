"""Every cell of the access table, endpoint × role, by real calls: who has one passes, others get 403."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import httpx
import pytest
from fastapi import FastAPI

from aggregator.access import AGGREGATOR, API_TOKEN_SCOPES, SHARE_SERVER, Access, Endpoint, Table
from privacy.people import PERSON_ROLES, PersonRole
from privacy.roster import Role
from tests.access_world import AccessWorld, group
from tests.aggregator_world import on_loop

MEMBERS: dict[Role, str] = {
    "silo": "silo-1",
    "aggregator": "aggregator",
    "share_server": "server-1",
    "researcher": "researcher",
}
FILLED = {
    "digest": "0" * 64,
    "ctx": "0" * 64,
    "job": "job-1",
    "step": "step",
    "name": "name",
    "index": "0",
    "silo": "silo-1",
    "of": "server-1",
    "over": "shares",
    "token": "0" * 12,
}


def path_of(endpoint: Endpoint) -> str:
    """The endpoint's path with values that are well formed and mean nothing."""
    return re.sub(r"\{(\w+)\}", lambda match: FILLED.get(match[1], "0"), endpoint[1])


def refused(answer: httpx.Response) -> bool:
    """Whether the table said no; a handler's own 403 reads differently."""
    if answer.status_code != 403 or "this call " not in answer.json()["detail"]:
        return False
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["type"], problem["status"]) == ("urn:sealsum:not-allowed", 403)
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "this call is for ;" not in problem["detail"], "it says whom the call is for"
    return True


def servers(world: AccessWorld) -> list[tuple[FastAPI, Table]]:
    return [(world.aggregator().app, AGGREGATOR), (world.share_server().app, SHARE_SERVER)]


def test_every_role_is_tried_and_every_row_names_somebody() -> None:
    assert set(MEMBERS) == set(get_args(Role))
    for table in (AGGREGATOR, SHARE_SERVER):
        for endpoint, row in table.items():
            assert row.anyone != bool(row.members or row.people), endpoint
            assert row.scope is None or row.people, endpoint


@on_loop
async def test_each_member_passes_where_the_table_has_a_cell_and_nowhere_else(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    for app, table in servers(world):
        for role, party in MEMBERS.items():
            async with world.client(app, world.world.federation.certificate_der(party)) as client:
                for endpoint, row in table.items():
                    answer = await client.request(endpoint[0], path_of(endpoint))
                    assert answer.status_code != 401, (endpoint, role)
                    assert refused(answer) != (row.anyone or role in row.members), (endpoint, role)


@pytest.mark.parametrize("proof", ["certificate", "oidc", "api_token"])
@on_loop
async def test_each_person_passes_where_the_table_has_a_cell_and_nowhere_else(
    tmp_path: Path, proof: str
) -> None:
    world = AccessWorld(tmp_path)
    for app, table in servers(world):
        for role in PERSON_ROLES:
            async with await as_person(world, app, role, proof) as client:
                for endpoint, row in table.items():
                    answer = await client.request(endpoint[0], path_of(endpoint))
                    assert answer.status_code != 401, (endpoint, role, answer.text)
                    assert refused(answer) != allowed(row, role, proof), (endpoint, role, answer.text)


@on_loop
async def test_strangers_get_401_everywhere_but_where_anyone_may_come(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    for app, table in servers(world):
        async with world.client(app) as client:
            for endpoint, row in table.items():
                answer = await client.request(endpoint[0], path_of(endpoint))
                assert (answer.status_code == 401) != row.anyone, endpoint
                if not row.anyone:
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert answer.json()["type"] == "urn:sealsum:signature-rejected"


@on_loop
async def test_an_api_token_opens_the_endpoints_of_its_scopes_and_no_others(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    for app, table in servers(world):
        for scope in sorted(API_TOKEN_SCOPES):
            token = await world.api_token(app, "auditor", (scope,))
            async with world.client(app, token=token) as client:
                for endpoint, row in table.items():
                    answer = await client.request(endpoint[0], path_of(endpoint))
                    mine = row.anyone or ("auditor" in row.people and row.scope in (None, scope))
                    assert refused(answer) != mine, (endpoint, scope, answer.text)


def allowed(row: Access, role: PersonRole, proof: str) -> bool:
    """What the table says of a person with all that can be given to her."""
    within = proof != "api_token" or row.scope is None or row.scope in API_TOKEN_SCOPES
    return row.anyone or (role in row.people and within)


async def as_person(world: AccessWorld, app: FastAPI, role: PersonRole, proof: str) -> httpx.AsyncClient:
    if proof == "certificate":
        return world.client(app, world.certificate(role))
    if proof == "oidc":
        return world.client(app, token=world.issuer.token(groups=[group(role)]))
    return world.client(app, token=await world.api_token(app, role, tuple(sorted(API_TOKEN_SCOPES))))
