"""Bodies are counted while they stream, so that an oversize one is refused before it is held."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from privacy.canonical import Frozen, canonical_bytes
from privacy.errors import MalformedMessage, TooLarge
from privacy.ids import Digest
from privacy.wire.envelope import MAX_ENVELOPE_BYTES, Envelope, parse_envelope, parse_envelopes

M = TypeVar("M", bound=Frozen)
WAIT_MAX_S = 60.0
_LONG_BYTES = 1 << 20
_LENGTH_DIGITS_MAX = 19


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLarge: it is, or says it is, over ``limit`` bytes; no more than that was read.
    """
    refuse_announced(request, limit)
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise TooLarge(f"body: expected at most {limit} bytes, got more")
        body += chunk
    return bytes(body)


def body_stream(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body as it comes, for a receiver that counts; an announced excess is refused before the first byte.

    Raises:
        TooLarge: ``Content-Length`` is over ``limit``.
    """
    refuse_announced(request, limit)
    return request.stream()


async def read_envelope(request: Request) -> Envelope:
    """A signed envelope; nothing in it is believed yet."""
    return parse_envelope(await read_body(request, MAX_ENVELOPE_BYTES))


async def read_envelopes(request: Request) -> tuple[Envelope, ...]:
    """A JSON list of signed envelopes; nothing in them is believed yet. A long one is read in a thread."""
    raw = await read_body(request, MAX_ENVELOPE_BYTES)
    return await asyncio.to_thread(parse_envelopes, raw) if len(raw) > _LONG_BYTES else parse_envelopes(raw)


def parsed(model: type[M], value: Any) -> M:
    """A small model of ours from JSON values.

    Raises:
        MalformedMessage: it does not fit; says where and why only, as what came may hold a secret.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"{model.__name__.lower()}.{where}: {fault['msg']}") from error


def envelopes_response(envelopes: Sequence[Envelope]) -> Response:
    """A list of envelopes as it travels."""
    raw = canonical_bytes([envelope.model_dump(mode="json") for envelope in envelopes])
    return Response(raw, media_type="application/json")


def canonical_response(message: BaseModel) -> Response:
    """A message as it travels: its canonical bytes."""
    return Response(canonical_bytes(message), media_type="application/json")


def envelope_response(envelope: Envelope, status: int = 200) -> Response:
    """An envelope as it travels: its canonical bytes."""
    return Response(canonical_bytes(envelope), status, media_type="application/json")


def document_response(document: Frozen) -> Response:
    """A document as it travels: its canonical bytes."""
    return Response(canonical_bytes(document), media_type="application/json")


def content_digest(request: Request) -> Digest:
    """The SHA-256 of ``Content-Digest`` (RFC 9530), as hex.

    Raises:
        MalformedMessage: there is none, or it is not one SHA-256.
    """
    header = request.headers.get("content-digest", "")
    if not (header.startswith("sha-256=:") and header.endswith(":") and len(header) > 10):
        raise MalformedMessage("Content-Digest: expected sha-256=:…: (RFC 9530)")
    try:
        raw = base64.b64decode(header[len("sha-256=:") : -1], validate=True)
    except ValueError as error:  # also of text that is not ASCII
        raise MalformedMessage("Content-Digest: expected base64 between the colons") from error
    if len(raw) != 32:
        raise MalformedMessage(f"Content-Digest: expected 32 bytes, got {len(raw)}")
    return Digest(raw.hex())


def bounded_wait(seconds: float) -> float:
    """A long-poll's patience: what was asked, at most a minute, so that proxies do not cut it."""
    return min(max(seconds, 0.0), WAIT_MAX_S)


def refuse_announced(request: Request, limit: int) -> None:
    """Refuse by ``Content-Length`` alone.

    Raises:
        TooLarge: it is over ``limit``. MalformedMessage: it is not a number.
    """
    announced = request.headers.get("content-length", "0")
    if not announced.isascii() or not announced.isdigit() or len(announced) > _LENGTH_DIGITS_MAX:
        raise MalformedMessage("Content-Length: expected a number")
    if int(announced) > limit:
        raise TooLarge(f"body: expected at most {limit} bytes, got {announced}")
