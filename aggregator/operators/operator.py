"""An identified person: her roles, how she proved who she is, and the name she has in logs. Knows no HTTP."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aggregator.access import Scope
from privacy.errors import ConfigurationError, NotAllowed, SignatureRejected
from privacy.keystore import read_secret, write_secret
from privacy.people import PersonRole

Proof = Literal["certificate", "oidc", "api_token"]
_KEY_BYTES = 32


@dataclass(frozen=True)
class Operator:
    """Who calls, if it is a person (or a program that a person gave a token)."""

    subject: str = field(repr=False)
    """``operator:<name>``, ``<issuer>#<sub>`` or ``token:<id>``: what makes her one and the same."""
    pseudonym: str
    """What logs call her."""
    name: str
    """What she is called to her face."""
    roles: frozenset[PersonRole]
    by: Proof
    legal_entity: str = ""
    """The institution she reads models for; "" where none is configured."""
    scopes: frozenset[Scope] | None = None
    """What her API token was given of her role; ``None`` is all of it."""
    expires_at: int | None = None
    """Unix seconds, where the proof says."""


class PersonRefused(NotAllowed):
    """A known person is turned away before anything of her request is looked at."""

    def __init__(self, pseudonym: str, reason: str) -> None:
        super().__init__(reason)
        self.pseudonym = pseudonym


class TokenEnded(SignatureRejected):
    """A token that was ours once: whose it was belongs into the log, as somebody still has it."""

    def __init__(self, pseudonym: str, reason: str) -> None:
        super().__init__(reason)
        self.pseudonym = pseudonym


@dataclass(frozen=True)
class PersonReading:
    """A person who asks for a model, as threat models judge readers: like a researcher of her institution."""

    id: str
    legal_entity: str
    role: Literal["researcher"] = "researcher"


class Pseudonyms:
    """Names for logs: HMAC-SHA-256 of a subject under a key of this server.

    Keyed, because a bare hash of a mail address is guessed in seconds by whoever is handed the log. Who may
    read ``pseudonym.key``, or ask for the list of operators, can tell whose name it is.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @staticmethod
    def kept(path: Path) -> Pseudonyms:
        """Under the key at ``path``, which is made if there is none.

        Raises:
            ConfigurationError: others can read it, or it is not 32 bytes.
        """
        if not path.exists():
            write_secret(path, secrets.token_bytes(_KEY_BYTES))
        key = read_secret(path)
        if len(key) != _KEY_BYTES:
            raise ConfigurationError(f"{path}: expected {_KEY_BYTES} bytes, got {len(key)}; restore it")
        return Pseudonyms(key)

    def of(self, subject: str) -> str:
        """16 bytes as hex."""
        message = b"sealsum/person/v1\x00" + subject.encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()[:32]
