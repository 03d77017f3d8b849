"""Who is calling: the TLS client certificate's Ed25519 key, looked up in the charter's roster. Default deny.

The certificate is the one the TLS layer verified against the federation's CA; it arrives in the ASGI
TLS extension (``scope["extensions"]["tls"]["client_cert_chain"]``, PEM). The roster decides on the key,
never on a name in the certificate, so a certificate issued in error under another's name is nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.web_errors import OnRefused, Refused, problem
from privacy.errors import NotAllowed, PeerFault, SignatureRejected
from privacy.ids import PartyId
from privacy.roster import Charter, Member


class IdentityWall:
    """ASGI middleware: nobody passes without a roster member's certificate, open paths excepted.

    It says who calls; what they may call is the table's (``web_guard``).
    """

    def __init__(
        self,
        app: ASGIApp,
        charter_of: Callable[[], Charter],
        open_paths: frozenset[str],
        on_refused: OnRefused | None = None,
    ) -> None:
        self._app = app
        self._charter_of = charter_of
        self._open_paths = open_paths
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Identify the caller, then pass the request on."""
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        try:
            state["member"] = identify(scope, self._charter_of())
        except PeerFault as fault:
            request_id = str(state.get("request_id", ""))
            if self._on_refused is not None:
                self._on_refused(
                    Refused(
                        request_id, "", scope["method"], scope["path"], fault.status, fault.kind, str(fault)
                    )
                )
            answer = problem(fault.status, fault.kind, fault.kind.replace("-", " "), str(fault), request_id)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


def identify(scope: Scope, charter: Charter) -> Member:
    """The roster member whose key the client certificate carries.

    Raises:
        SignatureRejected: no certificate was shown, or not one with an Ed25519 key.
        NotAllowed: a certificate of this federation's CA whose key is not in the roster.
    """
    tls = scope.get("extensions", {}).get("tls") or {}
    chain = tuple(tls.get("client_cert_chain") or ())
    if not chain:
        raise SignatureRejected(
            "certificate: expected a client certificate of this federation's CA, got none"
        )
    key = certificate_key(chain[0])
    for member in charter.members:
        if member.verify_key == key:
            return member
    raise NotAllowed(
        f"certificate: its key is not in the roster (epoch {charter.epoch}); enrol, or fetch a later charter"
    )


@lru_cache(maxsize=1024)
def certificate_key(pem: str) -> str:
    """Raw Ed25519 public key of a PEM certificate, as hex.

    Raises:
        SignatureRejected: not a certificate, or another kind of key.
    """
    try:
        key = x509.load_pem_x509_certificate(pem.encode()).public_key()
    except ValueError as error:
        raise SignatureRejected("certificate: expected an X.509 certificate") from error
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureRejected(f"certificate: expected an Ed25519 key, got {type(key).__name__}")
    return key.public_bytes_raw().hex()


def caller(request: Request) -> Member:
    """Who calls, as the wall found out.

    Raises:
        SignatureRejected: the wall let a stranger through, to a path that is open.
    """
    member = request.scope.get("state", {}).get("member")
    if not isinstance(member, Member):
        raise SignatureRejected("certificate: expected a client certificate, got none")
    return member


async def calling_member(request: Request) -> Member:
    """A FastAPI dependency: ``caller``. A coroutine: a plain function would be run in a thread."""
    return caller(request)


def must_be(member: Member, claimed: PartyId) -> None:
    """Refuse a party that speaks in another's name.

    Raises:
        NotAllowed: the certificate and the message name different parties.
    """
    if member.id != claimed:
        raise NotAllowed(f"sender: expected {member.id} (the certificate's party), got {claimed}")
