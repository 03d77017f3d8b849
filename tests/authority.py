"""A certificate authority in memory for tests; it issues what a federation's registrar issues."""

from __future__ import annotations

import datetime as dt
import ipaddress
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from privacy.identity import SigningKey


class CertificateAuthority:
    """An Ed25519 CA with path length 0."""

    def __init__(self, federation: str) -> None:
        self.key = SigningKey.generate()
        self._name = _name(f"{federation} CA")
        public = self.key.private.public_key()
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self.certificate = (
            _builder(self._name, self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.key.private, None)
        )

    def leaf(self, party: str, public: Ed25519PublicKey, url: str = "") -> x509.Certificate:
        """A certificate for loopback, and for the host of ``url`` where there is one."""
        hosts: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        host = urlsplit(url).hostname
        if host and host not in ("localhost", "127.0.0.1"):
            hosts.append(x509.DNSName(host))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.private.public_key())
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        return (
            _builder(_name(party), self._name, public)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key.private, None)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, public: Ed25519PublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
    )
