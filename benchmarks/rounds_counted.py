"""Run ``sealsum`` and count the requests that this process sends: one JSON line each, appended to a file.

    python benchmarks/rounds_counted.py FILE silo run --config …

A line is [method, bytes sent, bytes received], in the order in which answers began.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from sealsum.cli import cli


def counted(file: Path) -> Callable[[httpx.Response], None]:
    """Notes one answered request."""

    def note(response: httpx.Response) -> None:
        request = response.request
        sent = int(request.headers.get("content-length", 0))
        line = json.dumps([request.method, sent, int(response.headers.get("content-length", 0))])
        with file.open("a", encoding="ascii") as written:
            written.write(line + "\n")

    return note


def watch(file: Path) -> None:
    """Have every client of httpx that is made from here on note its requests."""
    note = counted(file)
    sync_send, async_send = httpx.Client.send, httpx.AsyncClient.send

    def send(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        response = sync_send(self, request, **options)
        note(response)
        return response

    async def asend(self: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        response = await async_send(self, request, **options)
        note(response)
        return response

    httpx.Client.send = send  # type: ignore[method-assign] # this process is measured, not deployed
    httpx.AsyncClient.send = asend  # type: ignore[method-assign] # as above


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    cli(sys.argv[2:], prog_name="sealsum")
