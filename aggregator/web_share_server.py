"""The share server's HTTP API: each route parses, calls the service and encodes its answer."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from fastapi import FastAPI, Request
from pydantic import Base64Bytes, Field
from starlette.responses import Response

from aggregator.ledger_heads import heads_of
from aggregator.operators.callers import People
from aggregator.share_server.service import ShareServer
from aggregator.store import Store
from aggregator.web_body import (
    body_stream,
    canonical_response,
    content_digest,
    envelope_response,
    parsed,
    read_body,
    read_envelope,
    read_envelopes,
)
from aggregator.web_common import Caller, ContextPath, IndexPath, PartyPath, new_app
from aggregator.web_guard import ShareServerRoute
from aggregator.web_logs import add_log_routes
from aggregator.web_validity import add_validity_routes
from aggregator.witnesses import Witnesses
from privacy.canonical import Frozen, parse_canonical
from privacy.errors import MalformedMessage
from privacy.ids import SiloId
from privacy.wire.charter import MAX_CHARTER_BYTES
from privacy.wire.envelope import MAX_ENVELOPE_BYTES, Envelope


class Submission(Frozen):
    """A silo's manifest and, for servers after the first, its sealed seed in base64."""

    manifest: Envelope
    sealed_seed: str | None
    parts: tuple[Base64Bytes, ...] = Field(default=(), repr=False)
    """All parts of a small vector share, for the first server; none where they were put one by one."""


def share_server_app(server: ShareServer, store: Store, people: People, witnesses: Witnesses) -> FastAPI:
    """The application over one service."""
    app = new_app("Sealsum share server", ShareServerRoute, store, lambda: server.at_the_door, people)

    @app.put("/v1/charter")
    async def put_charter(request: Request, member: Caller) -> Response:
        new = server.charters.take(member.id, await read_body(request, MAX_CHARTER_BYTES))
        return Response(status_code=201 if new else 200)

    @app.post("/v1/rounds")
    async def admit(request: Request) -> Response:
        new = await server.admit(await read_envelope(request))
        return Response(status_code=201 if new else 200)

    @app.get("/v1/ledger-heads")
    async def ledger_heads(silo: Caller) -> Response:
        with store.read() as view:
            return canonical_response(heads_of(view, SiloId(silo.id)))

    @app.put("/v1/rounds/{ctx}/parts/{index}")
    async def put_part(request: Request, ctx: ContextPath, index: IndexPath, silo: Caller) -> Response:
        name = SiloId(silo.id)
        size = server.intake.part_size(ctx, name, index)
        body = body_stream(request, size)
        new = await server.intake.receive_part(ctx, name, index, content_digest(request), body)
        return Response(status_code=201 if new else 200)

    @app.post("/v1/rounds/{ctx}/manifests")
    async def post_manifest(request: Request, ctx: ContextPath, silo: Caller) -> Response:
        submission = parsed(Submission, await _json(request))
        sealed = None if submission.sealed_seed is None else _base64(submission.sealed_seed)
        new = await server.intake.accept(ctx, SiloId(silo.id), submission.manifest, sealed, submission.parts)
        return Response(status_code=201 if new else 200)

    @app.get("/v1/rounds/{ctx}/manifests/{silo}")
    async def get_manifest(ctx: ContextPath, silo: PartyPath) -> Response:
        return envelope_response(server.intake.manifest_of(ctx, SiloId(silo)))

    @app.post("/v1/rounds/{ctx}/close")
    async def close(ctx: ContextPath) -> Response:
        return envelope_response(await server.close(ctx))

    @app.post("/v1/rounds/{ctx}/agree")
    async def agree(request: Request, ctx: ContextPath) -> Response:
        return envelope_response(await server.agree(ctx, await read_envelopes(request)))

    add_validity_routes(app, server)

    @app.post("/v1/rounds/{ctx}/release")
    async def release(request: Request, ctx: ContextPath) -> Response:
        return envelope_response(await server.release(ctx, await read_envelopes(request)))

    @app.get("/v1/rounds/{ctx}/opening/{index}")
    async def opening(ctx: ContextPath, index: IndexPath) -> Response:
        return Response(await server.opening_part(ctx, index), media_type="application/octet-stream")

    @app.post("/v1/rounds/{ctx}/finish")
    async def finish(request: Request, ctx: ContextPath) -> Response:
        await server.finish(ctx, await read_envelope(request))
        return Response(status_code=204)

    add_log_routes(app, store, witnesses, between_rounds=lambda: True)
    return app


async def _json(request: Request) -> Any:
    return parse_canonical(await read_body(request, MAX_ENVELOPE_BYTES), MAX_ENVELOPE_BYTES)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedMessage("sealed_seed: expected base64") from error
