"""The share server's calls in rounds with validity: coins, silos' proofs, checks of them, verdicts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from aggregator.share_server.service import ShareServer
from aggregator.web_body import (
    body_stream,
    content_digest,
    envelope_response,
    envelopes_response,
    read_envelope,
    read_envelopes,
)
from aggregator.web_common import Caller, ContextPath, PartyPath
from privacy.ids import ServerId, SiloId
from privacy.secagg.validity.coins import Step

TossPath = Annotated[Literal["shares", "proofs"], Path()]
"""What a coin is tossed over; a name, as a path is text."""
_STEPS: dict[str, Step] = {"shares": 1, "proofs": 2}


def add_validity_routes(app: FastAPI, server: ShareServer) -> None:
    """Add them to a share server's application."""

    @app.post("/v1/rounds/{ctx}/coins/{over}/commit")
    async def commit(request: Request, ctx: ContextPath, over: TossPath) -> Response:
        fixed = await read_envelopes(request)
        return envelope_response(await server.tossing.commit(ctx, _STEPS[over], fixed))

    @app.post("/v1/rounds/{ctx}/coins/{over}/reveal")
    async def reveal(request: Request, ctx: ContextPath, over: TossPath) -> Response:
        commitments = await read_envelopes(request)
        return envelope_response(await server.tossing.reveal(ctx, _STEPS[over], commitments))

    @app.post("/v1/rounds/{ctx}/coins/{over}/settle")
    async def settle(request: Request, ctx: ContextPath, over: TossPath) -> Response:
        await server.tossing.settle(ctx, _STEPS[over], await read_envelopes(request))
        return Response(status_code=204)

    @app.put("/v1/rounds/{ctx}/witness")
    async def put_witness(request: Request, ctx: ContextPath, silo: Caller) -> Response:
        name = SiloId(silo.id)
        body = body_stream(request, server.proofs.witness_size(ctx, name))
        new = await server.proofs.receive_witness(ctx, name, content_digest(request), body)
        return Response(status_code=201 if new else 200)

    @app.post("/v1/rounds/{ctx}/proofs")
    async def post_proof(request: Request, ctx: ContextPath, silo: Caller) -> Response:
        new = await server.proofs.accept(ctx, SiloId(silo.id), await read_envelope(request))
        return Response(status_code=201 if new else 200)

    @app.post("/v1/rounds/{ctx}/proofs/close")
    async def close_proofs(ctx: ContextPath) -> Response:
        return envelopes_response(await server.proofs.freeze(ctx))

    @app.post("/v1/rounds/{ctx}/checks/{silo}")
    async def check(ctx: ContextPath, silo: PartyPath) -> Response:
        return envelope_response(await server.checking.check(ctx, SiloId(silo)))

    @app.get("/v1/rounds/{ctx}/checks/{silo}")
    async def get_check(ctx: ContextPath, silo: PartyPath) -> Response:
        raw = await server.checking.check_bytes(ctx, SiloId(silo))
        return Response(raw, media_type="application/octet-stream")

    @app.put("/v1/rounds/{ctx}/checks/{silo}/{of}")
    async def put_check(request: Request, ctx: ContextPath, silo: PartyPath, of: PartyPath) -> Response:
        about, sender = SiloId(silo), ServerId(of)
        body = body_stream(request, server.checking.check_size(ctx, about, sender))
        new = await server.checking.receive_check(ctx, about, sender, content_digest(request), body)
        return Response(status_code=201 if new else 200)

    @app.post("/v1/rounds/{ctx}/judge")
    async def judge(request: Request, ctx: ContextPath) -> Response:
        return envelope_response(await server.checking.judge(ctx, await read_envelopes(request)))
