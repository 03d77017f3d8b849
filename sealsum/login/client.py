"""A person's calls to a server: with a login, an API token or a client certificate. Knows no commands."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, MalformedMessage, PeerFault, TooLarge
from privacy.keystore import read_file, read_secret
from sealsum.login.oauth import Terms
from sealsum.login.store import server_name
from silo_agent.problems import Unreachable, fault_from

_TIMEOUT_S: Final = 30.0
_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Proof:
    """How a person says who she is: by one of these, or not at all."""

    bearer: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None


class PersonClient:
    """Calls to one server, which is known by the federation's CA and nothing else."""

    def __init__(
        self, server: str, ca: str, proof: Proof, transport: httpx.BaseTransport | None = None
    ) -> None:
        """``ca`` is PEM. ``transport`` replaces the network as httpx means it.

        Raises:
            ConfigurationError: a file or the URL is not as it must be.
        """
        server_name(server)
        self._server = server.rstrip("/")
        headers = {"User-Agent": "sealsum"}
        if proof.bearer is not None:
            headers["Authorization"] = f"Bearer {proof.bearer}"
        self._http = httpx.Client(
            verify=_trust(ca, proof), timeout=_TIMEOUT_S, headers=headers, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def terms(self) -> Terms:
        """Which issuer this server's people log in at.

        Raises:
            NotFound: it has none. MalformedMessage: it says so in another way than ours.
        """
        found = self.get("/v1/login")
        try:
            return Terms(
                str(found["federation"]),
                str(found["issuer"]),
                str(found["client_id"]),
                str(found["audience"]),
                tuple(str(scope) for scope in found["scopes"]),
            )
        except (KeyError, TypeError) as error:
            raise MalformedMessage(
                f"{self._server}/v1/login: expected issuer, client and audience"
            ) from error

    def get(self, path: str) -> dict[str, Any]:
        """GET a JSON object.

        Raises:
            PeerFault: the server's refusal, by its kind.
        """
        return self._call("GET", path)

    def get_bytes(self, path: str, *, limit: int, params: Mapping[str, str] | None = None) -> bytes:
        """GET at most ``limit`` bytes, whatever they are.

        Raises:
            PeerFault: the server's refusal, by its kind.
        """
        return self._send("GET", path, None, limit, params)

    def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """POST a JSON object; it is sent once, whatever becomes of it.

        Raises:
            PeerFault: the server's refusal, by its kind.
        """
        return self._call("POST", path, canonical_bytes(document))

    def post_safely(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """POST a JSON object under a key of its own, and once more where no answer came: the server does it
        once and answers the same (``Idempotency-Key``).

        Raises:
            PeerFault: the server's refusal, by its kind.
        """
        content, headers = canonical_bytes(document), {"Idempotency-Key": f'"{uuid.uuid4()}"'}
        for attempt in Retrying(
            retry=retry_if_exception_type(Unreachable), stop=stop_after_attempt(2), reraise=True
        ):
            with attempt:
                answer = self._call("POST", path, content, headers)
        return answer

    def delete(self, path: str) -> None:
        """DELETE.

        Raises:
            PeerFault: the server's refusal, by its kind.
        """
        self._call("DELETE", path)

    def _call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        raw = self._send(method, path, content, _BYTES_MAX, headers=headers)
        try:
            document = json.loads(raw or b"{}")
        except ValueError as error:
            raise MalformedMessage(f"{path}: expected JSON") from error
        if not isinstance(document, dict):
            raise MalformedMessage(f"{path}: expected a JSON object")
        return document

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        limit: int,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        raw, url = bytearray(), self._server + path
        try:
            with self._http.stream(method, url, content=content, params=params, headers=headers) as response:
                for chunk in response.iter_bytes():
                    raw += chunk
                    if len(raw) > limit:
                        raise TooLarge(f"{path}: expected at most {limit} bytes, got more")
        except httpx.HTTPError as error:
            raise Unreachable(
                f"{self._server}{path}: no answer ({type(error).__name__}); check --server, --ca and proxy, "
                "and with --cert that the server has its CA (operators.ca)"
            ) from error
        if not response.is_success:
            fault: PeerFault = fault_from(self._server + path, response.status_code, bytes(raw))
            raise fault
        return bytes(raw)


def read_pem(path: Path) -> str:
    """A PEM file's text.

    Raises:
        ConfigurationError: it cannot be read, or is no text.
    """
    try:
        return read_file(path).decode("ascii")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: expected certificates in PEM") from error


def _trust(ca: str, proof: Proof) -> ssl.SSLContext:
    """TLS 1.3, believing the federation's CA and nobody else's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError("--ca: expected the federation's CA certificate in PEM") from error
    if proof.certificate is not None and proof.key is not None:
        read_secret(proof.key)  # refused where others can read it
        try:
            context.load_cert_chain(proof.certificate, proof.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"--cert: {proof.certificate}: expected a certificate for the key in {proof.key}"
            ) from error
    return context
