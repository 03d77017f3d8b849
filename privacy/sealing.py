"""Seal a short secret to one recipient: HPKE (RFC 9180) with a hybrid post-quantum KEM.

What a hospital's TLS-inspecting proxy records today must stay closed for the decades that patients
live, hence ML-KEM-768 + X25519 (ADR 0004). Everything that must be bound goes into ``info``.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privacy.errors import MalformedMessage
from privacy.identity import SealingKey, sealing_public_key

_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
SEALED_OVERHEAD_BYTES = 1088 + 32 + 16
"""ML-KEM ciphertext, X25519 ephemeral key, GCM tag."""


def seal(secret: bytes, recipient_public_hex: str, info: bytes) -> bytes:
    """Encrypt ``secret`` so that only the recipient opens it, and only under the same ``info``."""
    return _SUITE.encrypt(secret, sealing_public_key(recipient_public_hex), info=info)


def unseal(sealed: bytes, key: SealingKey, info: bytes) -> bytes:
    """Open what ``seal`` closed.

    Raises:
        MalformedMessage: sealed to another key, bound to another ``info``, or altered.
    """
    try:
        return _SUITE.decrypt(sealed, key.hpke, info=info)
    except (InvalidTag, ValueError) as error:
        raise MalformedMessage("sealed secret: it does not open with this key and context") from error
