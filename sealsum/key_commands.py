"""``sealsum keys``: a person's own signing key, for approvals and endorsements; a party's certificate.

The private key is written once, readable by its owner only, and never shown.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from policies.health.certificate import renew as renew_certificate
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.keystore import load_identity, read_secret, write_secret
from silo_agent.egress import Egress
from silo_agent.renewing import post_to


@click.group()
def keys() -> None:
    """Make a person's signing key; show its public half; renew a party's certificate."""


@keys.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The new file; an existing one is never overwritten.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def new(out: Path, as_json: bool) -> None:
    """Make an Ed25519 key for one person, and print its public half.

    The file is readable by its owner only. Whoever else gets it can sign in that person's name.
    """
    key = SigningKey.generate()
    write_secret(out, key.to_pem())
    _say(out, key.verify_key, as_json)


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def show(file: Path, as_json: bool) -> None:
    """Print the public half of a key, as silo.yaml and officers' documents name it."""
    _say(file, SigningKey.from_pem(read_secret(file)).verify_key, as_json)


@keys.command()
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The party's own directory, as enrolment made it.",
)
@click.option("--registrar", metavar="URL", help="https://host:port; else what the invitation said.")
@click.option("--proxy", metavar="URL", help="Proxy to dial through; else HTTPS_PROXY.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def renew(state: Path, registrar: str | None, proxy: str | None, as_json: bool) -> None:
    """Renew a party's certificate now, be it over or not. Running agents and servers do so by themselves.

    The identity key signs the request and stays what it is. A running process shows the new certificate
    after SIGHUP.
    """
    identity = load_identity(state)
    where = registrar or identity.pin.registrar
    post = post_to(identity, where, Egress(proxy))
    if post is None:
        raise ConfigurationError(f"--registrar: expected its https:// address; {state} knows none")
    until = renew_certificate(identity, post, datetime.now(UTC)).isoformat(timespec="seconds")
    said = {"party": identity.pin.party, "certificate_until": until}
    click.echo(json.dumps(said) if as_json else f"{identity.pin.party}: certificate until {until}")


def _say(file: Path, verify_key: str, as_json: bool) -> None:
    click.echo(json.dumps({"file": str(file), "verify_key": verify_key}) if as_json else verify_key)
