"""The registrar over HTTPS: enrolling, renewing, and the sealed charter. Knows no rule of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Final, TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from aggregator.access import REGISTRAR
from aggregator.enrolment.authority import Authority
from aggregator.enrolment.messages import CHARTER_PATH, ENROL_PATH, MAX_ENROL_BYTES, EnrolRequest
from aggregator.enrolment.registrar import Registrar
from aggregator.web_body import document_response, read_body
from aggregator.web_common import bare_app
from aggregator.web_errors import Refused, install_problems
from aggregator.web_guard import RegistrarRoute, assert_all_guarded
from privacy.canonical import Frozen, canonical_bytes
from privacy.errors import MalformedMessage, NotFound
from privacy.renewal import MAX_RENEWAL_BYTES, RENEW_PATH, SignedRenewal

LOG: Final = logging.getLogger("sealsum.registrar")


def registrar_app(authority: Authority, registrar: Registrar, clock: Callable[[], datetime]) -> FastAPI:
    """The registrar's three routes; everything else is 404."""
    app = bare_app("Sealsum registrar", RegistrarRoute)

    @app.post(ENROL_PATH, status_code=HTTPStatus.CREATED)
    async def enrol(request: Request) -> Response:
        wanted = _parsed(EnrolRequest, "enrolment", await read_body(request, MAX_ENROL_BYTES))
        answer = await run_in_threadpool(registrar.enrol, wanted, clock())
        LOG.info("enrolled", extra={"party": wanted.party})
        return Response(canonical_bytes(answer), HTTPStatus.CREATED, media_type="application/json")

    @app.post(RENEW_PATH, status_code=HTTPStatus.CREATED)
    async def renew(request: Request) -> Response:
        # Open to everybody: the request is signed by the party's identity key, which is what counts.
        asked = _parsed(SignedRenewal, "renewal", await read_body(request, MAX_RENEWAL_BYTES))
        known = await run_in_threadpool(authority.authorities)
        answer = await run_in_threadpool(registrar.renew, asked, known, clock())
        LOG.info("renewed", extra={"party": asked.renewal.party})
        return Response(canonical_bytes(answer), HTTPStatus.CREATED, media_type="application/json")

    @app.get(CHARTER_PATH)
    async def charter() -> Response:
        # Open to everybody: the charter is public, its signatures tell, and a party has no roster before it.
        endorsed = await run_in_threadpool(authority.endorsed_charter)
        if endorsed is None:
            raise NotFound("charter: there is none in force yet; ask the federation's officers")
        return document_response(endorsed)

    install_problems(app, _log_refusal)
    assert_all_guarded(app, REGISTRAR)
    return app


M = TypeVar("M", bound=Frozen)


def _parsed(model: type[M], what: str, raw: bytes) -> M:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        # Without the input: it holds the secret.
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"{what} {field}: {fault['msg']}") from None


def _log_refusal(refused: Refused) -> None:
    """For the officer: who was turned away, and why. No secret is in the words."""
    LOG.warning("enrolment_refused", extra={"request_id": refused.request_id, "reason": refused.detail})
