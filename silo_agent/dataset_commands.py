"""``sealsum silo datasets``: what this silo has registered, for which purposes, and what is left of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from privacy.keystore import load_identity
from silo_agent.ledger.statement import statement_of
from silo_agent.ledger_commands import config_option
from silo_agent.own_policy import load_own_policy
from silo_agent.registration import least_records, registration_digest
from silo_agent.settings import SiloSettings, read_settings


@click.command(short_help="List registered datasets and how much ε each has spent.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def datasets(config: Path, as_json: bool) -> None:
    """List registered datasets: purpose, legal basis, patient column, least records, ε spent."""
    settings = read_settings(config)
    statement = statement_of(settings, load_identity(settings.state_dir), datetime.now(UTC))
    registered = {name: _plain(name, settings, statement["datasets"][name]) for name in settings.datasets}
    if as_json:
        click.echo(json.dumps({"silo": statement["silo"], "datasets": registered}, indent=2))
        return
    table = Table(title=f"Datasets of {statement['silo']}")
    for heading in ("dataset", "purposes", "legal basis", "patients by", "least records", "ε spent", "jobs"):
        table.add_column(heading)
    for name, one in registered.items():
        table.add_row(
            name,
            "; ".join(one["purposes"]),
            one["legal_basis"] or "none stated",
            one["patient_id"],
            str(one["min_records"]),
            f"{one['epsilon']['spent']:.3g} of {one['epsilon']['lifetime']:g}",
            str(one["jobs"]),
        )
    Console().print(table)


def _plain(name: str, settings: SiloSettings, account: dict[str, Any]) -> dict[str, Any]:
    """Where the data lie is not said: jobs name datasets, never paths."""
    dataset = settings.datasets[name]
    return {
        "registration": registration_digest(name, dataset),
        "purposes": list(dataset.purpose),
        "legal_basis": dataset.legal_basis,
        "patient_id": dataset.patient_id,
        "unit": account["unit"],
        "min_records": least_records(dataset, (load_own_policy(settings),)),
        "schemas": list(dataset.schemas),
        "patients_also_in": list(dataset.patients_also_in),
        "epsilon": {
            "spent": account["spent"]["epsilon"],
            "lifetime": account["caps"]["epsilon"]["lifetime"],
            "job": account["caps"]["epsilon"]["job"],
        },
        "jobs": len(account["jobs"]),
    }
