"""A blob as an answer to GET: whole, or from where an earlier download broke (RFC 9110, 14).

Its entity tag is its digest, so whoever goes on (``If-Range``) goes on with the very same bytes.
"""

from __future__ import annotations

import re
from typing import Final

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from aggregator.blob_store import Blob
from privacy.ids import Digest

SMALL_BYTES: Final = 1 << 20
"""Up to here a blob is answered in one piece."""
_FROM: Final = re.compile(r"bytes=(\d{1,19})-", re.ASCII)
_OCTETS: Final = "application/octet-stream"


async def blob_response(request: Request, blob: Blob, size: int, digest: Digest) -> Response:
    """A blob of ``size`` bytes under its digest, from the first byte that was asked for.

    Of ranges only ``bytes=N-`` is known, which is what goes on with a broken download; any other is answered
    whole, as a server may (RFC 9110, 14.2).
    """
    tag = f'"{digest}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    start = _start(request, tag)
    if start >= size > 0:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    status = 200
    if start:
        status = 206
        headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    if size - start <= SMALL_BYTES:
        raw = await blob.fetch()
        return Response(raw[start:], status, headers, _OCTETS)
    headers["Content-Length"] = str(size - start)
    return StreamingResponse(blob.chunks(start), status, headers, _OCTETS)


def _start(request: Request, tag: str) -> int:
    asked = _FROM.fullmatch(request.headers.get("range", ""))
    if asked is None or request.headers.get("if-range", tag) != tag:
        return 0
    return int(asked[1])
