"""Where a secret lies: ``file:``, ``env:``, ``systemd-creds:`` or, for signing keys, ``pkcs11:``.

A reference is no secret and may stand in settings and logs; what it points at is read where it is used, and
is never in argv, ``repr`` or errors.

    file:/etc/sealsum/identity.key     mode 0600 or tighter
    env:SEALSUM_PROXY                  an environment variable; others of the same user can read it
    systemd-creds:identity.key         LoadCredential= or LoadCredentialEncrypted= of the service
    pkcs11:token=…;object=…?…          RFC 7512 (privacy/token_key.py)
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator

from privacy.errors import ConfigurationError
from privacy.secret_files import read_secret

Kind = Literal["file", "env", "systemd-creds", "pkcs11"]
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)
_CREDENTIALS_DIRECTORY: Final = "CREDENTIALS_DIRECTORY"
_EXPECTED: Final = "file:/PATH, env:NAME, systemd-creds:NAME or pkcs11:…"


@dataclass(frozen=True)
class Reference:
    """Where one secret lies."""

    kind: Kind
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    def path(self, field: str) -> Path | None:
        """The file it lies in; ``None`` for the environment and a token.

        Raises:
            ConfigurationError: a credential of systemd outside a service.
        """
        if self.kind == "file":
            return Path(self.place)
        if self.kind == "systemd-creds":
            directory = os.environ.get(_CREDENTIALS_DIRECTORY)
            if not directory:
                raise ConfigurationError(
                    f"{field}: expected {_CREDENTIALS_DIRECTORY} in the environment for {self}, got none; "
                    f"run this as a systemd service with LoadCredential={self.place}:/PATH"
                )
            return Path(directory) / self.place
        return None

    def read(self, field: str) -> bytes:
        """The secret's bytes; ``field`` is the setting that refers to it, for errors.

        Raises:
            ConfigurationError: it is not there, others can read it, or it is in a token and stays there.
        """
        if self.kind == "pkcs11":
            raise ConfigurationError(
                f"{field}: expected a reference to bytes, got {self.kind}: only the signing key can be in a "
                "token; use file:, env: or systemd-creds:"
            )
        path = self.path(field)
        if path is not None:
            return read_secret(path)
        value = os.environ.get(self.place)
        if not value:
            raise ConfigurationError(
                f"{field}: expected the environment variable {self.place}, got none; set it"
            )
        return value.encode()


def parse_reference(text: str) -> Reference:
    """Read a reference.

    Raises:
        ValueError: it is none; the text is not repeated, for it may be the secret itself.
    """
    kind, colon, place = text.partition(":")
    match kind:
        case "file" if colon and Path(place).is_absolute():
            return Reference("file", place)
        case "env" if _ENV_NAME.fullmatch(place):
            return Reference("env", place)
        case "systemd-creds" if _CREDENTIAL_NAME.fullmatch(place) and place not in (".", ".."):
            return Reference("systemd-creds", place)
        case "pkcs11" if place:
            return Reference("pkcs11", place)
    raise ValueError(f"expected a reference ({_EXPECTED}), got something else, not shown: it may be a secret")


def _parsed(value: object) -> object:
    return parse_reference(value) if isinstance(value, str) else value


KeyReference = Annotated[Reference, BeforeValidator(_parsed)]
"""A reference as a field of settings."""
