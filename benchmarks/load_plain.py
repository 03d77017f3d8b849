"""The baseline's server: plaintext FedAvg over the servers' own stack, with no masks, signatures or policy.

    python benchmarks/load_plain.py CONFIG.json       serves until told to stop

uvicorn with our protocol class and mutual TLS, FastAPI, the same body streaming and part digests. ``durable``
stores each part as the share server does (draft, fsync, link) and adds the parts up when all are there;
otherwise a part is added to the sum in memory as it arrives, and nothing is ever written but the model.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
from pathlib import Path

import numpy as np
import uvloop
from fastapi import FastAPI, Request
from starlette.responses import FileResponse, Response

from aggregator.blobs import Directory, sha256_of
from aggregator.logs import log_to_stderr
from aggregator.parts import part_name
from aggregator.web_body import body_stream, content_digest, read_body
from aggregator.web_server import bind, serve
from privacy.canonical import sha256_hex
from privacy.errors import Unprocessable
from privacy.keystore import load_identity
from privacy.update import FLOAT_BYTES
from privacy.wire.messages import PART_BYTES

PART_FLOATS = PART_BYTES // FLOAT_BYTES


class PlainFedAvg:
    """Rounds of ``silos`` updates of ``params`` float32 each, their mean added to the model."""

    def __init__(self, root: Path, silos: int, params: int, durable: bool) -> None:
        self._silos, self._params, self._durable = silos, params, durable
        self._parts, self._models = Directory(root / "parts"), Directory(root / "models")
        self._total = np.zeros(params, dtype=np.float32)
        self._model = np.zeros(params, dtype=np.float32)
        self._came: set[str] = set()
        self._adding = asyncio.Lock()
        self._ended: dict[int, asyncio.Event] = {}
        self._digests: dict[int, str] = {}
        self._store_model(1)

    def model(self, number: int) -> Path:
        """The model that a round starts from."""
        return self._models.path(str(number))

    def part_size(self, index: int) -> int:
        """Bytes of a part."""
        return FLOAT_BYTES * min(PART_FLOATS, self._params - index * PART_FLOATS)

    async def take(self, number: int, silo: str, index: int, request: Request) -> None:
        """One part, checked against the digest that came with it."""
        size = self.part_size(index)
        expected = content_digest(request)
        if self._durable:
            name = (str(number), silo, part_name(index))
            body = body_stream(request, size)
            await self._parts.receive(body, expected, sha256_of, *name, limit=size)
            return
        raw = await read_body(request, size)
        if await asyncio.to_thread(sha256_hex, raw) != expected:
            raise Unprocessable("digest: expected another")
        async with self._adding:
            await asyncio.to_thread(self._add, index, raw)

    async def commit(self, number: int, silo: str) -> None:
        """A silo has sent everything; with the last one the round ends."""
        self._came.add(silo)
        if len(self._came) == self._silos:
            await asyncio.to_thread(self._end, number)
            self._came.clear()
            self.ended(number).set()

    async def result(self, number: int, seconds: float) -> str | None:
        """SHA-256 of the round's model as soon as there is one."""
        try:
            await asyncio.wait_for(self.ended(number).wait(), seconds)
        except TimeoutError:
            return None
        return self._digests[number]

    def ended(self, number: int) -> asyncio.Event:
        """Set once a round is over."""
        return self._ended.setdefault(number, asyncio.Event())

    def _add(self, index: int, raw: bytes) -> None:
        start = index * PART_FLOATS
        self._total[start : start + len(raw) // FLOAT_BYTES] += np.frombuffer(raw, dtype="<f4")

    def _end(self, number: int) -> None:
        if self._durable:
            for index in range(-(-self._params // PART_FLOATS)):
                for silo in self._came:
                    self._add(index, self._parts.read(str(number), silo, part_name(index)))
            self._parts.scrub(str(number))
        self._model += self._total / np.float32(self._silos)
        self._total[:] = 0
        self._digests[number] = self._store_model(number + 1)
        self.model(number - 1).unlink(missing_ok=True)

    def _store_model(self, number: int) -> str:
        raw = memoryview(self._model).cast("B")
        with self._models.draft() as draft:
            for start in range(0, len(raw), PART_BYTES):
                draft.write(bytes(raw[start : start + PART_BYTES]))
            draft.commit(str(number))
        return hashlib.sha256(raw).hexdigest()


def app_of(plain: PlainFedAvg) -> FastAPI:
    """Its HTTP API."""
    app = FastAPI(openapi_url=None)

    @app.get("/v1/rounds/{number}/model")
    async def model(number: int) -> FileResponse:
        return FileResponse(plain.model(number))

    @app.put("/v1/rounds/{number}/parts/{silo}/{index}")
    async def put_part(request: Request, number: int, silo: str, index: int) -> Response:
        await plain.take(number, silo, index, request)
        return Response(status_code=201)

    @app.post("/v1/rounds/{number}/updates/{silo}")
    async def commit(number: int, silo: str) -> Response:
        await plain.commit(number, silo)
        return Response(status_code=201)

    @app.get("/v1/rounds/{number}/result")
    async def result(number: int, wait_s: float) -> Response:
        digest = await plain.result(number, wait_s)
        return Response(status_code=204) if digest is None else Response(json.dumps({"model": digest}))

    return app


async def main() -> None:
    """Serve one job of the baseline."""
    config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    log_to_stderr("INFO")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    plain = PlainFedAvg(Path(config["root"]), config["silos"], config["params"], config["durable"])
    tls = load_identity(Path(config["state"])).server_context
    host, port = config["listen"].rsplit(":", 1)
    await serve(app_of(plain), tls, bind((host, int(port))), drain_s=1, on_drain=lambda: None)


if __name__ == "__main__":
    uvloop.run(main())
