"""Renewing a certificate: what a party asks its registrar, signed by its identity key, and what it believes.

The identity key is what the charter pins and what enrolment recorded, so it alone decides: a request is good
after the old certificate has ended, too, and through a proxy that opens TLS. Knows no network; the state
directory is written by ``keep_renewed`` only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field, StringConstraints

from privacy.canonical import Frozen, canonical_bytes
from privacy.errors import ConfigurationError, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import Name, PartyName
from privacy.keystore import Identity
from privacy.secret_files import read_file
from privacy.tls_delegation import delegate, identity_key_of

RENEW_PATH: Final = "/v1/renew"
MAX_RENEWAL_BYTES: Final = 32 << 10
MAX_RENEWED_BYTES: Final = 64 << 10
CLOCK_SLACK: Final = timedelta(minutes=10)
"""How far a request's time may be from the registrar's."""
_LABEL: Final = b"sealsum/renewal/v1\x00"
_Pem = Annotated[str, Field(max_length=16 << 10)]


class Renewal(Frozen):
    """Party → registrar: a new certificate, please, over this key."""

    federation: Name
    party: PartyName
    csr: _Pem
    delegation: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{208})?$")] = ""
    """The identity key's word for the key in ``csr``, where that is another one."""
    at: Annotated[str, Field(max_length=40)]
    """RFC 3339 UTC; an old request renews nothing."""


class SignedRenewal(Frozen):
    """A request under the identity key's signature."""

    renewal: Renewal
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class Renewed(Frozen):
    """Registrar → party: its certificate, and the CAs in force."""

    leaf: _Pem
    authorities: _Pem
    """CAs to believe, the issuing one first; more than one while a CA is being replaced."""
    rollover: _Pem = ""
    """New CAs' keys certified by older CAs, which a party that knows only those can check."""


@dataclass(frozen=True)
class Believed:
    """An answer that was checked: what to write."""

    leaf_pem: str
    authorities_pem: str
    until: datetime


def party_uri(federation: str, party: str) -> str:
    """The name of a party in its certificate."""
    return f"sealsum://{federation}/{party}"


def certificate_request(key: SigningKey, party: str) -> str:
    """PKCS#10 for a key. The subject is for human readers; the registrar writes its own."""
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, party)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key.private, None)
    return request.public_bytes(Encoding.PEM).decode()


def ask_renewal(identity: Identity, now: datetime) -> SignedRenewal:
    """The request for a certificate over the party's TLS key.

    Raises:
        ConfigurationError: the TLS key cannot be read.
    """
    pin, tls = identity.pin, identity.tls
    statement = ""
    if identity.places.tls_key is not None:
        uri = party_uri(pin.federation, pin.party)
        statement = delegate(identity.signing, uri, tls.private.public_key(), now).hex()
    renewal = Renewal(
        federation=pin.federation,
        party=pin.party,
        csr=certificate_request(tls, pin.party),
        delegation=statement,
        at=now.astimezone(UTC).isoformat(timespec="seconds"),
    )
    return SignedRenewal(renewal=renewal, signature=identity.signing.sign(_signed(renewal)).hex())


def check_renewal(asked: SignedRenewal, verify_key: str, federation: str, now: datetime) -> None:
    """Refuse a request that the party's identity key did not sign for this federation just now.

    Raises:
        SignatureRejected: it did not.
    """
    verify_signature(verify_key, _signed(asked.renewal), bytes.fromhex(asked.signature))
    if asked.renewal.federation != federation:
        raise SignatureRejected(f"renewal: expected one for {federation}, got {asked.renewal.federation}")
    try:
        at = datetime.fromisoformat(asked.renewal.at)
        late = abs(now - at)
    except (ValueError, TypeError) as error:
        raise SignatureRejected("renewal.at: expected RFC 3339 with an offset") from error
    if late > CLOCK_SLACK:
        raise SignatureRejected(
            f"renewal.at: expected the registrar's time, {now:%Y-%m-%d %H:%M} UTC, within "
            f"{CLOCK_SLACK.seconds // 60} minutes, got {asked.renewal.at}; set the party's clock"
        )


def believe_renewed(identity: Identity, answer: Renewed) -> Believed:
    """Judge an answer, in this order:

    (1) every CA in it is one believed already, or one whose key a believed CA has certified; (2) the
    certificate is issued by the first of them, (3) over our TLS key and in our name; (4) it carries our
    identity key's word, where the TLS key is another one.

    Raises:
        SignatureRejected: any of them. ConfigurationError: ``ca.pem`` holds no certificates.
    """
    believed = _certificates(read_file(identity.directory / "ca.pem").decode("ascii", "replace"), "ca.pem")
    offered = _certificates(answer.authorities, "authorities")
    rollover = _certificates(answer.rollover, "rollover") if answer.rollover else []
    # (1)
    for authority in offered:
        if authority not in believed and not any(_vouches(one, authority, believed) for one in rollover):
            raise SignatureRejected(
                "authorities: expected CAs that the federation's CA has certified, got a stranger; tell the "
                "officers: the registrar may be in other hands"
            )
    leaf = _certificates(answer.leaf, "leaf")[0]
    # (2)
    try:
        leaf.verify_directly_issued_by(offered[0])
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise SignatureRejected("leaf: expected a certificate issued by the first CA") from error
    # (3)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if uris != [party_uri(identity.pin.federation, identity.pin.party)]:
        raise SignatureRejected("leaf: it names another party")
    if leaf.public_key() != identity.tls.private.public_key():
        raise SignatureRejected("leaf: it is for another key than ours")
    # (4)
    if identity.places.tls_key is not None and identity_key_of(leaf) != identity.signing.verify_key:
        raise SignatureRejected("leaf: expected our identity key's word for the TLS key in it")
    return Believed(_pem([leaf, offered[0]]), _pem(offered), leaf.not_valid_after_utc)


def keep_renewed(identity: Identity, believed: Believed) -> None:
    """Write certificate and CAs, each as a whole; the CAs first: a certificate of a new CA needs them."""
    _replace(identity.directory / "ca.pem", believed.authorities_pem.encode())
    _replace(identity.directory / "identity.pem", believed.leaf_pem.encode())


def _vouches(rollover: x509.Certificate, new: x509.Certificate, believed: Sequence[x509.Certificate]) -> bool:
    """Whether this is a believed CA's word for the new CA's name and key, *as a CA*: parties' certificates
    are its word for names and keys, too, and whoever has one of those could make a CA of the same."""
    if (rollover.subject, rollover.public_key()) != (new.subject, new.public_key()):
        return False
    try:
        said = rollover.extensions.get_extension_for_class(x509.BasicConstraints)
        if not (said.critical and said.value.ca):
            return False
        new.verify_directly_issued_by(new)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return any(_issued(rollover, one) for one in believed)


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates(pem: str, field: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        kind = ConfigurationError if field == "ca.pem" else SignatureRejected
        raise kind(f"{field}: expected certificates in PEM") from error


def _pem(certificates: Sequence[x509.Certificate]) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)


def _signed(renewal: Renewal) -> bytes:
    return _LABEL + canonical_bytes(renewal)


def _replace(path: Path, raw: bytes) -> None:
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
