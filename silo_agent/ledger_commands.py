"""``sealsum silo budget`` and ``sealsum silo ledger``: read-only, safe beside a running agent."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.console import Console
from rich.table import Table

from privacy.canonical import canonical_bytes
from privacy.chain import Entry
from privacy.keystore import load_identity
from silo_agent.cli import SiloGroup
from silo_agent.ledger.export import exported
from silo_agent.ledger.ledger import read_account
from silo_agent.ledger.statement import statement_of
from silo_agent.ledger_options import config_option as config_option  # others import it from here
from silo_agent.ledger_options import find_ledger
from silo_agent.settings import read_settings


@click.command(short_help="Show what each privacy budget was spent on, and what is left.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def budget(config: Path, as_json: bool) -> None:
    """Show what each dataset's privacy budget has been spent on, and what is left."""
    settings = read_settings(config)
    statement = statement_of(settings, load_identity(settings.state_dir), datetime.now(UTC))
    if as_json:
        click.echo(json.dumps(statement, indent=2))
        return
    Console().print(_budget_table(statement))


def _budget_table(statement: dict[str, Any]) -> Table:
    table = Table(title=f"Privacy budget of {statement['silo']} ({statement['federation']})")
    for heading in ("dataset", "job", "rounds", "ε", "ε fallback", "δ", "ε left", "δ left"):
        table.add_column(heading, overflow="fold")
    for name, dataset in statement["datasets"].items():
        for job in dataset["jobs"]:
            table.add_row(
                name,
                job["job"],
                str(job["rounds"]),
                f"{job['epsilon']:.3f}",
                f"{job['epsilon_fallback']:.3f}",
                f"{job['delta']:g}",
            )
        spent, left, caps = dataset["spent"], dataset["remaining"], dataset["caps"]
        table.add_row(
            name,
            "all",
            str(spent["rounds"]),
            f"{spent['epsilon']:.3f} of {caps['epsilon']['lifetime']:g}",
            f"{spent['epsilon_fallback']:.3f} of {caps['epsilon_fallback']['lifetime']:g}",
            f"{spent['delta']:g} of {caps['delta']:g}",
            f"{left['epsilon']:.3f}",
            f"{left['delta']:g}",
            style="bold",
        )
    return table


class LedgerGroup(SiloGroup):
    """The commands under ``ledger``: what mends one dials out, what shows one does not."""

    lazy: ClassVar[dict[str, str]] = {
        "restore": "silo_agent.recovery_commands",
        "write-off": "silo_agent.recovery_commands",
    }


@click.group(
    cls=LedgerGroup,
    invoke_without_command=True,
    short_help="Verify, show, restore or write off a dataset's ledger.",
)
@config_option
@click.option("--dataset", help="Name of a dataset in the settings.")
@click.option(
    "--json", "as_json", is_flag=True, help="The entries as they stand, one a line: what a pack takes."
)
@click.option(
    "--export",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write entries, verify key and statement to one file, which verifies offline.",
)
@click.pass_context
def ledger(
    context: click.Context, config: Path, dataset: str | None, as_json: bool, target: Path | None
) -> None:
    """Verify a dataset's ledger from its first entry, and show it. Exits 5 if it does not verify."""
    if context.invoked_subcommand is not None:
        return
    if dataset is None:
        raise click.UsageError("Missing option '--dataset'.")
    _, identity, path, origin = find_ledger(config, dataset)
    _, entries = read_account(path, origin, identity.signing.verify_key)
    if target is not None:
        key = identity.signing.verify_key
        target.write_bytes(exported(origin, key, entries, datetime.now(UTC)))
        click.echo(f"{target}: {len(entries)} entries of {origin}, key {key}", err=True)
    if as_json:
        for entry in entries:
            sys.stdout.buffer.write(canonical_bytes(entry) + b"\n")
        sys.stdout.flush()
    if as_json or target is not None:
        return
    table = Table(title=f"{origin}: {len(entries)} entries, every link and signature verified")
    for heading in ("seq", "at", "kind", "job", "round", "context"):
        table.add_column(heading)
    for entry in entries:
        table.add_row(*_ledger_row(entry))
    Console().print(table)


def _ledger_row(entry: Entry) -> tuple[str, ...]:
    body = entry.body
    context = str(body.get("context", ""))[:16]
    rounds = str(body.get("round", ""))
    if "first_round" in body:
        rounds = f"{body['first_round']} to {body['last_round']}"
    job = body.get("job", str(body.get("job_digest", ""))[:16])
    return str(entry.seq), entry.at, entry.kind, job, rounds, context
