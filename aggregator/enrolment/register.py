"""The register of invited and enrolled parties: one SQLite file in which an invitation is used up once.

Holds digests of secrets, never secrets. Decides nothing but what two callers at once must not both get.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from privacy.errors import ConfigurationError, Conflict, NotAllowed
from privacy.ids import Digest, PartyId
from privacy.roster import Role

_BUSY_S = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS parties (
    party         TEXT PRIMARY KEY,
    role          TEXT NOT NULL,
    legal_entity  TEXT NOT NULL,
    operator      TEXT NOT NULL,
    url           TEXT NOT NULL,
    secret_digest TEXT NOT NULL,
    expires_at    TEXT NOT NULL,
    wrong_secrets INTEGER NOT NULL DEFAULT 0,
    enrolled_at   TEXT,
    verify_key    TEXT UNIQUE,
    sealing_key   TEXT NOT NULL DEFAULT ''
) STRICT
"""


@dataclass(frozen=True)
class RegisteredParty:
    """One row: who was invited and, once ``enrolled_at`` is set, with which keys it enrolled."""

    party: PartyId
    role: Role
    legal_entity: str
    operator: str
    url: str
    secret_digest: Digest = field(repr=False)
    expires_at: str
    """ISO 8601 UTC."""
    wrong_secrets: int = 0
    enrolled_at: str | None = None
    verify_key: str | None = None
    sealing_key: str = ""


class Register:
    """The parties of one federation on disk. Each call is one transaction; safe from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Make the empty register, private to its owner."""
        self._path.touch(mode=0o600, exist_ok=False)
        with self._transaction() as connection:
            connection.execute(_TABLE)

    def parties(self) -> tuple[RegisteredParty, ...]:
        """All of them, sorted by name."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT * FROM parties ORDER BY party").fetchall()
        return tuple(RegisteredParty(**dict(row)) for row in rows)

    def find(self, party: PartyId) -> RegisteredParty | None:
        """The party of that name, if it was ever invited."""
        with self._transaction() as connection:
            row = connection.execute("SELECT * FROM parties WHERE party = ?", (party,)).fetchone()
        return None if row is None else RegisteredParty(**dict(row))

    def invite(self, invited: RegisteredParty, replace: bool) -> None:
        """Record an invitation.

        Raises:
            ConfigurationError: the name is invited or enrolled already, and ``replace`` is not set.
        """
        with self._transaction() as connection:
            if replace:
                connection.execute("DELETE FROM parties WHERE party = ?", (invited.party,))
            try:
                connection.execute(
                    "INSERT INTO parties"
                    " (party, role, legal_entity, operator, url, secret_digest, expires_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        invited.party,
                        invited.role,
                        invited.legal_entity,
                        invited.operator,
                        invited.url,
                        invited.secret_digest,
                        invited.expires_at,
                    ),
                )
            except sqlite3.IntegrityError as error:
                raise ConfigurationError(
                    f"party {invited.party}: it is invited or enrolled already; "
                    "add --replace to void that and invite it anew"
                ) from error

    def count_wrong_secret(self, party: PartyId) -> None:
        """One more wrong guess for this party's invitation."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE parties SET wrong_secrets = wrong_secrets + 1 WHERE party = ?", (party,)
            )

    def use_up(
        self, party: PartyId, secret_digest: Digest, verify_key: str, sealing_key: str, at: str
    ) -> None:
        """Bind the invitation to a key, once: of two callers at the same time one gets the refusal.

        Raises:
            NotAllowed: it was used, or replaced, in the meantime. Conflict: another party has this key.
        """
        with self._transaction() as connection:
            try:
                used = connection.execute(
                    "UPDATE parties SET verify_key = ?, sealing_key = ?, enrolled_at = ?"
                    " WHERE party = ? AND secret_digest = ? AND enrolled_at IS NULL",
                    (verify_key, sealing_key, at, party, secret_digest),
                ).rowcount
            except sqlite3.IntegrityError as error:
                raise Conflict(
                    "csr: another party has enrolled this key; each party makes its own"
                ) from error
            if used != 1:
                raise NotAllowed(f"invitation of {party}: it is used already; ask the officer for a new one")

    def drop_pending(self) -> None:
        """Void every invitation that was not used."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM parties WHERE enrolled_at IS NULL")

    def forget_keys(self, revoked: Iterable[str]) -> None:
        """Take out the parties whose keys were revoked."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM parties WHERE verify_key = ?", [(key,) for key in revoked])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """``BEGIN IMMEDIATE``: writers queue, so a check and its update see one state."""
        if not self._path.exists():
            raise ConfigurationError(f"{self._path}: not found; is this a federation's directory?")
        with closing(sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
