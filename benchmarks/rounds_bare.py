"""What a round's requests cost where nothing is done for them: same libraries, same sizes, mutual TLS.

    python benchmarks/rounds_bare.py STATE      serve; prints the port, then waits for stdin to close

The server is uvicorn with our protocol class on one bare ASGI function, the client is ``FederationClient``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from aggregator.web_server import DrainingServer, bind, serve, url_of
from privacy.keystore import load_identity
from silo_agent.transport import FederationClient

Sizes = tuple[str, int, int]
"""Method, bytes sent, bytes received."""


@dataclass(frozen=True)
class Bare:
    """The cost of one round's requests, without the round."""

    wall_ms: float
    cpu_ms: float
    """Client and server together."""


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, answer as many bytes as the path asks for."""
    while (await receive()).get("more_body"):
        pass
    body = bytes(int(scope["path"].rsplit("/", 1)[1]))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def serve_bare(state: Path) -> None:
    """Serve until stdin closes."""
    listener = bind(("127.0.0.1", 0))

    def ready(server: DrainingServer) -> None:
        print(url_of(listener), flush=True)

        def end() -> None:
            server.should_exit = not sys.stdin.buffer.read(1)

        asyncio.get_running_loop().run_in_executor(None, end)

    tls = load_identity(state).server_context
    uvloop.run(serve(answer, tls, listener, drain_s=1, on_drain=lambda: None, on_ready=ready))


def cpu_ms(pid: int) -> float:
    """CPU time of a process so far (proc(5): in hundredths of a second)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return 10.0 * (int(fields[11]) + int(fields[12]))


def measure_bare(server: Path, client: Path, requests: Sequence[Sizes], repeats: int) -> Bare:
    """Send a round's requests one after the other over one kept connection, ``repeats`` times."""
    command = [sys.executable, __file__, str(server)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        with FederationClient(load_identity(client), url) as dialled:
            for warm in (True, False):
                wall, cpu = time.perf_counter(), time.process_time() * 1000 + cpu_ms(process.pid)
                for _ in range(5 if warm else repeats):
                    for method, sent, received in requests:
                        path = f"/v1/rounds/{'0' * 64}/{received}"
                        if method == "GET":
                            dialled.get_bytes(path, limit=received)
                        elif method == "PUT":
                            dialled.put_bytes(path, bytes(sent))
                        else:
                            dialled._post(path, bytes(sent), received)  # raw bytes, as every post sends them
            took = 1000 * (time.perf_counter() - wall) / repeats
            cost = (time.process_time() * 1000 + cpu_ms(process.pid) - cpu) / repeats
    return Bare(took, cost)


if __name__ == "__main__":
    serve_bare(Path(sys.argv[1]))
