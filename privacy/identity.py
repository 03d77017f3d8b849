"""Who signs and who can read: Ed25519 identity keys and hybrid (X25519 + ML-KEM-768) sealing keys.

A party's TLS certificate carries the same Ed25519 key that signs its envelopes; the roster pins that
key, not a certificate, so that short-lived certificates can be renewed (ADR 0003). Knows no files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey

from privacy.errors import ConfigurationError, MalformedMessage, SignatureRejected

_MLKEM_SEED_BYTES = 64
_MLKEM_PUBLIC_BYTES = 1184
_X25519_BYTES = 32


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 private key (RFC 8032). Its ``repr`` shows the public half only."""

    _private: Ed25519PrivateKey = field(repr=False)

    @staticmethod
    def generate() -> SigningKey:
        """A fresh key from the operating system's generator."""
        return SigningKey(Ed25519PrivateKey.generate())

    @staticmethod
    def from_pem(pem: bytes) -> SigningKey:
        """Read an unencrypted PKCS#8 PEM.

        Raises:
            ConfigurationError: not a PEM private key, or not Ed25519.
        """
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise ConfigurationError("identity key: expected an unencrypted PKCS#8 PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigurationError(f"identity key: expected Ed25519, got {type(key).__name__}")
        return SigningKey(key)

    def to_pem(self) -> bytes:
        """The private key as PKCS#8 PEM. For the keystore only."""
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def private(self) -> Ed25519PrivateKey:
        """The key object, for X.509 requests. Never serialise it elsewhere."""
        return self._private

    @cached_property
    def verify_key(self) -> str:
        """Raw public key, 32 bytes as hex."""
        return self._private.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature, 64 bytes."""
        return self._private.sign(message)


def verify_signature(verify_key: str, message: bytes, signature: bytes) -> None:
    """Check an Ed25519 signature.

    Raises:
        SignatureRejected: the key is not a point, or the signature is not over these bytes.
    """
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(verify_key)).verify(signature, message)
    except (InvalidSignature, ValueError) as error:
        raise SignatureRejected("signature: it is not over these bytes by this key") from error


@dataclass(frozen=True)
class SealingKey:
    """A hybrid HPKE private key: what is sealed to it stays closed unless X25519 *and* ML-KEM-768 fall."""

    _mlkem: MLKEM768PrivateKey = field(repr=False)
    _x25519: X25519PrivateKey = field(repr=False)

    @staticmethod
    def generate() -> SealingKey:
        """Fresh key material from the operating system's generator."""
        return SealingKey(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())

    @staticmethod
    def from_bytes(raw: bytes) -> SealingKey:
        """Read ML-KEM-768 seed (64 bytes) ‖ X25519 scalar (32 bytes).

        Raises:
            ConfigurationError: another length.
        """
        if len(raw) != _MLKEM_SEED_BYTES + _X25519_BYTES:
            raise ConfigurationError(f"sealing key: expected 96 bytes, got {len(raw)}")
        return SealingKey(
            MLKEM768PrivateKey.from_seed_bytes(raw[:_MLKEM_SEED_BYTES]),
            X25519PrivateKey.from_private_bytes(raw[_MLKEM_SEED_BYTES:]),
        )

    def to_bytes(self) -> bytes:
        """The private key as ``from_bytes`` reads it. For the keystore only."""
        return self._mlkem.private_bytes_raw() + self._x25519.private_bytes_raw()

    @property
    def hpke(self) -> MLKEM768X25519PrivateKey:
        """The key in the form HPKE takes."""
        return MLKEM768X25519PrivateKey(self._mlkem, self._x25519)

    @cached_property
    def public_hex(self) -> str:
        """ML-KEM-768 public key (1184 bytes) ‖ X25519 public key (32 bytes), as hex."""
        return (
            self._mlkem.public_key().public_bytes_raw() + self._x25519.public_key().public_bytes_raw()
        ).hex()


def sealing_public_key(public_hex: str) -> MLKEM768X25519PublicKey:
    """Read a party's public sealing key from the roster.

    Raises:
        MalformedMessage: wrong length, or not hex.
    """
    try:
        raw = bytes.fromhex(public_hex)
    except ValueError as error:
        raise MalformedMessage("sealing key: expected hex") from error
    if len(raw) != _MLKEM_PUBLIC_BYTES + _X25519_BYTES:
        raise MalformedMessage(f"sealing key: expected 1216 bytes, got {len(raw)}")
    return MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(raw[:_MLKEM_PUBLIC_BYTES]),
        X25519PublicKey.from_public_bytes(raw[_MLKEM_PUBLIC_BYTES:]),
    )
