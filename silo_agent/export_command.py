"""``sealsum silo export``: hand over one job's ledger, decisions and the silo's log, for evidence."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from privacy.canonical import canonical_bytes
from privacy.keystore import Identity, load_identity
from privacy.transparency.checkpoint import LogHead
from silo_agent.approvals.handover import (
    HandedLog,
    HandedOver,
    OwnPolicy,
    SignedHandover,
    registered,
    sign_handover,
)
from silo_agent.approvals.registry import Registry
from silo_agent.durable import write_durably
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.ledger_commands import config_option
from silo_agent.log import SiloLog
from silo_agent.own_log_witnessed import kept_note
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import read_settings


@click.command(short_help="Write this silo's signed evidence about JOB.")
@config_option
@click.option("--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File to write.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout about what was written.")
def export(config: Path, asked: str, out: Path, as_json: bool) -> None:
    """Write one signed file with this silo's evidence about JOB, for 'sealsum audit export --silo'.

    It holds the whole ledger of the job's dataset, every decision about the job, the roles and public keys
    of the people who took them, what the dataset is registered for, the silo's own threat model and its
    whole log. Exits 5 if ledger or log do not verify.
    """
    signed = handed_over(config, asked)
    write_durably(out, canonical_bytes(signed))
    document = HandedOver.model_validate_json(signed.body)
    entries, log_head = document.ledger, document.log_head
    counted = {"entries": len(entries), "approvals": len(document.approvals), "log": log_head.size}
    said = (
        f"{out}: {len(entries)} ledger entries, {len(document.approvals)} decisions, {log_head.size} log "
        f"entries, signed by {document.silo}"
    )
    written = {"file": str(out), **counted}
    click.echo(json.dumps(written) if as_json else said)


def handed_over(config: Path, asked: str) -> SignedHandover:
    """What the silo of that ``silo.yaml`` hands over of a job, by its name or 8 digits of its digest.

    Raises:
        ConfigurationError: no such job here. LedgerDamaged: its ledger or its log does not verify.
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
    own, (log, log_head) = load_own_policy(settings), _own_log(identity)
    document = HandedOver(
        federation=terms.federation,
        silo=terms.silo,
        job=terms.job,
        job_digest=case.digest,
        dataset=terms.dataset,
        ledger=tuple(canonical_bytes(entry).decode() for entry in entries),
        people={name: person for name, person in sorted(settings.people.items()) if name in authors},
        approvals=decisions.signed(case.digest),
        registered=registered(settings.datasets.get(terms.dataset)),
        threat_model=OwnPolicy(text=own.text, parents=own.parents),
        log_head=log_head,
    )
    return sign_handover(document, log, identity.signing)


def _own_log(identity: Identity) -> tuple[HandedLog, LogHead]:
    """The silo's log up to a checkpoint that it signs now; a running agent may add to it meanwhile."""
    with SiloLog(identity.directory, identity.pin.federation, identity.pin.party, identity.signing) as log:
        checkpoint = log.checkpoint()
        lines = log.lines()[: checkpoint.head.size]
        seen = kept_note(log.directory)
        witnessed = seen.note() if seen is not None and log.began_with(seen.head) else None
    own = HandedLog(
        lines=tuple(line.decode() for line in lines), checkpoint=checkpoint.note(), witnessed=witnessed
    )
    return own, checkpoint.head
