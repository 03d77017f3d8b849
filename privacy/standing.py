"""Which certificates count no more, though OpenSSL takes them: revoked ones, and those of retired CAs.

    revoked.txt   one certificate or key a line: ``sha256:<hex>`` of a certificate (DER), or ``key:<hex>``, an
                  Ed25519 public key, which revokes every certificate over it; ``#`` begins a comment
    crl.pem       revocation lists (RFC 5280); those count that a CA in ca.pem has signed

Both lie in the state directory, may be left out, and are read at start and with each reload. What a list
revokes stays revoked after its next update was due. Judged at each request, since a connection may be older
than the revocation. The charter's own ``revoked`` is another thing: that ends a party, this one certificate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from privacy.errors import ConfigurationError, SignatureRejected
from privacy.secret_files import read_file

REVOKED, LISTS, AUTHORITIES = "revoked.txt", "crl.pem", "ca.pem"
_LINE: Final = re.compile(r"(sha256|key):([0-9a-f]{64})")
_CRL: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_REMEMBERED_MAX: Final = 1024


@dataclass(frozen=True)
class Believed:
    """What lay on disk at one moment."""

    authorities: tuple[x509.Certificate, ...]
    fingerprints: frozenset[str]
    """SHA-256 of certificates, hex."""
    keys: frozenset[str]
    """Ed25519 public keys, hex."""
    serials: frozenset[tuple[x509.Name, int]]
    """Issuer and serial number, of revocation lists."""
    passed_over: int
    """Revocation lists that no CA in ``ca.pem`` has signed: a retired one's, whose certificates are refused
    anyway, or a stranger's, whose word counts for nothing."""


class Standing:
    """What one process believes of certificates now. Thread-safe: a reload replaces it whole."""

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            ConfigurationError: as ``read_believed``.
        """
        self._directory = directory
        self._believed = read_believed(directory)
        self._retired: tuple[x509.Certificate, ...] = ()
        self._judged: dict[bytes, str | None] = {}

    @property
    def passed_over(self) -> int:
        """How many revocation lists do not count."""
        return self._believed.passed_over

    def read(self) -> Believed:
        """What lies on disk now; nothing follows it yet.

        Raises:
            ConfigurationError: as ``read_believed``.
        """
        return read_believed(self._directory)

    def take(self, believed: Believed) -> None:
        """Believe this from now on. A CA that is in ``ca.pem`` no more is retired."""
        kept = {_key_of(one) for one in believed.authorities}
        known = (*self._retired, *self._believed.authorities)
        self._retired = tuple(one for one in known if _key_of(one) not in kept)
        self._believed = believed
        self._judged = {}

    def assert_stands(self, der: bytes) -> None:
        """Refuse a certificate that OpenSSL took, after these checks, in this order:

        (1) neither it nor its key is in ``revoked.txt``; (2) no revocation list names it; (3) no CA issued it
        that is retired, unless one that is believed did too (a CA may have two certificates of one key).

        Raises:
            SignatureRejected: any of these, by name.
        """
        judged = self._judged
        if der not in judged:
            if len(judged) >= _REMEMBERED_MAX:
                judged.clear()
            judged[der] = self._fault(x509.load_der_x509_certificate(der))
        if (fault := judged[der]) is not None:
            raise SignatureRejected(fault)

    def assert_of_federation(self, pem: str) -> None:
        """Refuse a certificate that no CA of the federation issued; an operators' CA could, for a known key.

        Raises:
            SignatureRejected: none has.
        """
        shown = x509.load_pem_x509_certificate(pem.encode())
        if not any(issued(shown, one) for one in self._believed.authorities):
            raise SignatureRejected("certificate: a member's is issued by the federation's CA alone")

    def _fault(self, shown: x509.Certificate) -> str | None:
        believed, key = self._believed, shown.public_key()
        # (1)
        hexed = key.public_bytes_raw().hex() if isinstance(key, Ed25519PublicKey) else ""
        if shown.fingerprint(hashes.SHA256()).hex() in believed.fingerprints or hexed in believed.keys:
            return f"certificate: it, or its key, is revoked here ({REVOKED}); renew it over another key"
        # (2)
        if (shown.issuer, shown.serial_number) in believed.serials:
            return f"certificate: its CA's list revokes it ({LISTS}); renew it over another key"
        # (3)
        by_retired = any(issued(shown, one) for one in self._retired)
        if by_retired and not any(issued(shown, one) for one in believed.authorities):
            return "certificate: the CA that issued it is retired; renew it: sealsum keys renew"
        return None


def read_believed(directory: Path) -> Believed:
    """What lies on disk.

    Raises:
        ConfigurationError: ``ca.pem`` holds no CA, or a line of ``revoked.txt`` or a list in ``crl.pem`` is
            none.
    """
    try:
        authorities = tuple(x509.load_pem_x509_certificates(read_file(directory / AUTHORITIES)))
    except ValueError as error:
        raise ConfigurationError(f"{directory / AUTHORITIES}: expected CA certificates in PEM") from error
    named: dict[str, set[str]] = {"sha256": set(), "key": set()}
    for number, line in enumerate(_lines(directory / REVOKED), start=1):
        if not (text := line.partition("#")[0].strip().lower()):
            continue
        kind, _, digits = text.partition(":")
        if (match := _LINE.fullmatch(f"{kind}:{digits.replace(':', '')}")) is None:
            raise ConfigurationError(
                f"{directory / REVOKED}: line {number}: expected sha256: or key: and 64 hex digits"
            )
        named[match[1]].add(match[2])
    serials, passed_over = _serials(directory / LISTS, authorities)
    return Believed(authorities, frozenset(named["sha256"]), frozenset(named["key"]), serials, passed_over)


def _lines(path: Path) -> list[str]:
    return read_file(path).decode("utf-8", "replace").splitlines() if path.exists() else []


def _serials(
    path: Path, authorities: tuple[x509.Certificate, ...]
) -> tuple[frozenset[tuple[x509.Name, int]], int]:
    """What lists that count revoke, and how many do not count."""
    if not path.exists():
        return frozenset(), 0
    blocks = _CRL.findall(read_file(path))
    try:
        lists = [x509.load_pem_x509_crl(block) for block in blocks]
        ours = [one for one in lists if any(_signed(one, authority) for authority in authorities)]
        found = frozenset((one.issuer, entry.serial_number) for one in ours for entry in one)
    except ValueError as error:
        raise ConfigurationError(f"{path}: expected revocation lists in PEM (RFC 5280)") from error
    if not blocks:
        raise ConfigurationError(f"{path}: expected revocation lists in PEM, got none; remove the file")
    return found, len(lists) - len(ours)


def _key_of(authority: x509.Certificate) -> bytes:
    return authority.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _signed(revocations: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    return (
        isinstance(key, Ed25519PublicKey)
        and revocations.issuer == authority.subject
        and revocations.is_signature_valid(key)
    )


def issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether this CA issued it."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
