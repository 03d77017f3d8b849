"""The door to httpx: calls to share servers, over persistent mutual-TLS connections, and to the registrar.

Every call is idempotent at the server, so a lost answer is asked for again. What comes back is capped
in size and believed only once its signature is checked, which is not done here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, MalformedMessage, PeerFault, SealsumError
from privacy.ids import Context, ServerId, SiloId
from privacy.renewal import MAX_RENEWED_BYTES, RENEW_PATH, SignedRenewal
from privacy.secagg.validity.coins import Step
from privacy.wire.envelope import MAX_ENVELOPE_BYTES, Envelope, parse_envelope, parse_envelopes
from privacy.wire.messages import PART_BYTES

PATIENCE_S: Final = 8.0
"""A share server that restarts within this time costs no round."""
RETRIED: Final = frozenset({502, 503, 504, 507})
TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
_PROBLEM_BYTES: Final = 1 << 16
_OVER: Final[dict[Step, str]] = {1: "shares", 2: "proofs"}
TossCall = Literal["commit", "reveal"]


class ServerUnreachable(PeerFault):
    """A share server did not answer, or not yet, for as long as we were patient."""

    status, kind = 503, "unreachable"


class ServerRefused(PeerFault):
    """A share server refused; its reason is in the message."""

    status, kind = 409, "server-refused"

    def __init__(self, message: str, refused_status: int) -> None:
        super().__init__(message)
        self.refused_status = refused_status


class ShareServers(Protocol):
    """The calls of a round, as the round flow makes them."""

    def meet(self, urls: Mapping[ServerId, str]) -> None:
        """Dial these servers from now on, as another charter lists them."""

    async def bring_charter(self, server: ServerId, raw: bytes) -> None:
        """``PUT /v1/charter``."""

    async def offer(self, server: ServerId, envelope: Envelope) -> None:
        """``POST /v1/rounds``."""

    async def close(self, server: ServerId, ctx: Context) -> Envelope:
        """``POST …/close``: the accepted set."""

    async def agree(self, server: ServerId, ctx: Context, accepted: Sequence[Envelope]) -> Envelope:
        """``POST …/agree``: the survivor set."""

    async def release(self, server: ServerId, ctx: Context, survivors: Sequence[Envelope]) -> Envelope:
        """``POST …/release``: the opening share."""

    async def manifest(self, server: ServerId, ctx: Context, silo: SiloId) -> Envelope:
        """``GET …/manifests/{silo}``: as that server accepted it."""

    async def opening_part(self, server: ServerId, ctx: Context, index: int) -> bytes:
        """``GET …/opening/{index}``."""

    async def finish(self, server: ServerId, ctx: Context, result: Envelope) -> None:
        """``POST …/finish``."""

    async def toss(
        self, server: ServerId, ctx: Context, step: Step, call: TossCall, said: Sequence[Envelope]
    ) -> Envelope:
        """``POST …/coins/…/commit`` or ``…/reveal``: the server's commitment, or its value."""

    async def settle(self, server: ServerId, ctx: Context, step: Step, reveals: Sequence[Envelope]) -> None:
        """``POST …/coins/…/settle``."""

    async def close_proofs(self, server: ServerId, ctx: Context) -> tuple[Envelope, ...]:
        """``POST …/proofs/close``: the silos' proofs, as the first server has them."""

    async def check(self, server: ServerId, ctx: Context, silo: SiloId) -> Envelope:
        """``POST …/checks/{silo}``: the server's check of a silo's proof, by digest."""

    async def check_bytes(self, server: ServerId, ctx: Context, silo: SiloId) -> bytes:
        """``GET …/checks/{silo}``."""

    async def hand_check(
        self, server: ServerId, ctx: Context, silo: SiloId, of: ServerId, raw: bytes
    ) -> None:
        """``PUT …/checks/{silo}/{server}``: another server's check."""

    async def judge(self, server: ServerId, ctx: Context, checks: Sequence[Envelope]) -> Envelope:
        """``POST …/judge``: the server's verdicts."""


class HttpShareServers:
    """``ShareServers`` over HTTPS."""

    def __init__(
        self,
        urls: Mapping[ServerId, str],
        tls: ssl.SSLContext,
        transports: Mapping[ServerId, httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        """``transports`` replaces the network below the client, one for each server."""
        self._tls = tls
        self._transports = transports or {}
        self._urls: dict[ServerId, str] = {}
        self._clients: dict[ServerId, httpx.AsyncClient] = {}
        self.meet(urls)

    def meet(self, urls: Mapping[ServerId, str]) -> None:
        """Dial these servers from now on; connections to others stay until all are closed."""
        for server, url in urls.items():
            self._urls[server] = url.rstrip("/")
            if server not in self._clients:
                self._clients[server] = httpx.AsyncClient(
                    verify=self._tls,
                    timeout=TIMEOUT,
                    trust_env=False,
                    headers={"Accept-Encoding": "identity"},
                    transport=self._transports.get(server),
                )

    async def bring_charter(self, server: ServerId, raw: bytes) -> None:
        """``PUT /v1/charter``."""
        await self._ask(server, "PUT", "/v1/charter", raw)

    async def offer(self, server: ServerId, envelope: Envelope) -> None:
        """``POST /v1/rounds``."""
        await self._ask(server, "POST", "/v1/rounds", canonical_bytes(envelope))

    async def close(self, server: ServerId, ctx: Context) -> Envelope:
        """``POST …/close``: the accepted set."""
        return parse_envelope(await self._ask(server, "POST", f"/v1/rounds/{ctx}/close"))

    async def agree(self, server: ServerId, ctx: Context, accepted: Sequence[Envelope]) -> Envelope:
        """``POST …/agree``: the survivor set."""
        return parse_envelope(await self._ask(server, "POST", f"/v1/rounds/{ctx}/agree", _listed(accepted)))

    async def release(self, server: ServerId, ctx: Context, survivors: Sequence[Envelope]) -> Envelope:
        """``POST …/release``: the opening share."""
        return parse_envelope(
            await self._ask(server, "POST", f"/v1/rounds/{ctx}/release", _listed(survivors))
        )

    async def manifest(self, server: ServerId, ctx: Context, silo: SiloId) -> Envelope:
        """``GET …/manifests/{silo}``: as that server accepted it."""
        return parse_envelope(await self._ask(server, "GET", f"/v1/rounds/{ctx}/manifests/{silo}"))

    async def opening_part(self, server: ServerId, ctx: Context, index: int) -> bytes:
        """``GET …/opening/{index}``."""
        return await self._ask(server, "GET", f"/v1/rounds/{ctx}/opening/{index}", limit=PART_BYTES)

    async def finish(self, server: ServerId, ctx: Context, result: Envelope) -> None:
        """``POST …/finish``."""
        await self._ask(server, "POST", f"/v1/rounds/{ctx}/finish", canonical_bytes(result))

    async def toss(
        self, server: ServerId, ctx: Context, step: Step, call: TossCall, said: Sequence[Envelope]
    ) -> Envelope:
        """``POST …/coins/…/commit`` or ``…/reveal``: the server's commitment, or its value."""
        path = f"/v1/rounds/{ctx}/coins/{_OVER[step]}/{call}"
        return parse_envelope(await self._ask(server, "POST", path, _listed(said)))

    async def settle(self, server: ServerId, ctx: Context, step: Step, reveals: Sequence[Envelope]) -> None:
        """``POST …/coins/…/settle``."""
        await self._ask(server, "POST", f"/v1/rounds/{ctx}/coins/{_OVER[step]}/settle", _listed(reveals))

    async def close_proofs(self, server: ServerId, ctx: Context) -> tuple[Envelope, ...]:
        """``POST …/proofs/close``: the silos' proofs, as the first server has them."""
        return parse_envelopes(await self._ask(server, "POST", f"/v1/rounds/{ctx}/proofs/close"))

    async def check(self, server: ServerId, ctx: Context, silo: SiloId) -> Envelope:
        """``POST …/checks/{silo}``: the server's check of a silo's proof, by digest."""
        return parse_envelope(await self._ask(server, "POST", f"/v1/rounds/{ctx}/checks/{silo}"))

    async def check_bytes(self, server: ServerId, ctx: Context, silo: SiloId) -> bytes:
        """``GET …/checks/{silo}``."""
        return await self._ask(server, "GET", f"/v1/rounds/{ctx}/checks/{silo}")

    async def hand_check(
        self, server: ServerId, ctx: Context, silo: SiloId, of: ServerId, raw: bytes
    ) -> None:
        """``PUT …/checks/{silo}/{server}``: another server's check."""
        await self._ask(server, "PUT", f"/v1/rounds/{ctx}/checks/{silo}/{of}", raw)

    async def judge(self, server: ServerId, ctx: Context, checks: Sequence[Envelope]) -> Envelope:
        """``POST …/judge``: the server's verdicts."""
        return parse_envelope(await self._ask(server, "POST", f"/v1/rounds/{ctx}/judge", _listed(checks)))

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()

    async def _ask(
        self,
        server: ServerId,
        method: str,
        path: str,
        body: bytes | None = None,
        limit: int = MAX_ENVELOPE_BYTES,
    ) -> bytes:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((httpx.TransportError, ServerUnreachable)),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            stop=stop_after_delay(PATIENCE_S),
            reraise=True,
        )
        try:
            return await retrying(self._once, server, method, path, body, limit)
        except (httpx.TransportError, ssl.SSLError) as error:
            raise ServerUnreachable(f"{server}: it did not answer ({type(error).__name__})") from error

    async def _once(self, server: ServerId, method: str, path: str, body: bytes | None, limit: int) -> bytes:
        headers = {} if body is None else _headers(method, body)
        url = self._urls[server] + path  # httpx takes several parses to join a base and a path
        async with self._clients[server].stream(method, url, content=body, headers=headers) as response:
            if response.status_code in RETRIED:
                raise ServerUnreachable(f"{server}: it answered {response.status_code}")
            if "content-encoding" in response.headers:
                raise MalformedMessage(f"{server}: expected its answer to {path} as it is, got it packed")
            answer = bytearray()
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) > (limit if response.is_success else _PROBLEM_BYTES):
                    raise MalformedMessage(f"{server}: its answer to {path} is over {limit} bytes")
            if not response.is_success:
                raise ServerRefused(
                    f"{server}: {response.status_code} {_reason(bytes(answer))}", response.status_code
                )
            return bytes(answer)


def fetch_charter(url: str, tls: ssl.SSLContext) -> bytes:
    """The registrar's current charter; its signature is checked by who takes it over.

    Raises:
        ConfigurationError: nobody answers, or there is none yet.
    """
    with httpx.Client(verify=tls, timeout=10.0, trust_env=False) as client:
        try:
            response = client.get(url)
        except httpx.TransportError as error:
            raise ConfigurationError(f"charter_url: {url} did not answer ({type(error).__name__})") from error
    if response.status_code != 200:
        raise ConfigurationError(f"charter_url: {url} answered {response.status_code}; is enrolment sealed?")
    return response.content


def post_renewal(registrar: str, tls: ssl.SSLContext, asked: SignedRenewal) -> bytes:
    """Carry a renewal to the registrar; its answer is judged by who asked.

    Raises:
        SealsumError: nobody answers, or the registrar refuses.
    """
    with httpx.Client(verify=tls, timeout=10.0, trust_env=False) as client:
        try:
            headers = {"content-type": "application/json"}
            response = client.post(registrar + RENEW_PATH, content=canonical_bytes(asked), headers=headers)
        except httpx.TransportError as error:
            raise SealsumError(f"{registrar}: it did not answer ({type(error).__name__})") from error
    if response.status_code != 201:
        raise SealsumError(f"{registrar}: {response.status_code}: {_reason(response.content)}")
    return response.content[:MAX_RENEWED_BYTES]


def _listed(envelopes: Sequence[Envelope]) -> bytes:
    return canonical_bytes([envelope.model_dump(mode="json") for envelope in envelopes])


def _headers(method: str, body: bytes) -> dict[str, str]:
    """What is put are raw bytes, with their digest (RFC 9530); all else is JSON."""
    if method != "PUT":
        return {"content-type": "application/json"}
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return {"content-type": "application/octet-stream", "content-digest": f"sha-256=:{digest}:"}


def _reason(problem: bytes) -> str:
    """A server's words on one line, without control characters: they end in logs."""
    try:
        document = json.loads(problem)
    except (ValueError, RecursionError):
        return "without a reason"
    detail = str(document.get("detail", "")) if isinstance(document, dict) else ""
    return "".join(character if character.isprintable() else " " for character in detail)[:400]
