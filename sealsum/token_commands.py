"""``sealsum token``: a site admin issues, lists and revokes API tokens of a server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from aggregator.access import API_TOKEN_SCOPES
from privacy.keystore import write_secret
from privacy.people import PERSON_ROLES
from sealsum.login.options import calling, person_client

_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
SCOPES = sorted(API_TOKEN_SCOPES)


@click.group()
def token() -> None:
    """Issue, list and revoke API tokens of a server."""


@token.command()
@calling
@click.option("--role", required=True, type=click.Choice(PERSON_ROLES), help="Whose endpoints it opens.")
@click.option(
    "--scope",
    "scopes",
    required=True,
    multiple=True,
    type=click.Choice(SCOPES),
    help="Which of them; again for more.",
)
@click.option(
    "--expires", "days", required=True, type=click.IntRange(min=1), metavar="DAYS", help="Days it lasts."
)
@click.option("--label", required=True, help="What it is for, as lists show it.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it to this new file, mode 0600, instead of printing it.",
)
@_JSON
def new(
    server: str | None,
    ca: Path | None,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    role: str,
    scopes: tuple[str, ...],
    days: int,
    label: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Issue a token. It is shown this once; the server keeps its digest only."""
    with person_client(server, ca, token_file, cert, key) as client:
        wanted = {"role": role, "scopes": sorted(set(scopes)), "days": days, "label": label}
        issued = client.post_safely("/v1/tokens", wanted)
    if out is not None:
        write_secret(out, str(issued.pop("token")).encode() + b"\n")
    if as_json:
        click.echo(json.dumps(issued))
        return
    where = f"in {out}" if out is not None else "below; nobody can show it again"
    click.echo(f"token {issued['id']}, until {_day(issued['expires_at'])}, {where}", err=True)
    if out is None:
        click.echo(issued["token"])


@token.command("list")
@calling
@_JSON
def list_tokens(
    server: str | None,
    ca: Path | None,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    as_json: bool,
) -> None:
    """List all tokens ever issued, with their last use; no secrets."""
    with person_client(server, ca, token_file, cert, key) as client:
        tokens: list[dict[str, Any]] = client.get("/v1/tokens")["tokens"]
    if as_json:
        click.echo(json.dumps(tokens))
        return
    for one in tokens:
        state = "revoked" if one["revoked_at"] else f"until {_day(one['expires_at'])}"
        used = f"last used {_day(one['used_at'])}" if one["used_at"] else "never used"
        click.echo(f"{one['id']}  {one['role']}: {', '.join(one['scopes'])}; {state}; {used}; {one['label']}")


@token.command()
@calling
@click.argument("name", metavar="TOKEN-ID")
@_JSON
def revoke(
    server: str | None,
    ca: Path | None,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    name: str,
    as_json: bool,
) -> None:
    """End a token now."""
    with person_client(server, ca, token_file, cert, key) as client:
        client.delete(f"/v1/tokens/{name}")
    click.echo(json.dumps({"id": name, "revoked": True}) if as_json else f"token {name}: revoked")


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
