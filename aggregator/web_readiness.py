"""The aggregator's routes about jobs before a round: the queue, the list, and where each stands at a silo."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Query, Request
from starlette.responses import Response

from aggregator.job_answers import JobAnswers
from aggregator.web_body import canonical_response, read_envelope
from aggregator.web_common import JobPath
from aggregator.web_identity import calling_member
from privacy.ids import SiloId
from privacy.roster import Member
from privacy.wire.readiness import queue_bytes

Caller = Annotated[Member, Depends(calling_member)]
Position = Annotated[int, Query(ge=0, le=2**53 - 1)]


def add_readiness_routes(app: FastAPI, answers: JobAnswers) -> None:
    """Look at the queue; say where a job stands."""

    @app.get("/v1/jobs")
    async def queue(_: Caller, after: Position = 0) -> Response:
        return Response(queue_bytes(answers.queue(after)), media_type="application/json")

    @app.get("/v1/job-list")
    async def listed(beyond: Position = 0) -> Response:
        return canonical_response(answers.listed(beyond))

    @app.post("/v1/jobs/{job}/readiness")
    async def ready(request: Request, job: JobPath, silo: Caller) -> Response:
        answers.accept(SiloId(silo.id), job, await read_envelope(request))
        return Response(status_code=202)
