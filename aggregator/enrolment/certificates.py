"""X.509 of a federation: its CA, the requests it accepts, the leaves it issues. Knows no disk.

A leaf names the party; what a party may do comes from the roster, which pins the same Ed25519 key.
Profile after RFC 5280 and RFC 8410 (Ed25519 in X.509).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from privacy.errors import MalformedMessage, SignatureRejected, Unprocessable
from privacy.identity import SigningKey
from privacy.renewal import party_uri as party_uri  # others import it from here
from privacy.tls_delegation import extension_of

CA_LIFE = timedelta(days=3650)
_CLOCK_SLACK = timedelta(minutes=5)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_SIGNS_HANDSHAKES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Subject:
    """Whom a leaf is for, as the registrar knows it; nothing here comes from the request."""

    federation: str
    party: str
    hosts: tuple[str, ...]
    """DNS names or IP addresses others dial; empty for a party that only dials out."""


@dataclass(frozen=True)
class CertificateAuthority:
    """The CA of one federation."""

    certificate: x509.Certificate
    _key: SigningKey = field(repr=False)

    @staticmethod
    def found(federation: str, key: SigningKey, now: datetime) -> CertificateAuthority:
        """A self-signed root that may issue leaves and no further CAs (path length 0)."""
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
                x509.NameAttribute(NameOID.COMMON_NAME, "Sealsum federation CA"),
            ]
        )
        public_key = key.private.public_key()
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SLACK)
            .not_valid_after(now + CA_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .sign(key.private, None)
        )
        return CertificateAuthority(certificate, key)

    def issue(
        self,
        subject: Subject,
        public_key: Ed25519PublicKey,
        now: datetime,
        life: timedelta,
        delegation: bytes = b"",
    ) -> x509.Certificate:
        """A leaf for ``public_key``, never living longer than the CA itself; with the identity key's word for
        it, where that is another key."""
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if subject.hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        issuer_key = self._key.private.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(
                x509.Name(
                    [
                        x509.NameAttribute(NameOID.ORGANIZATION_NAME, subject.federation),
                        x509.NameAttribute(NameOID.COMMON_NAME, subject.party),
                    ]
                )
            )
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SLACK)
            .not_valid_after(min(now + life, self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_SIGNS_HANDSHAKES, critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(_names(subject)), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        )
        if delegation:
            builder = builder.add_extension(extension_of(delegation), critical=False)
        return builder.sign(self._key.private, None)

    def certify(self, successor: x509.Certificate, now: datetime) -> x509.Certificate:
        """This CA's word for the key of the CA that follows it. No TLS path goes through it (path length 0):
        parties that know this CA only learn the next one from it (``privacy/renewal.py``)."""
        return (
            x509.CertificateBuilder()
            .subject_name(successor.subject)
            .issuer_name(self.certificate.subject)
            .public_key(successor.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SLACK)
            .not_valid_after(self.certificate.not_valid_after_utc)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key.private, None)
        )


def requested_key(csr_pem: str) -> Ed25519PublicKey:
    """The key a request asks a certificate for, after these checks:

    (1) it is a PKCS#10 request; (2) for an Ed25519 key; (3) signed by that key, which proves possession.
    Its subject and extensions are not read: the registrar writes its own.

    Raises:
        MalformedMessage: (1). Unprocessable: (2). SignatureRejected: (3).
    """
    # (1)
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode())
        public_key = request.public_key()
        signed_by_it = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise MalformedMessage("csr: expected a PKCS#10 request in PEM") from error
    # (2)
    if not isinstance(public_key, Ed25519PublicKey):
        raise Unprocessable(f"csr: expected an Ed25519 key, got {type(public_key).__name__}")
    # (3)
    if not signed_by_it:
        raise SignatureRejected("csr: it is not signed by the key it asks a certificate for")
    return public_key


def chain_pem(certificates: Iterable[x509.Certificate]) -> str:
    """Certificates in PEM, one after the other."""
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def _names(subject: Subject) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(party_uri(subject.federation, subject.party))
    ]
    for host in subject.hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names
