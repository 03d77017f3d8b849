"""The options by which a person's commands find a server, and say who she is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from privacy.errors import ConfigurationError
from privacy.keystore import read_secret
from sealsum.login.client import PersonClient, Proof, read_pem
from sealsum.login.store import Logins

_FILE = click.Path(path_type=Path, dir_okay=False)
SERVER = click.option("--server", metavar="URL", help="Server to call; the one you are logged in to.")
CA = click.option("--ca", type=_FILE, help="The federation's CA certificate; a login remembers it.")
_OPTIONS = (
    SERVER,
    CA,
    click.option("--token-file", type=_FILE, help="Come with the API token in this file instead."),
    click.option("--cert", type=_FILE, help="Come with this client certificate instead, and --key."),
    click.option("--key", type=_FILE, help="Private key of --cert."),
)


def calling(command: Callable[..., None]) -> Callable[..., None]:
    """The options of ``person_client``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def person_client(
    server: str | None, ca: Path | None, token_file: Path | None, cert: Path | None, key: Path | None
) -> PersonClient:
    """A client that says who the person is in the one way that was chosen; her login if none was.

    Raises:
        ConfigurationError: two ways, half of one, or something that it needs is missing.
    """
    if (cert is None) != (key is None) or (cert is not None and token_file is not None):
        raise ConfigurationError(
            "--cert, --key, --token-file: expected both of the first, or the last, or none"
        )
    if cert is None and token_file is None:
        login = Logins().fresh(server)
        trusted = login.ca if ca is None else read_pem(ca)
        return PersonClient(login.server, trusted, Proof(bearer=login.access_token))
    if server is None or ca is None:
        raise ConfigurationError("--server, --ca: expected both, as no login remembers them")
    bearer = None if token_file is None else read_secret(token_file).decode("ascii", "replace").strip()
    return PersonClient(server, read_pem(ca), Proof(bearer, cert, key))
