"""The aggregator's HTTP API: each route parses, calls a service and encodes its answer."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Depends, FastAPI, Query, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from aggregator.charter_change import CharterChange
from aggregator.evidence import job_evidence
from aggregator.instances import Instances
from aggregator.ledger_heads import heads_of
from aggregator.model_intake import Models
from aggregator.next_round import next_round
from aggregator.operators.callers import People
from aggregator.operators.operator import PersonReading
from aggregator.state import AggregatorState
from aggregator.submissions import Submissions
from aggregator.uploads import Uploads
from aggregator.web_body import (
    body_stream,
    bounded_wait,
    canonical_response,
    content_digest,
    document_response,
    envelope_response,
    envelopes_response,
    read_body,
    read_envelope,
    read_envelopes,
)
from aggregator.web_common import (
    AnyoneCalling,
    Caller,
    ContextPath,
    DigestPath,
    IndexPath,
    JobPath,
    StepPath,
    new_app,
)
from aggregator.web_guard import AggregatorRoute
from aggregator.web_instance import one_instance
from aggregator.web_ranges import blob_response
from policies.explain import explain
from privacy.ids import HEX32_PATTERN, Digest, SiloId
from privacy.roster import Member
from privacy.wire.charter import MAX_CHARTER_BYTES

Architecture = Annotated[Digest, Query(pattern=HEX32_PATTERN)]
After = Annotated[str, Query(pattern=HEX32_PATTERN + "|^$")]
Version = Annotated[int, Query(ge=0)]
Position = Annotated[int, Query(ge=0, le=2**53 - 1)]
"""Of a job in the queue."""
Wait = Annotated[float, Query(ge=0, le=86400)]


def aggregator_app(
    state: AggregatorState,
    models: Models,
    submissions: Submissions,
    uploads: Uploads,
    charters: CharterChange,
    people: People,
) -> FastAPI:
    """The application over one aggregator's state."""
    app = new_app(
        "Sealsum aggregator", AggregatorRoute, state.store, lambda: state.charters.at_the_door, people
    )
    app.router.dependencies.append(Depends(one_instance(Instances(time.monotonic))))

    @app.get("/v1/charter")
    async def charter() -> Response:
        return document_response(state.held.endorsed)

    @app.put("/v1/charter")
    async def put_charter(request: Request, member: Caller) -> Response:
        new = await charters.take(member.id, await read_body(request, MAX_CHARTER_BYTES))
        return Response(status_code=201 if new else 200)

    @app.get("/v1/policy")
    async def policy() -> JSONResponse:
        loaded = state.held.policy
        return JSONResponse({"policy": loaded.digest, "explanation": str(explain(loaded.model))})

    @app.put("/v1/models/{digest}")
    async def put_model(request: Request, digest: DigestPath, architecture: Architecture) -> Response:
        body = body_stream(request, models.bytes_max)
        new = await models.put(digest, architecture, body)
        return Response(status_code=201 if new else 200)

    @app.get("/v1/models/{digest}")
    async def get_model(request: Request, digest: DigestPath, reader: AnyoneCalling) -> Response:
        judged = reader if isinstance(reader, Member) else PersonReading(reader.name, reader.legal_entity)
        return await blob_response(request, *models.blob(judged, digest), digest)

    @app.post("/v1/jobs")
    async def post_job(request: Request, researcher: Caller) -> Response:
        job, new = await submissions.submit_job(researcher.id, await read_envelope(request))
        return JSONResponse({"job": job}, 201 if new else 200)

    @app.get("/v1/jobs/{job}")
    async def get_job(job: JobPath, after: Version = 0, wait_s: Wait = 0.0, beyond: Version = 0) -> Response:
        view = await submissions.watch_job(job, after, bounded_wait(wait_s), beyond)
        return Response(status_code=204) if view is None else JSONResponse(view)

    @app.get("/v1/jobs/{job}/evidence")
    async def evidence(job: JobPath) -> StreamingResponse:
        return StreamingResponse(job_evidence(state, job), media_type="application/json")

    @app.get("/v1/offers")
    async def offers(
        silo: Caller, after: After = "", wait_s: Wait = 0.0, jobs: Position | None = None
    ) -> Response:
        offer = await submissions.next_offer(SiloId(silo.id), after, bounded_wait(wait_s), jobs)
        return Response(status_code=204) if offer is None else envelope_response(offer)

    @app.get("/v1/ledger-heads")
    async def ledger_heads(silo: Caller) -> Response:
        with state.store.read() as view:
            return canonical_response(heads_of(view, SiloId(silo.id)))

    @app.post("/v1/rounds/{ctx}/manifests")
    async def manifest(request: Request, ctx: ContextPath, silo: Caller) -> Response:
        submissions.accept_manifest(SiloId(silo.id), ctx, await read_envelope(request))
        return Response(status_code=202)

    @app.post("/v1/rounds/{ctx}/refusals")
    async def refusal(request: Request, ctx: ContextPath, silo: Caller) -> Response:
        submissions.accept_refusal(SiloId(silo.id), ctx, await read_envelope(request))
        return Response(status_code=202)

    @app.get("/v1/rounds/{ctx}/steps/{step}")
    async def get_step(ctx: ContextPath, step: StepPath, silo: Caller, wait_s: Wait = 0.0) -> Response:
        inbox = await uploads.inbox(ctx, SiloId(silo.id), step, bounded_wait(wait_s))
        return Response(status_code=204) if inbox is None else envelopes_response(inbox)

    @app.post("/v1/rounds/{ctx}/steps/{step}")
    async def post_step(request: Request, ctx: ContextPath, step: StepPath, silo: Caller) -> Response:
        uploads.expect(ctx, SiloId(silo.id), step)
        await uploads.answer(ctx, SiloId(silo.id), step, await read_envelopes(request))
        return Response(status_code=202)

    @app.put("/v1/rounds/{ctx}/files/{name}/{index}")
    async def put_file(
        request: Request, ctx: ContextPath, name: StepPath, index: IndexPath, silo: Caller
    ) -> Response:
        size = uploads.size(ctx, SiloId(silo.id), name, index)
        body = body_stream(request, size)
        new = await uploads.receive(ctx, SiloId(silo.id), name, index, content_digest(request), body)
        return Response(status_code=201 if new else 200)

    @app.get("/v1/rounds/{ctx}/files/{name}/{index}")
    async def get_file(ctx: ContextPath, name: StepPath, index: IndexPath, silo: Caller) -> Response:
        raw = await uploads.fetch(ctx, SiloId(silo.id), name, index)
        return Response(raw, media_type="application/octet-stream")

    @app.get("/v1/rounds/{ctx}/next")
    async def following(ctx: ContextPath, silo: Caller, wait_s: Wait = 0.0) -> Response:
        coming = await next_round(state, models, submissions, silo, ctx, bounded_wait(wait_s))
        if coming is None:
            return Response(status_code=204)
        return Response(coming.model_dump_json(), media_type="application/json")

    @app.get("/v1/rounds/{ctx}/result")
    async def result(ctx: ContextPath, reader: Caller, wait_s: Wait = 0.0) -> Response:
        ended = await submissions.wait_result(reader.id, ctx, bounded_wait(wait_s))
        return Response(status_code=204) if ended is None else envelope_response(ended)

    return app
