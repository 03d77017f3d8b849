"""An Ed25519 signing key that stays in a PKCS#11 token, which signs; its private half never comes here.

    pkcs11:token=LABEL;object=LABEL?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:/etc/pin

After RFC 7512. The PIN is itself a secret by reference (``file:``, ``env:``, ``systemd-creds:``); a
``pin-value`` in the URI is refused, because settings are no place for it. Mechanism: CKM_EDDSA (PKCS#11 3.0).
The TLS key stays a file (``privacy/tls_delegation.py``): OpenSSL, as Python uses it, reads keys from files.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol, cast
from urllib.parse import unquote

import pkcs11
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privacy.errors import ConfigurationError
from privacy.key_reference import Reference, parse_reference

_POINT_BYTES: Final = 32
_REQUIRED: Final = frozenset({"token", "object", "module-path", "pin-source"})


class _Signs(Protocol):
    """What a private key in a token can do; the library's types leave it out."""

    def sign(self, data: bytes, *, mechanism: pkcs11.Mechanism) -> bytes: ...


class TokenKey(Ed25519PrivateKey):
    """The key as ``cryptography`` takes it: it signs, and gives nothing away. Threads take turns."""

    def __init__(self, key: _Signs, public: Ed25519PublicKey) -> None:
        self._key = key
        self._public = public
        self._turn = threading.Lock()

    def sign(self, data: bytes | bytearray | memoryview) -> bytes:
        """Ed25519 signature (RFC 8032), made in the token, and checked: a token may be broken or lie."""
        with self._turn:
            signature = bytes(self._key.sign(bytes(data), mechanism=pkcs11.Mechanism.EDDSA))
        self._public.verify(signature, bytes(data))
        return signature

    def public_key(self) -> Ed25519PublicKey:
        """The public half."""
        return self._public

    def private_bytes(
        self,
        encoding: serialization.Encoding,
        format: serialization.PrivateFormat,  # noqa: A002 - the base class names it so
        encryption_algorithm: serialization.KeySerializationEncryption,
    ) -> bytes:
        """Never.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError("identity key: it stays in its token; there are no private bytes to write")

    def private_bytes_raw(self) -> bytes:
        """Never.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError("identity key: it stays in its token; there are no private bytes to write")

    def __copy__(self) -> TokenKey:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> TokenKey:
        return self


def open_token(reference: Reference) -> TokenKey:
    """Log in to the token and find the key pair; the session stays open as long as the process.

    Raises:
        ConfigurationError: the reference is not as it must be, or the token, the PIN or the key is not there.
    """
    named = _parsed(reference.place)
    pin = parse_reference(named["pin-source"]).read("identity_key.pin-source").decode("utf-8").strip()
    where = f"identity_key: token {named['token']!r}"
    try:
        token = pkcs11.lib(named["module-path"]).get_token(token_label=named["token"])
        try:
            session = token.open(user_pin=pin)
        except pkcs11.UserAlreadyLoggedIn:
            session = token.open()  # a login is the process's, not the session's (PKCS#11, section 5.6)
        private = session.get_key(
            object_class=pkcs11.ObjectClass.PRIVATE_KEY,
            key_type=pkcs11.KeyType.EC_EDWARDS,
            label=named["object"],
        )
        public = session.get_key(
            object_class=pkcs11.ObjectClass.PUBLIC_KEY,
            key_type=pkcs11.KeyType.EC_EDWARDS,
            label=named["object"],
        )
        point = bytes(public[pkcs11.Attribute.EC_POINT])
    except (pkcs11.PKCS11Error, RuntimeError) as error:
        # The class says it (PinIncorrect, NoSuchToken, NoSuchKey); libraries may repeat a PIN in words.
        raise ConfigurationError(
            f"{where}: expected an Ed25519 key pair {named['object']!r} in it, got {type(error).__name__}; "
            "check module-path, token, object and pin-source"
        ) from None
    # DER: OCTET STRING of the 32 bytes (PKCS#11 3.0, section 2.3.5).
    if point[:2] != bytes((4, _POINT_BYTES)) or len(point) != 2 + _POINT_BYTES:
        raise ConfigurationError(f"{where}: expected an Ed25519 point, got {len(point)} other bytes")
    return TokenKey(cast(_Signs, private), Ed25519PublicKey.from_public_bytes(point[2:]))


def _parsed(uri: str) -> dict[str, str]:
    path, _, query = uri.partition("?")
    attributes = [part for part in (*path.split(";"), *query.split("&")) if part]
    named = {name: unquote(value) for name, _, value in (part.partition("=") for part in attributes)}
    if "pin-value" in named:
        raise ConfigurationError("identity_key: expected pin-source in the PKCS#11 URI, got the PIN itself")
    missing, unknown = sorted(_REQUIRED - named.keys()), sorted(named.keys() - _REQUIRED)
    if missing or unknown:
        raise ConfigurationError(
            "identity_key: expected pkcs11:token=…;object=…?module-path=…&pin-source=…; "
            f"missing: {', '.join(missing) or 'nothing'}; unknown: {', '.join(unknown) or 'nothing'}"
        )
    return named
