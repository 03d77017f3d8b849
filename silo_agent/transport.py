"""The only door to httpx on the dialling side: one persistent mutual-TLS connection pool to one server.

Silo agents and the SDK both use it. It knows addresses, retries and problem documents; it believes
nothing that arrives: envelopes come back parsed, not verified.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import httpx
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_random_exponential,
)
from tenacity.nap import sleep_using_event

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, MalformedMessage
from privacy.instance import HEADER, Instance
from privacy.keystore import Identity
from privacy.wire.envelope import MAX_ENVELOPE_BYTES, Envelope, parse_envelope, parse_envelopes
from silo_agent.downloads import CHUNK_BYTES, Download, limited
from silo_agent.egress import Egress
from silo_agent.inspection import named_inspection, why_no_answer
from silo_agent.problems import MAX_PROBLEM_BYTES, Unreachable, fault_from

T = TypeVar("T")

_LONG_POLL_GRACE_S: Final = 15.0


class FederationClient:
    """Calls to one server of the federation. Thread-safe; close it, or use it in a ``with`` block.

    Every call is idempotent by design of the wire API, so a lost connection and 502, 503, 504 are
    retried with jitter until ``patience_s`` has passed or ``stopping`` is set.
    """

    def __init__(
        self,
        identity: Identity,
        base_url: str,
        *,
        proxy: str | Egress | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        stopping: threading.Event | None = None,
        transport: httpx.BaseTransport | None = None,
        instance: Instance | None = None,
    ) -> None:
        """``proxy``, an address or a whole way out, overrides ``HTTPS_PROXY``; ``NO_PROXY`` is honoured.

        ``transport`` replaces the network as httpx means it (an in-process server, say).

        Raises:
            ConfigurationError: ``base_url`` is not https, or the identity's TLS files do not load.
        """
        address = urlsplit(base_url)
        if address.scheme != "https" or not address.hostname:
            raise ConfigurationError(f"server url: expected https://host[:port], got {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self._host = address.netloc
        self._patience_s = patience_s
        self._stopping = stopping or threading.Event()
        self._timeout_s = timeout_s
        self._counting = threading.Lock()
        self._sent_bytes = 0
        self._egress = proxy if isinstance(proxy, Egress) else Egress(proxy)
        context = identity.client_context
        self._ours = context.get_ca_certs(binary_form=True)
        named = {HEADER: str(instance)} if instance else {}
        self._http = httpx.Client(
            transport=transport,
            verify=self._egress.trusting(context),
            proxy=self._egress.proxy_to(address.hostname),
            event_hooks={"response": [self._heard]},
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=8, keepalive_expiry=60.0),
            headers={"User-Agent": "sealsum", "Accept-Encoding": "identity", **named},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def sent_bytes(self) -> int:
        """Bytes of request bodies so far, as often as each was sent; not counting files (``put_file``)."""
        return self._sent_bytes

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get_bytes(self, path: str, *, limit: int, params: Mapping[str, str] | None = None) -> bytes:
        """GET a small body.

        Raises:
            PeerFault: the server's refusal, by its kind; ``TooLarge`` beyond ``limit`` bytes.
        """
        return self._request("GET", path, limit=limit, params=params)[1]

    def get_json(self, path: str, *, limit: int = 1 << 20, params: Mapping[str, str] | None = None) -> Any:
        """GET a JSON document.

        Raises:
            PeerFault: as ``get_bytes``; ``MalformedMessage`` for anything but JSON.
        """
        return _parse_json(self.get_bytes(path, limit=limit, params=params), path)

    def get_envelope(self, path: str, *, params: Mapping[str, str] | None = None) -> Envelope:
        """GET an envelope, not yet verified."""
        return parse_envelope(self.get_bytes(path, limit=MAX_ENVELOPE_BYTES, params=params))

    def long_poll(
        self,
        path: str,
        *,
        wait_s: float,
        params: Mapping[str, str] | None = None,
        limit: int = MAX_ENVELOPE_BYTES,
    ) -> bytes | None:
        """GET what the server holds back until there is news; ``None`` if ``wait_s`` passed without (204)."""
        query = {**(params or {}), "wait_s": f"{wait_s:g}"}
        timeout = httpx.Timeout(self._timeout_s, read=wait_s + _LONG_POLL_GRACE_S)
        status, body = self._request("GET", path, limit=limit, params=query, timeout=timeout)
        return None if status == httpx.codes.NO_CONTENT else body

    def poll_envelope(
        self, path: str, *, wait_s: float, params: Mapping[str, str] | None = None
    ) -> Envelope | None:
        """``long_poll`` for an envelope, not yet verified."""
        body = self.long_poll(path, wait_s=wait_s, params=params)
        return None if body is None else parse_envelope(body)

    def stream_to(
        self, path: str, destination: Path, *, limit: int, params: Mapping[str, str] | None = None
    ) -> int:
        """GET a large body into a file, from where it broke on a retry; returns its bytes.

        Raises:
            PeerFault: as ``get_bytes``.
        """

        download = Download(destination, limit, path)

        def receive() -> int:
            asked = download.headers()
            with self._http.stream("GET", self.base_url + path, params=params, headers=asked) as response:
                if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise download.begin_anew()
                self._raise_for_fault(response, path)
                return download.take(response, limited(response, limit, path))

        return self._patiently(receive, path)

    def put_file(self, path: str, source: Path, *, params: Mapping[str, str] | None = None) -> None:
        """PUT a file, streamed."""

        def send() -> None:
            with source.open("rb") as file:
                headers = {"Content-Length": str(source.stat().st_size)}
                chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
                with self._http.stream(
                    "PUT", self.base_url + path, content=chunks, params=params, headers=headers
                ) as response:
                    self._raise_for_fault(response, path)

        self._patiently(send, path)

    def put_bytes(self, path: str, raw: bytes, *, params: Mapping[str, str] | None = None) -> None:
        """PUT a body with its digest (RFC 9530)."""
        digest = base64.b64encode(hashlib.sha256(raw).digest()).decode()
        headers = {"Content-Type": "application/octet-stream", "Content-Digest": f"sha-256=:{digest}:"}
        self._request("PUT", path, limit=MAX_PROBLEM_BYTES, content=raw, headers=headers, params=params)

    def put_part(self, context: str, index: int, raw: bytes) -> None:
        """PUT one part of a vector share to the share server that holds vectors."""
        self.put_bytes(f"/v1/rounds/{context}/parts/{index}", raw)

    def get_envelopes(
        self, path: str, *, wait_s: float, params: Mapping[str, str] | None = None
    ) -> tuple[Envelope, ...] | None:
        """``long_poll`` for a list of envelopes, not yet verified."""
        body = self.long_poll(path, wait_s=wait_s, params=params)
        return None if body is None else parse_envelopes(body)

    def post_envelopes(self, path: str, envelopes: Sequence[Envelope]) -> None:
        """POST a list of envelopes."""
        self._post(path, canonical_bytes([one.model_dump(mode="json") for one in envelopes]), 1 << 20)

    def post_envelope(self, path: str, envelope: Envelope, *, limit: int = 1 << 20) -> bytes:
        """POST an envelope; returns the answer's body."""
        return self._post(path, canonical_bytes(envelope), limit)

    def post_json(self, path: str, document: dict[str, Any], *, limit: int = 1 << 20) -> bytes:
        """POST a JSON document in its canonical form; returns the answer's body."""
        return self._post(path, canonical_bytes(document), limit)

    def _post(self, path: str, raw: bytes, limit: int) -> bytes:
        headers = {"Content-Type": "application/json"}
        return self._request("POST", path, limit=limit, content=raw, headers=headers)[1]

    def _request(
        self,
        method: str,
        path: str,
        *,
        limit: int,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> tuple[int, bytes]:
        def once() -> tuple[int, bytes]:
            with self._counting:
                self._sent_bytes += len(content or b"")
            with self._http.stream(
                method,
                self.base_url + path,  # joined here: httpx takes several parses to
                params=params,
                content=content,
                headers=headers,
                timeout=timeout or self._timeout_s,
            ) as response:
                self._raise_for_fault(response, path)
                return response.status_code, b"".join(limited(response, limit, path))

        return self._patiently(once, path)

    def _patiently(self, call: Callable[[], T], path: str) -> T:
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(multiplier=0.1, max=5.0),
            stop=stop_any(stop_after_delay(self._patience_s), stop_when_event_set(self._stopping)),
            sleep=sleep_using_event(self._stopping),
            reraise=True,
        )
        try:
            return retrying(call)
        except httpx.TransportError as error:
            raise Unreachable(f"{self._host}{path}: {why_no_answer(error)}") from error

    def _heard(self, response: httpx.Response) -> None:
        self._egress.contact.heard(response.headers.get("date"))

    def _raise_for_fault(self, response: httpx.Response, path: str) -> None:
        if response.is_success:
            return
        body = b"".join(limited(response, MAX_PROBLEM_BYTES, path))
        fault = fault_from(f"{self._host}{path}", response.status_code, body)
        raise named_inspection(fault, response, self._ours) or fault


def _may_pass(error: BaseException) -> bool:
    """Whether asking again can help: a certificate that does not verify stays that way."""
    if not isinstance(error, httpx.TransportError | Unreachable):
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return False
        cause = cause.__cause__ or cause.__context__
    return True


def _parse_json(raw: bytes, path: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise MalformedMessage(f"{path}: expected JSON") from error
