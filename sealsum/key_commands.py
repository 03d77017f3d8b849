"""``sealsum keys``: a person's own signing key, for approvals and endorsements; parties' keys are enrolled.

The private key is written once, readable by its owner only, and never shown.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from privacy.identity import SigningKey
from privacy.keystore import read_secret, write_secret


@click.group()
def keys() -> None:
    """Make a person's signing key; show its public half."""


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


def _say(file: Path, verify_key: str, as_json: bool) -> None:
    click.echo(json.dumps({"file": str(file), "verify_key": verify_key}) if as_json else verify_key)
