"""``sealsum synthesise``: made-up records from the answer to a charged query, free of further ε."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path

import click

from privacy.errors import ConfigurationError
from sealsum.queries.file import read_query_file
from sealsum.queries.given import read_answer_file
from sealsum.queries.synthetic import METHOD, synthetic_table


@click.command()
@click.argument("query_file", metavar="QUERY.yaml", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--from",
    "answer",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The query's answer, as sealsum query show JOB --json printed it.",
)
@click.option("--records", required=True, type=click.IntRange(1, 10_000_000), help="How many to draw.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV to write; OUT.json too.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Public.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def synthesise(query_file: Path, answer: Path, records: int, out: Path, seed: int, as_json: bool) -> None:
    """Draw made-up records from the answer to QUERY.yaml; they cost nothing beyond what the query did.

    OUT.json says which query they come from, what it was charged, and the table's digest for public_data.
    """
    manifest_path = out.with_name(f"{out.name}.json")
    for path in (out, manifest_path):
        if path.exists():
            raise ConfigurationError(f"{path}: exists already; choose another file")
    query = read_query_file(query_file)
    given = read_answer_file(answer, query)
    header, rows = synthetic_table(given, query.data, records, seed)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    raw = text.getvalue().encode()
    manifest = {
        "table": out.name,
        "digest": hashlib.sha256(raw).hexdigest(),
        "records": records,
        "seed": seed,
        "schema": query.data.digest,
        "method": METHOD,
        "query": {"job": given.job, "dataset": query.dataset, "silos": given.silos, "answer": given.digest},
        "charged_already": given.privacy,
        "epsilon": 0.0,
    }
    out.write_bytes(raw)
    manifest_path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    if as_json:
        click.echo(json.dumps(manifest))
        return
    click.echo(
        f"{out}: {records} records from the answer to {given.job} (charged already: ε = "
        f"{given.privacy.get('epsilon')}); no further ε"
    )
    click.echo(f"  public_data: {{file: {out.name}, digest: {manifest['digest']}}}")
