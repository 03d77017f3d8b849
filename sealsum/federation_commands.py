"""``sealsum federation``: the registrar's commands, from founding a federation to its charter in force."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, get_args

import click

from aggregator.enrolment.authority import (
    Authority,
    found_alone,
    found_authority,
    load_authority,
    write_atomically,
)
from aggregator.enrolment.governing import Change, adopt_charter, propose_charter, seal_charter
from aggregator.enrolment.invitations import Guest, invite
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError
from privacy.keystore import write_secret
from privacy.roster import Role
from privacy.wire.proposal import assemble, read_proposal
from sealsum.lazy_group import Lazy, LazyGroup
from sealsum.officer_files import read_charter_file, read_endorsement, read_officers
from sealsum.option_types import Duration
from sealsum.policy_file import read_policy

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_FILE = click.Path(path_type=Path, dir_okay=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")


class FederationGroup(LazyGroup):
    """``serve`` needs the aggregator extra; founding, inviting and sealing do not."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "deliver": Lazy(
            "sealsum.deliver_command:deliver", "Carry an endorsed charter to the servers that run."
        ),
        "replace-ca": Lazy("sealsum.ca_command:replace_ca", "Replace the CA, one of three steps at a time."),
        "serve": Lazy("sealsum.registrar_command:serve", "Run the registrar while parties enrol."),
    }


@click.command(cls=FederationGroup)
def federation() -> None:
    """Found a federation, invite its parties, enrol them, put its charter in force."""


@federation.command(short_help="Found a federation: its CA, officers and policy.")
@_DIRECTORY
@click.option(
    "--name", required=True, help="Name of the federation: lower-case letters, digits, '.', '_', '-'."
)
@click.option("--policy", required=True, metavar="NAME|FILE", help="Its threat model: a profile or a file.")
@click.option(
    "--officers",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Who endorses its charters: what 'sealsum officer list' wrote. Without it one officer's key is made "
    "here, and whoever holds this directory rules the federation alone.",
)
@click.option("--parent", "parents", multiple=True, metavar="NAME|FILE", help="What the policy extends.")
@_JSON
def init(
    directory: Path,
    name: str,
    policy: str,
    officers: Path | None,
    parents: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make the authority's directory: CA, officers, policy. Keep it off the network."""
    model, now = read_policy(policy, parents), datetime.now(UTC)
    if officers is None:
        authority = found_alone(directory, name, model, now)
    else:
        named = read_officers(officers)
        if named.federation != name:
            raise ConfigurationError(f"{officers}: expected officers of {name}, got {named.federation}")
        authority = found_authority(directory, named, model, now)
    _print_authority(authority, as_json)


@federation.command("invite", short_help="Write a one-time token for one party.")
@_DIRECTORY
@click.option("--party", required=True, help="Name of the party.")
@click.option("--role", required=True, type=click.Choice(get_args(Role)))
@click.option("--legal-entity", required=True, help="The institution that answers for it.")
@click.option("--operator", required=True, help="Who runs the machine.")
@click.option("--url", default="", help="https:// address others will dial: servers only.")
@click.option("--registrar-url", required=True, help="https://host:port of 'sealsum federation serve'.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Token file to write."
)
@click.option(
    "--ttl", type=Duration(), default="24h", show_default=True, help="How long the token is good for."
)
@click.option("--replace", is_flag=True, help="Void this party's earlier invitation or enrolment.")
@_JSON
def invite_party(
    directory: Path,
    party: str,
    role: Role,
    legal_entity: str,
    operator: str,
    url: str,
    registrar_url: str,
    out: Path,
    ttl: timedelta,
    replace: bool,
    as_json: bool,
) -> None:
    """Write a one-time token for one party; hand it over on a channel you trust."""
    if out.exists():
        raise ConfigurationError(f"{out}: exists already; a token is written once")
    guest = Guest(party, role, legal_entity, operator, url)
    invitation = invite(load_authority(directory), guest, registrar_url, datetime.now(UTC), ttl, replace)
    write_secret(out, canonical_bytes(invitation))
    if as_json:
        click.echo(
            json.dumps(
                {"party": party, "role": role, "token_file": str(out), "expires_at": invitation.expires_at}
            )
        )
    else:
        click.echo(f"{out}: invites {party} as {role}, once, until {invitation.expires_at}")


@federation.command(short_help="Close enrolment where one officer is enough and her key is here.")
@_DIRECTORY
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the charter here.")
@click.option("--drop-pending", is_flag=True, help="Void invitations that were not used.")
@_JSON
def seal(directory: Path, out: Path | None, drop_pending: bool, as_json: bool) -> None:
    """Close enrolment: propose, sign and adopt the next epoch's charter in one step."""
    authority = load_authority(directory)
    charter = seal_charter(authority, drop_pending)
    endorsed = authority.endorsed_charter()
    if out is not None and endorsed is not None:
        write_atomically(out, canonical_bytes(endorsed))
    report = {"federation": charter.federation, "epoch": charter.epoch, "charter": charter.digest}
    if as_json:
        click.echo(json.dumps({**report, "members": [member.id for member in charter.members]}))
    else:
        click.echo(f"charter of {charter.federation}, epoch {charter.epoch}: {len(charter.members)} members")
        click.echo(f"digest {charter.digest}")


@federation.command(short_help="Write the next charter for officers to sign.")
@_DIRECTORY
@click.option("--out", required=True, type=_FILE, help="Proposal to write; never replaced.")
@click.option("--policy", metavar="NAME|FILE", help="Another threat model: a profile or a file.")
@click.option("--parent", "parents", multiple=True, metavar="NAME|FILE", help="What the policy extends.")
@click.option("--remove", multiple=True, metavar="PARTY", help="A member who leaves; its key is revoked.")
@click.option("--officers", type=_FILE, help="The next version of the officers, of 'sealsum officer list'.")
@click.option("--drop-pending", is_flag=True, help="Void invitations that were not used.")
@_JSON
def propose(
    directory: Path,
    out: Path,
    policy: str | None,
    parents: tuple[str, ...],
    remove: tuple[str, ...],
    officers: Path | None,
    drop_pending: bool,
    as_json: bool,
) -> None:
    """Write the next epoch's charter: enrolled roster, policy, officers. Enough signatures make it hold."""
    if out.exists():
        raise ConfigurationError(f"{out}: it exists; choose another --out")
    change = Change(
        policy=None if policy is None else read_policy(policy, parents),
        remove=remove,
        officers=None if officers is None else read_officers(officers),
        drop_pending=drop_pending,
    )
    proposal = propose_charter(load_authority(directory), change)
    write_atomically(out, canonical_bytes(proposal))
    charter, versions = read_proposal(proposal)
    if as_json:
        report = {"file": str(out), "epoch": charter.epoch, "charter": charter.digest}
        click.echo(json.dumps({**report, "officers": versions[-1].digest}))
        return
    click.echo(f"{out}: epoch {charter.epoch}, digest {charter.digest}")
    compared = " --in-force CHARTER" if charter.epoch > 1 else ""
    click.echo(
        f"each officer reads and signs it: sealsum officer sign {out}{compared} --key KEY --out SIGNATURE"
    )
    if compared:
        click.echo(f"CHARTER is each officer's own copy of the charter in force, epoch {charter.epoch - 1}")


@federation.command(short_help="Put a charter that enough officers have signed in force.")
@_DIRECTORY
@click.argument("proposal", type=_FILE)
@click.argument("signatures", nargs=-1, type=_FILE)
@click.option("--out", type=_FILE, help="Also write the endorsed charter here.")
@_JSON
def endorse(
    directory: Path, proposal: Path, signatures: tuple[Path, ...], out: Path | None, as_json: bool
) -> None:
    """Add SIGNATURES to PROPOSAL; if they are enough, it is the registrar's charter from now on."""
    endorsed = assemble(read_charter_file(proposal), [read_endorsement(path) for path in signatures])
    verified = adopt_charter(load_authority(directory), endorsed)
    if out is not None:
        write_atomically(out, canonical_bytes(verified.endorsed))
    charter = verified.charter
    signed_by = sorted(verified.endorsed.charter.signatures)
    if as_json:
        report = {"federation": charter.federation, "epoch": charter.epoch, "charter": charter.digest}
        click.echo(json.dumps({**report, "signed_by": signed_by}))
        return
    click.echo(f"charter of {charter.federation}, epoch {charter.epoch}, signed by {', '.join(signed_by)}")
    click.echo(f"digest {charter.digest}")


@federation.command(short_help="Show policy, parties and charter.")
@_DIRECTORY
@_JSON
def show(directory: Path, as_json: bool) -> None:
    """Show the federation: its policy, its parties and its charter. No secret is printed."""
    _print_authority(load_authority(directory), as_json)


def _print_authority(authority: Authority, as_json: bool) -> None:
    policy, in_force = authority.policy(), authority.in_force()
    charter = None if in_force is None else in_force.charter
    officers = authority.officers_in_force()
    parties = authority.register.parties()
    report = {
        "federation": authority.federation,
        "officers": {**officers.model_dump(mode="json"), "digest": officers.digest},
        "policy": {"name": policy.model.metadata.name, "digest": policy.digest},
        "charter": None if charter is None else {"epoch": charter.epoch, "digest": charter.digest},
        "parties": [
            {
                "party": party.party,
                "role": party.role,
                "legal_entity": party.legal_entity,
                "operator": party.operator,
                "url": party.url,
                "state": "invited" if party.enrolled_at is None else "enrolled",
                "verify_key": party.verify_key,
                "expires_at": party.expires_at,
            }
            for party in parties
        ],
    }
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"federation   {authority.federation}")
    alone = "; one institution can change everything alone" if officers.rule_alone else ""
    click.echo(
        f"officers     {officers.threshold} of {len(officers.officers)}, version {officers.version} "
        f"({officers.digest}){alone}"
    )
    click.echo(f"policy       {policy.model.metadata.name} ({policy.digest})")
    click.echo(
        f"charter      {'none in force' if charter is None else f'epoch {charter.epoch} ({charter.digest})'}"
    )
    for party in parties:
        state = "invited until " + party.expires_at if party.enrolled_at is None else "enrolled"
        click.echo(f"  {party.party}  {party.role}  {party.legal_entity} / {party.operator}  {state}")
