"""A share server that comes back soon is asked again; one that stays away is named."""

from __future__ import annotations

import asyncio
import ssl

import httpx
import pytest

from aggregator import peers
from aggregator.peers import HttpShareServers, ServerUnreachable
from privacy.ids import Context, Digest, PartyId, ServerId

SERVER = ServerId(PartyId("server-0"))
CTX = Context(Digest("0" * 64))


def _part_from(transport: httpx.AsyncBaseTransport) -> bytes:
    async def ask() -> bytes:
        servers = HttpShareServers(
            {SERVER: "https://server-0.test"}, ssl.create_default_context(), {SERVER: transport}
        )
        try:
            return await servers.opening_part(SERVER, CTX, 0)
        finally:
            await servers.aclose()

    return asyncio.run(ask())


@pytest.mark.slow
def test_a_share_server_that_restarts_costs_no_round() -> None:
    refused = iter([True] * 5)

    def answer(request: httpx.Request) -> httpx.Response:
        if next(refused, False):
            raise httpx.ConnectError("connection refused", request=request)
        return httpx.Response(200, content=b"part")

    assert _part_from(httpx.MockTransport(answer)) == b"part"


def test_a_share_server_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    monkeypatch.setattr(peers, "PATIENCE_S", 0.3)
    with pytest.raises(ServerUnreachable, match=r"server-0: it did not answer \(ConnectError\)"):
        _part_from(httpx.MockTransport(answer))
