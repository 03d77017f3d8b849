"""``sealsum silo fit``: what of a dataset a job's schema has no place for, shown to the data's owner alone.

A job under DP passes over what does not fit and tells nobody, so this is where its owner learns of it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privacy.keystore import load_identity
from silo_agent.approvals.registry import Registry
from silo_agent.approvals.sentences import on_one_line
from silo_agent.data.misfits import PassedOver
from silo_agent.data.records import Records
from silo_agent.data.sources import read_dataset
from silo_agent.ledger.books import ledger_unit
from silo_agent.ledger_options import config_option
from silo_agent.own_policy import load_own_policy
from silo_agent.queries.question import schema_read
from silo_agent.registration import least_records, registered_for
from silo_agent.settings import read_settings


@click.command(short_help="Say which of this silo's records do not fit JOB's schema.")
@config_option
@click.option("--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def fit(config: Path, asked: str, as_json: bool) -> None:
    """Say which of this silo's records do not fit JOB's schema, and why; no cell is shown.

    Under DP cells that do not fit count as missing, and records without a usable patient or label are left
    out, without a word to anybody outside. Without DP the first of them ends the round for this silo. The
    counts are as secret as the records: they stay here and cost no privacy budget.
    """
    settings = read_settings(config)
    listed = Registry(settings, load_identity(settings.state_dir)).one(asked, datetime.now(UTC))
    spec = listed.case.spec
    own = load_own_policy(settings)
    dataset = registered_for(settings.datasets, ledger_unit(own), spec)
    most = 1 if spec.dp is None else spec.dp.records_per_unit
    unit = "record" if spec.dp is None else spec.dp.unit
    misfits = PassedOver()
    records = read_dataset(dataset, schema_read(spec), unit, most, misfits)
    enough = (records.listed or 0) >= least_records(dataset, (own,))
    if as_json:
        click.echo(json.dumps(_plain(spec.job, unit, records, misfits, enough), indent=2, ensure_ascii=False))
        return
    Console().print(_table(spec.job, unit, records, misfits, enough))


def _plain(job: str, unit: str, records: Records, misfits: PassedOver, enough: bool) -> dict[str, object]:
    def told(among: dict[tuple[str | None, str], int]) -> list[dict[str, object]]:
        return [{"column": column, "why": why, "count": count} for (column, why), count in among.items()]

    return {
        "job": job,
        "unit": unit,
        "units_listed": records.listed,
        "units_that_fit": records.unit_count,
        "as_many_as_the_minimum": enough,
        "cells_that_count_as_missing": told(misfits.cells),
        "records_left_out": told(misfits.records),
    }


def _table(job: str, unit: str, records: Records, misfits: PassedOver, enough: bool) -> Table:
    least = "at least the minimum" if enough else "fewer than the minimum: the silo takes no part"
    table = Table(
        title=f"{job}, here",
        caption=f"{records.unit_count} of {records.listed} {unit}s fit; {least}. These counts stay here.",
    )
    for heading in ("column", "why", "becomes"):
        table.add_column(heading, overflow="fold")
    table.add_column("how many", justify="right")
    for among, becomes in ((misfits.cells, "missing"), (misfits.records, "left out")):
        for (column, why), count in among.items():
            # A researcher's words are no markup.
            table.add_row(Text(on_one_line(column or "")), Text(on_one_line(why)), becomes, str(count))
    return table
