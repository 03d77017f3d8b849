"""``sealsum query draw``: an answer as a picture."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from sealsum.queries.asked import answer_of
from sealsum.queries.picture import save_picture
from sealsum.sdk import Federation
from silo_agent.transport import FederationClient


@click.command()
@click.argument("name", metavar="JOB")
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The researcher's own directory, as enrolment left it.",
)
@click.option("--aggregator", "url", metavar="URL", help="https:// address; else the charter's.")
@click.option("--proxy", metavar="URL", help="Proxy to dial through; else HTTPS_PROXY.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Picture to write: .png, .svg or .pdf.",
)
def draw(name: str, state: Path, url: str | None, proxy: str | None, out: Path) -> None:
    """Wait for a query's answer and draw it: histograms with error bars, ROC curve, calibration."""
    with Federation.connect(
        state, aggregator_url=url, dial=partial(FederationClient, proxy=proxy)
    ) as federation:
        answer = answer_of(federation.job(name))
    save_picture(answer, out)
    click.echo(f"{out}: drawn", err=True)
