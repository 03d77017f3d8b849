"""Who is calling a server: a member of the charter by certificate, or a person by certificate or token.

The certificate is the one the TLS layer verified; it arrives in the ASGI TLS extension
(``scope["extensions"]["tls"]["client_cert_chain"]``, PEM). What decides is its key, never a name in it, so a
certificate issued in error under another's name is nobody.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.types import Scope

from aggregator.operators.api_tokens import PREFIX, ApiTokens
from aggregator.operators.oidc import AccessTokens
from aggregator.operators.operator import Operator, PersonRefused, Pseudonyms
from aggregator.operators.settings import OperatorSettings
from privacy.errors import NotAllowed, SignatureRejected
from privacy.roster import Charter, Member
from privacy.standing import Standing
from privacy.tls_delegation import identity_key_of

TOKEN_BYTES_MAX: Final = 8192
Identified = Member | Operator


@dataclass(frozen=True)
class People:
    """The persons whom a server knows, and who vouches for the others."""

    registered: dict[str, OperatorSettings]
    pseudonyms: Pseudonyms
    api_tokens: ApiTokens
    issuer: str = ""
    access_tokens: AccessTokens | None = None
    """``None`` where no issuer is configured."""
    standing: Standing | None = None
    """Which certificates count no more."""
    other_authorities: bool = False
    """Whether operators' certificates may come from other CAs than the federation's; a member's may not."""

    def by_certificate(self, pem: str) -> Operator | None:
        """The registered person with this certificate's key, if there is one."""
        key = certificate_key(pem)
        for name, one in self.registered.items():
            if one.verify_key == key:
                return self._registered(name, one)
        return None

    async def by_bearer(self, token: str) -> Operator:
        """Whose token this is.

        Raises:
            SignatureRejected: nobody's. IssuerUnreachable: its issuer does not answer.
            NotAllowed: the issuer knows the person, and none of her groups has a role here.
        """
        if token.startswith(PREFIX):
            return self.api_tokens.judge(token)
        if self.access_tokens is None:
            raise SignatureRejected(
                "access token: no issuer is configured at this server (oidc: in server.yaml); "
                "show a client certificate or an API token"
            )
        vouched = await self.access_tokens.judge(token)
        for name, one in self.registered.items():
            if one.subject == vouched.subject:
                person = self._registered(name, one)
                roles = person.roles | vouched.roles
                return replace(person, roles=roles, by="oidc", expires_at=vouched.expires_at)
        subject = f"{self.issuer}#{vouched.subject}"
        return Operator(
            subject,
            self.pseudonyms.of(subject),
            vouched.subject,
            vouched.roles,
            "oidc",
            expires_at=vouched.expires_at,
        )

    def listed(self) -> list[dict[str, Any]]:
        """The registered, with the names that logs have for them; no keys and no subjects."""
        return [
            {
                "name": name,
                "roles": sorted(one.roles),
                "by": [
                    *(["certificate"] if one.verify_key is not None else []),
                    *(["oidc"] if one.subject is not None else []),
                ],
                "pseudonym": self._registered(name, one).pseudonym,
            }
            for name, one in sorted(self.registered.items())
        ]

    def _registered(self, name: str, one: OperatorSettings) -> Operator:
        subject = f"operator:{name}"
        return Operator(
            subject,
            self.pseudonyms.of(subject),
            name,
            frozenset(one.roles),
            "certificate",
            legal_entity=one.legal_entity,
        )


async def identify(scope: Scope, charter: Charter, people: People) -> Identified:
    """Find out who calls; checks, in this order:

    (1) the certificate, if one was shown, counts still, and is of a member, or of a registered person: a
    stranger's is refused even with a good token; (2) the token, if one was sent, is somebody's; (3) both are
    of one and the same person, so that a member's machine speaks for no person and nobody borrows a name; (4)
    one was there.

    Raises:
        SignatureRejected: (2), (4), or the certificate has no key that we take. NotAllowed: (1), (3).
    """
    chain = tuple((scope.get("extensions", {}).get("tls") or {}).get("client_cert_chain") or ())
    token = _bearer(scope)
    shown: Identified | None = None
    # (1)
    if chain:
        if people.standing is not None:
            people.standing.assert_stands(ssl.PEM_cert_to_DER_cert(chain[0]))
        shown = _member(chain[0], charter, people) or people.by_certificate(chain[0])
        if shown is None:
            raise NotAllowed(
                f"certificate: its key is not in the roster (epoch {charter.epoch}), nor an operator's; "
                "enrol, or fetch a later charter"
            )
    if token is not None:
        # (2)
        sent = await people.by_bearer(token)
        # (3)
        if shown is not None and (isinstance(shown, Member) or shown.subject != sent.subject):
            raise PersonRefused(
                sent.pseudonym,
                "authorization: expected the certificate and the token of one person, got those of two; "
                "leave one away",
            )
        return sent
    # (4)
    if shown is None:
        raise SignatureRejected(
            "certificate: expected a client certificate of this federation's CA, or an operator's bearer "
            "token, got none"
        )
    return shown


def _member(pem: str, charter: Charter, people: People) -> Member | None:
    key = certificate_key(pem)
    for member in charter.members:
        if member.verify_key == key:
            if people.other_authorities and people.standing is not None:
                people.standing.assert_of_federation(pem)
            return member
    return None


def _bearer(scope: Scope) -> str | None:
    """The one bearer token of a request (RFC 6750, 2.1).

    Raises:
        SignatureRejected: another scheme, more than one header, or too long to be one.
    """
    sent: list[bytes] = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
    if not sent:
        return None
    kind, _, token = sent[0].decode("latin-1").partition(" ")
    token = token.strip(" ")
    if len(sent) > 1 or kind.lower() != "bearer" or not token or len(token) > TOKEN_BYTES_MAX:
        raise SignatureRejected(
            f"authorization: expected one header, Bearer and a token of at most {TOKEN_BYTES_MAX} bytes"
        )
    return token


@lru_cache(maxsize=1024)
def certificate_key(pem: str) -> str:
    """The Ed25519 key that speaks through a PEM certificate, as hex: its own, or one that delegated to it.

    Raises:
        SignatureRejected: not a certificate, another kind of key, or a delegation that does not hold.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        key = certificate.public_key()
    except ValueError as error:
        raise SignatureRejected("certificate: expected an X.509 certificate") from error
    identity_key = identity_key_of(certificate)
    if identity_key is not None:
        return identity_key
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureRejected(f"certificate: expected an Ed25519 key, got {type(key).__name__}")
    return key.public_bytes_raw().hex()
