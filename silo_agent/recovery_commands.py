"""``sealsum silo ledger restore`` and ``write-off``: what to do when a ledger lacks entries.

Both need the agent stopped (they take its lock) and ask every server what it has seen.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import click

from privacy.chain import Head
from privacy.errors import ConfigurationError, LedgerDamaged
from privacy.ids import SiloId
from privacy.keystore import Identity
from silo_agent.charter_pin import CharterPin, ask_for_charter
from silo_agent.delivery import Delivery
from silo_agent.egress import egress_of
from silo_agent.ledger.copies import read_copy
from silo_agent.ledger.journal import Journal
from silo_agent.ledger.recovery import restore as take_missing
from silo_agent.ledger.recovery import unseen
from silo_agent.ledger.recovery import write_off as give_up
from silo_agent.ledger.witnessed import Witness, open_witnessed
from silo_agent.ledger_options import config_option, find_ledger
from silo_agent.settings import SiloSettings
from silo_agent.transport import FederationClient


@click.command()
@config_option
@click.option("--dataset", required=True, help="Name of a dataset in the settings.")
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A ledger export, an evidence pack, or lines of sealsum silo ledger --json.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def restore(config: Path, dataset: str, source: Path, as_json: bool) -> None:
    """Take the entries that a ledger lacks from a copy. Only this silo's own signed entries are believed.

    Exits 5 if entries that a server has seen are still missing; then give another copy.
    """
    settings, identity, path, origin = find_ledger(config, dataset)
    given = read_copy(source, origin, identity.signing.verify_key)
    with Journal(path, origin, identity.signing, mending=True) as journal:
        added = take_missing(journal, given)
        missing = unseen(journal, _seen(settings, identity, dataset), identity.pin.party)
        head = journal.head
    _say(as_json, f"{path}: {added} entries restored", restored=added, head=head, missing=missing)
    if missing:
        raise LedgerDamaged(f"{path}: still lacks {_named(missing)}; restore from another copy")


@click.command()
@config_option
@click.option("--dataset", required=True, help="Name of a dataset in the settings.")
@click.option("--yes", is_flag=True, help="All of the dataset's lifetime budget counts as spent, for good.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def write_off(config: Path, dataset: str, yes: bool, as_json: bool) -> None:
    """Give up entries that are lost for good: all of the dataset's lifetime budget counts as spent.

    The ledger goes on behind the furthest entry that a server has seen. This cannot be undone.
    """
    settings, identity, path, origin = find_ledger(config, dataset)
    if not yes:
        raise ConfigurationError(
            f"--yes: expected it, as writing off cannot be undone; dataset {dataset!r} will take part in no "
            "more rounds with DP. Try sealsum silo ledger restore first"
        )
    with Journal(path, origin, identity.signing, mending=True) as journal:
        lost = unseen(journal, _seen(settings, identity, dataset), identity.pin.party)
        entry = give_up(journal, lost, origin, identity.signing, datetime.now(UTC))
    _say(
        as_json,
        f"{path}: wrote off {_named(lost)}; the ledger goes on at entry {entry.seq}, and all of its budget "
        "counts as spent",
        written_off=len(lost),
        head=entry.head,
        missing=(),
    )


def _seen(settings: SiloSettings, identity: Identity, dataset: str) -> tuple[Witness, ...]:
    """What every server of the charter in force has seen of this dataset's ledger.

    Raises:
        PeerFault: one of them does not answer; without it nobody knows what is missing.
    """
    stopping = threading.Event()
    pin = CharterPin(settings.state_dir / "charter.json", identity.pin)
    egress = egress_of(settings)
    with FederationClient(identity, settings.aggregator_url, proxy=egress) as first:
        pin.offer(ask_for_charter(first))
    delivery = Delivery(identity, pin.charter, egress, stopping)
    try:
        answers = delivery.witnessed_heads()
    finally:
        delivery.close()
    seen = open_witnessed(answers, SiloId(identity.pin.party), identity.signing.verify_key)
    return tuple(one for one in seen if one.dataset == dataset)


def _named(missing: tuple[Witness, ...]) -> str:
    return "; ".join(f"entry {one.head.seq} ({one.head.hash[:16]}…), seen by {one.server}" for one in missing)


def _say(as_json: bool, sentence: str, *, head: Head, missing: tuple[Witness, ...], **counts: int) -> None:
    if not as_json:
        click.echo(sentence)
        return
    lacking = [{"server": one.server, **one.head.model_dump(mode="json")} for one in missing]
    click.echo(json.dumps({**counts, "head": head.model_dump(mode="json"), "missing": lacking}))
