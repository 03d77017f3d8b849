"""``sealsum silo export``: hand over one job's ledger, approvals and who gave them, for the evidence pack."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from privacy.canonical import canonical_bytes
from privacy.keystore import load_identity
from silo_agent.approvals.handover import HandedOver, sign_handover
from silo_agent.approvals.registry import Registry
from silo_agent.durable import write_durably
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.ledger_commands import config_option
from silo_agent.settings import read_settings


@click.command()
@config_option
@click.option("--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout about what was written.")
def export(config: Path, asked: str, out: Path, as_json: bool) -> None:
    """Write one signed file with this silo's evidence about JOB, for 'sealsum audit export --silo'.

    It holds the whole ledger of the job's dataset, every decision about the job, and the roles and public
    keys of the people who took them. Exits 5 if the ledger does not verify.
    """
    settings = read_settings(config)
    identity = load_identity(settings.state_dir)
    registry = Registry(settings, identity)
    case = registry.one(asked, datetime.now(UTC)).case
    terms = case.request.terms
    decisions = registry.decisions
    authors = {decision.approval.by for decision in decisions.about(case.digest)}
    origin = ledger_origin(terms.federation, terms.silo, terms.dataset)
    path = ledger_path(settings.state_dir, terms.dataset)
    entries = read_account(path, origin, identity.signing.verify_key)[1] if path.exists() else ()
    document = HandedOver(
        federation=terms.federation,
        silo=terms.silo,
        job=terms.job,
        job_digest=case.digest,
        dataset=terms.dataset,
        ledger=tuple(canonical_bytes(entry).decode() for entry in entries),
        people={name: person for name, person in sorted(settings.people.items()) if name in authors},
        approvals=decisions.signed(case.digest),
    )
    write_durably(out, canonical_bytes(sign_handover(document, identity.signing)))
    written = {"file": str(out), "entries": len(entries), "approvals": len(document.approvals)}
    said = (
        f"{out}: {len(entries)} ledger entries, {len(document.approvals)} decisions, signed by {terms.silo}"
    )
    click.echo(json.dumps(written) if as_json else said)
