"""``sealsum login|logout|whoami``: a person at a federation's servers, by her institution's own login."""

from __future__ import annotations

import json
import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from privacy.errors import ConfigurationError, SealsumError
from sealsum.login.client import PersonClient, Proof, read_pem
from sealsum.login.loopback import Loopback
from sealsum.login.oauth import Issuer, Tokens, fresh_secret
from sealsum.login.options import SERVER, calling, person_client
from sealsum.login.store import Login, Logins

BROWSER_WAIT_S: Final = 300.0
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")


@click.command()
@click.option("--server", required=True, metavar="URL", help="https:// address of a federation's server.")
@click.option(
    "--ca",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The federation's CA certificate: ca.pem of any party.",
)
@click.option(
    "--issuer-ca",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CA certificate of the login service; else the system's.",
)
@click.option(
    "--browser/--device",
    "by_browser",
    default=True,
    help="Log in with this machine's browser, or confirm a code on any other.  [default: browser]",
)
@_JSON
def login(server: str, ca: Path, issuer_ca: Path | None, by_browser: bool, as_json: bool) -> None:
    """Log in to a federation's servers at your institution's login service."""
    trusted = read_pem(ca)
    trusted_issuer = None if issuer_ca is None else read_pem(issuer_ca)
    with PersonClient(server, trusted, Proof()) as client:
        terms = client.terms()
    issuer = Issuer(terms, trusted_issuer)
    try:
        tokens = _by_browser(issuer) if by_browser else _by_device(issuer)
    finally:
        issuer.close()
    made = Login(
        server=server.rstrip("/"),
        ca=trusted,
        federation=terms.federation,
        issuer=terms.issuer,
        issuer_ca=trusted_issuer,
        client_id=terms.client_id,
        audience=terms.audience,
        scopes=terms.scopes,
        access_token=tokens.access,
        refresh_token=tokens.refresh,
        expires_at=tokens.expires_at,
    )
    # Asked before it is kept: a login that no server takes is no login.
    with PersonClient(made.server, trusted, Proof(bearer=made.access_token)) as client:
        who = client.get("/v1/whoami")
    path = Logins().keep(made)
    click.echo(f"kept in {path}", err=True)
    _print(who, as_json)


@click.command()
@SERVER
@_JSON
def logout(server: str | None, as_json: bool) -> None:
    """Forget a login, and tell the login service that it is over."""
    ended = Logins().forget(server)
    told = False
    if ended.refresh_token is not None:
        try:
            issuer = Issuer(ended.terms, ended.issuer_ca)
            issuer.revoke(ended.refresh_token)
            issuer.close()
            told = True
        except SealsumError as error:
            click.echo(f"forgotten here; the login service was not told: {error}", err=True)
    if as_json:
        click.echo(json.dumps({"server": ended.server, "revoked": told}))
    else:
        click.echo(f"{ended.server}: logged out")


@click.command()
@calling
@_JSON
def whoami(
    server: str | None,
    ca: Path | None,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    as_json: bool,
) -> None:
    """Show who you are at a server, and in which roles."""
    with person_client(server, ca, token_file, cert, key) as client:
        _print(client.get("/v1/whoami"), as_json)


def _by_browser(issuer: Issuer) -> Tokens:
    loopback = Loopback()
    try:
        state, verifier = fresh_secret(), fresh_secret()
        url = issuer.authorization_url(loopback.redirect_uri, state, verifier)
        click.echo(f"log in here, if no page opens by itself: {url}", err=True)
        webbrowser.open(url)
        return issuer.redeem(loopback.wait(BROWSER_WAIT_S), loopback.redirect_uri, state, verifier)
    finally:
        loopback.close()


def _by_device(issuer: Issuer) -> Tokens:
    device = issuer.device_code()
    click.echo(f"open {device.where} and confirm the code {device.user_code}", err=True)
    return issuer.await_device(device)


def _print(who: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(who))
        return
    try:
        roles = ", ".join(who["roles"]) or "no role"
        click.echo(f"{who['name']} at {who['federation']}: {roles} (by {who['by']})")
        until = who.get("expires_at")
        if isinstance(until, int):
            click.echo(f"  until {datetime.fromtimestamp(until, UTC).isoformat(timespec='minutes')}")
        if who.get("scopes") is not None:
            click.echo(f"  for {', '.join(who['scopes'])}")
    except (KeyError, TypeError) as error:
        raise ConfigurationError(
            "whoami: expected name, federation, roles and by; is it a Sealsum server?"
        ) from error
