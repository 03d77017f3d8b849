"""``sealsum federation deliver``: a member carries an endorsed charter to the servers that run.

It is believed for its officers' signatures, not for who carries it, so any member will do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from privacy.canonical import canonical_bytes
from privacy.errors import PeerFault
from privacy.keystore import Identity, load_identity
from privacy.roster import Charter
from privacy.wire.charter import EndorsedCharter, open_charter
from sealsum.officer_files import read_charter_file
from silo_agent.charter_pin import CharterPin
from silo_agent.transport import FederationClient

_PATIENCE_S = 10.0


@click.command(short_help="Carry an endorsed charter to the servers that run.")
@click.argument("charter", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="State directory of any enrolled member, who carries it.",
)
@click.option("--proxy", metavar="URL", help="Proxy to dial through; else HTTPS_PROXY.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def deliver(charter: Path, state: Path, proxy: str | None, as_json: bool) -> None:
    """Check CHARTER under the pinned officers, and bring it to the aggregator and every share server."""
    identity = load_identity(state)
    endorsed = read_charter_file(charter)
    later = open_charter(endorsed, identity.pin.officers, identity.pin.federation).charter
    stored = state / "charter.json"
    held = CharterPin(stored, identity.pin).charter if stored.exists() else later
    answers = dict(_bring(identity, endorsed, _servers(held, later), proxy))
    refused = {server: answer for server, answer in answers.items() if answer != "taken"}
    if as_json:
        click.echo(json.dumps({"charter": later.digest, "epoch": later.epoch, "servers": answers}))
    else:
        for server, answer in answers.items():
            click.echo(f"{server}: {answer}")
    if refused:
        raise PeerFault(f"charter epoch {later.epoch}: not taken by {', '.join(sorted(refused))}")


def _servers(held: Charter, later: Charter) -> dict[str, str]:
    """Where each server of either charter is dialled, the aggregator first: it tells the others."""
    found: dict[str, str] = {}
    for role in ("aggregator", "share_server"):
        for charter in (held, later):
            for member in charter.members:
                if member.role == role:
                    found[member.id] = member.url
    return found


def _bring(
    identity: Identity, endorsed: EndorsedCharter, servers: dict[str, str], proxy: str | None
) -> Iterator[tuple[str, str]]:
    raw = canonical_bytes(endorsed)
    for server, url in servers.items():
        try:
            with FederationClient(identity, url, proxy=proxy, patience_s=_PATIENCE_S) as client:
                client.put_bytes("/v1/charter", raw)
        except PeerFault as fault:
            yield server, str(fault)
        else:
            yield server, "taken"
