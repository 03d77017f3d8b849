"""``sealsum officer``: what an officer does on her own machine. Her key never leaves it.

She reads what a proposal changes, in sentences, and hands over a signature file.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from pydantic import ValidationError

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.keystore import read_secret
from privacy.officers import Officer, Officers
from privacy.wire.proposal import endorse, names_of_key, read_proposal
from sealsum.charter_sentences import endorsed_by, judged, weak_points
from sealsum.officer_files import read_charter_file, read_officers
from sealsum.yaml_file import faults_of
from silo_agent.durable import write_durably

_FILE = click.Path(path_type=Path, dir_okay=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")


@click.group()
def officer() -> None:
    """List a federation's officers; read and sign what they decide."""


@officer.command("list", short_help="Write the list of officers that a federation is founded with.")
@click.option("--federation", required=True, help="Name of the federation.")
@click.option("--threshold", required=True, type=click.IntRange(min=1), help="How many must sign.")
@click.option(
    "--officer",
    "named",
    nargs=3,
    multiple=True,
    required=True,
    metavar="NAME INSTITUTION KEY",
    help="One officer; KEY is the public half, as 'sealsum keys show' prints it. Repeatable.",
)
@click.option("--after", type=_FILE, help="The list in force: the new one is the version after it.")
@click.option(
    "--one-institution-decides",
    is_flag=True,
    help="Allow that the officers of one institution are enough; refused otherwise.",
)
@click.option("--out", required=True, type=_FILE, help="File to write; never replaced.")
@_JSON
def list_officers(
    federation: str,
    threshold: int,
    named: tuple[tuple[str, str, str], ...],
    after: Path | None,
    one_institution_decides: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Write who may endorse charters, and how many of them it takes. The digest is what people compare."""
    _must_be_new(out)
    try:
        officers = Officers(
            federation=federation,
            version=1 if after is None else read_officers(after).version + 1,
            threshold=threshold,
            officers=tuple(_listed(*one) for one in sorted(named)),
            one_institution="allowed" if one_institution_decides else "refused",
        )
    except ValidationError as error:
        raise ConfigurationError(f"officers of {federation}:\n{faults_of(error)}") from error
    write_durably(out, canonical_bytes(officers))
    report = {"file": str(out), "version": officers.version, "officers": officers.digest}
    if as_json:
        click.echo(json.dumps({**report, "weak": list(weak_points(officers))}))
        return
    click.echo(f"{out}: version {officers.version}, {threshold} of {len(named)}, digest {officers.digest}")
    for point in weak_points(officers):
        click.echo(point)


@officer.command(short_help="Say in sentences what a proposed or endorsed charter changes, and who signed.")
@click.argument("charter", type=_FILE)
@click.option("--in-force", type=_FILE, help="Your copy of the charter that it replaces.")
@_JSON
def show(charter: Path, in_force: Path | None, as_json: bool) -> None:
    """Show what a charter says, against the one in force, and whose signatures it bears."""
    proposal = read_charter_file(charter)
    document, versions = read_proposal(proposal)
    sentences = judged(proposal, None if in_force is None else read_charter_file(in_force))
    signed = [endorsed_by(proposal.charter, versions[-1])]
    if not (len(versions) > 1 and in_force is None):
        signed.append(endorsed_by(proposal.officers[-1], versions[-1]))
    if as_json:
        report = {
            "epoch": document.epoch,
            "charter": document.digest,
            "officers": versions[-1].digest,
            "changes": list(sentences),
            "signed": {
                "charter": sorted(proposal.charter.signatures),
                "officers": sorted(proposal.officers[-1].signatures),
            },
        }
        click.echo(json.dumps(report))
        return
    for sentence in (*sentences, *signed):
        click.echo(sentence)


@officer.command(short_help="Read what a proposal changes, then sign it with your own key.")
@click.argument("proposal", type=_FILE)
@click.option("--key", required=True, type=_FILE, help="Your own key, mode 0600, of 'sealsum keys new'.")
@click.option("--in-force", type=_FILE, help="Your copy of the charter that it replaces; not for the first.")
@click.option("--out", required=True, type=_FILE, help="Signature file to hand over; never replaced.")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@_JSON
def sign(proposal: Path, key: Path, in_force: Path | None, out: Path, yes: bool, as_json: bool) -> None:
    """Show what the proposal changes, ask, and write your signature. The key stays here."""
    _must_be_new(out)
    if as_json and not yes:
        raise ConfigurationError("--json: expected --yes with it; there is nobody to ask")
    offered = read_charter_file(proposal)
    signing = SigningKey.from_pem(read_secret(key))
    may = names_of_key(offered, signing.verify_key)
    sentences = judged(offered, None if in_force is None else read_charter_file(in_force))
    if not as_json:
        for sentence in sentences:
            click.echo(sentence)
        if not yes:
            click.confirm(f"Sign {' and '.join(sorted(may))} as {next(iter(may.values()))}?", abort=True)
    endorsement = endorse(offered, signing)
    write_durably(out, canonical_bytes(endorsement))
    if as_json:
        report = {
            "file": str(out),
            "officer": endorsement.officer,
            "charter": endorsement.charter,
            "signed": sorted(may),
            "changes": list(sentences),
        }
        click.echo(json.dumps(report))
    else:
        click.echo(f"{out}: signed by {endorsement.officer}; hand it to whoever assembles the charter")


def _listed(name: str, legal_entity: str, verify_key: str) -> Officer:
    try:
        return Officer(name=PartyId(name), legal_entity=legal_entity, verify_key=verify_key)
    except ValidationError as error:
        raise ConfigurationError(
            f"--officer {name}:\n{faults_of(error)}\n"
            "give a name in lower case, her institution, and the key that 'sealsum keys show FILE' prints"
        ) from error


def _must_be_new(out: Path) -> None:
    if out.exists():
        raise ConfigurationError(f"{out}: it exists; choose another --out")
