"""The aggregator's routes for those who run it: hold back new work, keep evidence, let go what is over."""

from __future__ import annotations

import logging
from typing import TypeVar

from fastapi import FastAPI, Request
from starlette.responses import Response

from aggregator.maintenance import Maintenance
from aggregator.orphans import Collector
from aggregator.retention import Retention
from aggregator.web_body import canonical_response, parsed, read_body
from aggregator.web_common import JobPath, PersonCalling
from privacy.canonical import Frozen, parse_canonical
from privacy.wire.upkeep import (
    MAX_REQUEST_BYTES,
    Collection,
    CollectionRequest,
    DrainRequest,
    ExpiryRequest,
    HoldRequest,
    Upkeep,
)

M = TypeVar("M", bound=Frozen)
_log = logging.getLogger("sealsum.aggregator")


def add_upkeep_routes(
    app: FastAPI, maintenance: Maintenance, retention: Retention, collector: Collector
) -> None:
    """Each answer says what stands afterwards; who asked goes into the log under a pseudonym."""

    def stands() -> Response:
        return canonical_response(Upkeep(drain=maintenance.drain, holds=retention.holds()))

    @app.get("/v1/upkeep")
    async def upkeep() -> Response:
        return stands()

    @app.post("/v1/drain")
    async def drain(request: Request, by: PersonCalling) -> Response:
        maintenance.begin(await _asked(request, DrainRequest), by.pseudonym)
        return stands()

    @app.delete("/v1/drain")
    async def resume(by: PersonCalling) -> Response:
        maintenance.end(by.pseudonym)
        return stands()

    @app.post("/v1/holds")
    async def hold(request: Request, by: PersonCalling) -> Response:
        retention.hold(await _asked(request, HoldRequest), by.pseudonym)
        return stands()

    @app.delete("/v1/holds/{job}")
    async def release(job: JobPath, by: PersonCalling) -> Response:
        retention.release(job, by.pseudonym)
        return stands()

    @app.post("/v1/expire")
    async def expire(request: Request, by: PersonCalling) -> Response:
        return canonical_response(retention.expire(await _asked(request, ExpiryRequest), by.pseudonym))

    @app.post("/v1/collect")
    async def collect(request: Request, by: PersonCalling) -> Response:
        wanted = await _asked(request, CollectionRequest)
        _log.info("collection_asked", extra={"person": by.pseudonym, "dry_run": wanted.dry_run})
        found = await collector.collect(wanted.dry_run)
        return canonical_response(
            Collection(
                dry_run=wanted.dry_run,
                blobs=found.deleted,
                bytes=found.deleted_bytes,
                names=found.names,
                missing=found.missing,
            )
        )


async def _asked(request: Request, model: type[M]) -> M:
    raw = await read_body(request, MAX_REQUEST_BYTES)
    return parsed(model, parse_canonical(raw, MAX_REQUEST_BYTES))
