"""What a login left on this machine: one file a server in XDG state, 0600, refreshed in place."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.keystore import read_secret
from sealsum.login.oauth import Issuer, LoginRefused, Terms, Tokens
from silo_agent.durable import private_directory, write_durably

EARLY_S: Final = 30
"""A token that ends within this is refreshed before it is used."""


class Login(Frozen):
    """A server, its issuer, and the tokens for it."""

    server: str
    ca: str
    """PEM of the federation's CA, by which the server is known."""
    federation: str
    issuer: str
    issuer_ca: str | None
    client_id: str
    audience: str
    scopes: tuple[str, ...]
    access_token: str = Field(repr=False)
    refresh_token: str | None = Field(repr=False)
    expires_at: int

    @property
    def terms(self) -> Terms:
        """As the server stated them when the person logged in."""
        return Terms(self.federation, self.issuer, self.client_id, self.audience, self.scopes)

    def with_tokens(self, tokens: Tokens) -> Login:
        """The same login, with fresh tokens."""
        return self.model_copy(
            update={
                "access_token": tokens.access,
                "refresh_token": tokens.refresh,
                "expires_at": tokens.expires_at,
            }
        )


class Logins:
    """All logins of this account."""

    def __init__(self, directory: Path | None = None) -> None:
        """``directory`` is ``$XDG_STATE_HOME/sealsum/logins``, else ``~/.local/state/sealsum/logins``."""
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        self._directory = directory or Path(state) / "sealsum" / "logins"

    def keep(self, login: Login) -> Path:
        """Write it, in place of an earlier one to the same server."""
        path = self._path(login.server)
        private_directory(path.parent)
        write_durably(path, login.model_dump_json().encode())
        return path

    def of(self, server: str | None) -> Login:
        """The login to a server, or the only one.

        Raises:
            ConfigurationError: there is none, or more than one and no server was named.
        """
        if server is not None:
            return self._read(self._path(server))
        found = sorted(self._directory.glob("*.json")) if self._directory.is_dir() else []
        if len(found) != 1:
            servers = ", ".join(self._read(path).server for path in found)
            raise ConfigurationError(
                f"--server: logged in to {servers}; say which one"
                if found
                else "login: not logged in to any server; run sealsum login --server https://… --ca ca.pem"
            )
        return self._read(found[0])

    def fresh(self, server: str | None) -> Login:
        """The login to a server with an access token that still holds, refreshed if it must be.

        Raises:
            ConfigurationError: as ``of``. LoginRefused: it is over, and cannot be refreshed.
        """
        login = self.of(server)
        if login.expires_at - EARLY_S > time.time():
            return login
        with self._lock(login.server):
            login = self.of(login.server)  # another process may have refreshed it while we waited
            if login.expires_at - EARLY_S > time.time():
                return login
            if login.refresh_token is None:
                raise LoginRefused("login: it is over; run sealsum login again")
            issuer = Issuer(login.terms, login.issuer_ca)
            try:
                renewed = login.with_tokens(issuer.refreshed(login.refresh_token))
            finally:
                issuer.close()
            self.keep(renewed)
            return renewed

    def forget(self, server: str | None) -> Login:
        """Remove a login; its refresh token is still to be revoked.

        Raises:
            ConfigurationError: as ``of``.
        """
        login = self.of(server)
        self._path(login.server).unlink()
        return login

    def _path(self, server: str) -> Path:
        return self._directory / f"{re.sub(r'[^a-z0-9.-]', '_', server_name(server))}.json"

    def _read(self, path: Path) -> Login:
        if not path.exists():
            raise ConfigurationError(f"{path}: not logged in to this server; run sealsum login")
        try:
            return Login.model_validate_json(read_secret(path))
        except ValidationError as error:
            raise ConfigurationError(f"{path}: expected what sealsum login wrote; log in again") from error

    @contextmanager
    def _lock(self, server: str) -> Iterator[None]:
        """One refresh at a time: a refresh token may work once."""
        with self._path(server).with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def server_name(url: str) -> str:
    """``host:port`` of a server's URL.

    Raises:
        ConfigurationError: not an https URL of a host alone.
    """
    address = urlsplit(url)
    if address.scheme != "https" or not address.hostname or address.path not in ("", "/") or address.query:
        raise ConfigurationError(f"--server: expected https://host[:port], got {url!r}")
    return f"{address.hostname}:{address.port or 443}"
