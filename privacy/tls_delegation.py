"""A TLS key that an identity key vouches for, where the identity key cannot be one itself (it is in a token).

The certificate of such a key carries this statement, signed by the identity key: that this TLS key speaks for
that party at connections, and until when. So the roster still pins one key a party; whoever holds the CA
alone can make no certificate that is taken for a party's, and whoever stole a TLS key uses it no longer than
it was vouched for, even with the CA. Envelopes are signed by the identity key only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privacy.canonical import canonical_bytes
from privacy.errors import SignatureRejected
from privacy.identity import SigningKey, verify_signature

EXTENSION: Final = x509.ObjectIdentifier("2.25.237483785128739408009846130630128022222")
"""Under 2.25 (ITU-T X.667: UUIDs are OIDs): nobody needs to assign it."""
LIFE: Final = timedelta(days=120)
"""Of one word. Each renewal asks for another; a certificate that would live longer is issued for less."""
_LABEL: Final = b"sealsum/tls-key/v2\x00"
_KEY_BYTES: Final = 32
_UNTIL_BYTES: Final = 8
_BYTES: Final = _KEY_BYTES + _UNTIL_BYTES + 64
_DER_HEADER: Final = bytes((4, _BYTES))
"""OCTET STRING of so many bytes."""


@dataclass(frozen=True)
class Delegated:
    """Whose word it is, as a hex key, and until when it holds."""

    verify_key: str
    until: datetime


def delegate(signing: SigningKey, party: str, tls_key: Ed25519PublicKey, now: datetime) -> bytes:
    """The identity key's word for a TLS key: its public half, 32 bytes; until when, seconds since 1970 in 8
    bytes, big endian; and a signature, 64.

    ``party`` is the party's URI (``sealsum://federation/party``).
    """
    until = int((now + LIFE).timestamp()).to_bytes(_UNTIL_BYTES, "big")
    return bytes.fromhex(signing.verify_key) + until + signing.sign(_said(party, tls_key, until))


def delegated(statement: bytes, party: str, tls_key: Ed25519PublicKey) -> Delegated:
    """Whose word it is, and until when it holds; whether that is over is the caller's to judge.

    Raises:
        SignatureRejected: the statement is not of that form, or not about this party and key.
    """
    if len(statement) != _BYTES:
        raise SignatureRejected(
            f"delegation: expected {_BYTES} bytes, got {len(statement)} (earlier releases wrote none that "
            "ends); renew it: sealsum keys renew"
        )
    verify_key, until = statement[:_KEY_BYTES].hex(), statement[_KEY_BYTES : _KEY_BYTES + _UNTIL_BYTES]
    try:
        ends = datetime.fromtimestamp(int.from_bytes(until, "big"), UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise SignatureRejected("delegation: expected a time in years that a calendar has") from error
    verify_signature(verify_key, _said(party, tls_key, until), statement[_KEY_BYTES + _UNTIL_BYTES :])
    return Delegated(verify_key, ends)


def extension_of(statement: bytes) -> x509.UnrecognizedExtension:
    """The statement as an extension of a certificate."""
    return x509.UnrecognizedExtension(EXTENSION, _DER_HEADER + statement)


def identity_key_of(certificate: x509.Certificate) -> str | None:
    """The identity key that speaks through a certificate, hex; ``None`` where it carries no statement.

    A certificate's own end is TLS' to judge; so one that lives longer than the word for its key is refused.

    Raises:
        SignatureRejected: it carries one that does not hold, or not for as long.
    """
    try:
        extension = certificate.extensions.get_extension_for_oid(EXTENSION).value
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    except ValueError as error:
        raise SignatureRejected("certificate: expected extensions that can be read") from error
    public = certificate.public_key()
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    raw = extension.value if isinstance(extension, x509.UnrecognizedExtension) else b""
    if not isinstance(public, Ed25519PublicKey) or len(uris) != 1 or raw[:2] != _DER_HEADER:
        raise SignatureRejected("certificate: expected one party and an Ed25519 key with its delegation")
    word = delegated(raw[2:], uris[0], public)
    if certificate.not_valid_after_utc > word.until:
        raise SignatureRejected("certificate: it lives longer than its key was vouched for; renew it")
    return word.verify_key


def _said(party: str, tls_key: Ed25519PublicKey, until: bytes) -> bytes:
    ends, key = int.from_bytes(until, "big"), tls_key.public_bytes_raw().hex()
    return _LABEL + canonical_bytes({"party": party, "tls_key": key, "until": ends})
