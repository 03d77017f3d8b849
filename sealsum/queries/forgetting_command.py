"""``sealsum query forgetting``: what models forgot of each class, from charged evaluations."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sealsum.queries.asked import answer_of
from sealsum.queries.forgetting import BIASED, charged_in_all, forgetting
from sealsum.researcher_options import AGGREGATOR, JSON, PROXY, STATE
from sealsum.sdk import Federation
from silo_agent.transport import FederationClient


@click.command("forgetting")
@click.argument("names", metavar="JOB JOB...", nargs=-1, required=True)
@STATE
@AGGREGATOR
@PROXY
@JSON
def forgetting_of(
    names: tuple[str, ...], state: Path, url: str | None, proxy: str | None, as_json: bool
) -> None:
    """Show what models have forgotten of each class, summed over silos.

    JOBs are evaluations of yours with {kind: confusion}, one a model, in the models' order. Each was charged
    when it was asked; comparing them costs nothing more.
    """
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        handles = [federation.job(name) for name in names]
        charged = charged_in_all([handle.spec for handle in handles])
        answers = [answer_of(handle) for handle in handles]
    told = forgetting(answers)
    if as_json:
        click.echo(json.dumps({"jobs": list(names), "charged": charged, "classes": told, "note": BIASED}))
        return
    table = Table(
        title=f"Recall over {len(names)} models; charged ε = {charged['epsilon']:g} each silo, in all"
    )
    for heading in ("class", "best", "in", "last", "forgotten", "95 %"):
        table.add_column(heading)
    for one in told:
        if one["forgetting"] is None:
            table.add_row(one["label"], "–", "–", "–", "–", one["note"])
            continue
        low, high = one["forgetting"]["interval_95"]
        numbers = (one["best"]["estimate"], one["last"]["estimate"], one["forgetting"]["estimate"])
        best, last, lost = (f"{number:.3f}" for number in numbers)
        table.add_row(one["label"], best, one["best_in"], last, lost, f"{low:+.3f} … {high:+.3f}")
    Console().print(table)
    click.echo(BIASED)
