"""The aggregator's routes for results of attacks on a finished job."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import Response

from aggregator.attack_results import AttackResults
from aggregator.web_body import canonical_response, read_envelope
from aggregator.web_common import Caller, JobPath


def add_attack_routes(app: FastAPI, attacks: AttackResults) -> None:
    """Get what is to be attacked; put what came of it."""

    @app.get("/v1/jobs/{job}/attacks")
    async def subject(job: JobPath) -> Response:
        return canonical_response(attacks.subject(job))

    @app.put("/v1/jobs/{job}/attacks")
    async def take(request: Request, job: JobPath, member: Caller) -> Response:
        attacks.take(member.id, job, await read_envelope(request))
        return Response(status_code=202)
