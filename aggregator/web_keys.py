"""The aggregator's routes for sealed job keys."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import Response

from aggregator.job_keys import JobKeys
from aggregator.web_body import envelope_response, read_envelopes
from aggregator.web_common import Caller, JobPath
from privacy.ids import SiloId


def add_key_routes(app: FastAPI, keys: JobKeys) -> None:
    """Put a job's key, sealed to each silo; get one's own."""

    @app.put("/v1/jobs/{job}/he-key")
    async def put_key(request: Request, job: JobPath, silo: Caller) -> Response:
        new = keys.take(SiloId(silo.id), job, await read_envelopes(request))
        return Response(status_code=201 if new else 200)

    @app.get("/v1/jobs/{job}/he-key")
    async def get_key(job: JobPath, silo: Caller) -> Response:
        sealed = keys.sealed_to(SiloId(silo.id), job)
        return Response(status_code=204) if sealed is None else envelope_response(sealed)
