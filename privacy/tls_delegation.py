"""A TLS key that an identity key vouches for, where the identity key cannot be one itself (it is in a token).

The certificate of such a key carries this statement, signed by the identity key: that this TLS key speaks for
that party at connections. So the roster still pins one key a party, and whoever holds the CA alone can make
no certificate that is taken for a party's. Envelopes are signed by the identity key only.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privacy.canonical import canonical_bytes
from privacy.errors import SignatureRejected
from privacy.identity import SigningKey, verify_signature

EXTENSION: Final = x509.ObjectIdentifier("2.25.237483785128739408009846130630128022222")
"""Under 2.25 (ITU-T X.667: UUIDs are OIDs): nobody needs to assign it."""
_LABEL: Final = b"sealsum/tls-key/v1\x00"
_KEY_BYTES: Final = 32
_BYTES: Final = _KEY_BYTES + 64
_DER_HEADER: Final = bytes((4, _BYTES))
"""OCTET STRING of so many bytes."""


def delegate(signing: SigningKey, party: str, tls_key: Ed25519PublicKey) -> bytes:
    """The identity key's word for a TLS key: its public half, 32 bytes, and a signature, 64.

    ``party`` is the party's URI (``sealsum://federation/party``).
    """
    return bytes.fromhex(signing.verify_key) + signing.sign(_said(party, tls_key))


def delegator(statement: bytes, party: str, tls_key: Ed25519PublicKey) -> str:
    """Whose word it is, as a hex key.

    Raises:
        SignatureRejected: the statement is not of that form, or not about this party and key.
    """
    if len(statement) != _BYTES:
        raise SignatureRejected(f"delegation: expected {_BYTES} bytes, got {len(statement)}")
    verify_key = statement[:_KEY_BYTES].hex()
    verify_signature(verify_key, _said(party, tls_key), statement[_KEY_BYTES:])
    return verify_key


def extension_of(statement: bytes) -> x509.UnrecognizedExtension:
    """The statement as an extension of a certificate."""
    return x509.UnrecognizedExtension(EXTENSION, _DER_HEADER + statement)


def identity_key_of(certificate: x509.Certificate) -> str | None:
    """The identity key that speaks through a certificate, hex; ``None`` where it carries no statement.

    Raises:
        SignatureRejected: it carries one that does not hold.
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
    return delegator(raw[2:], uris[0], public)


def _said(party: str, tls_key: Ed25519PublicKey) -> bytes:
    return _LABEL + canonical_bytes({"party": party, "tls_key": tls_key.public_bytes_raw().hex()})
