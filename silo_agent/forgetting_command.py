"""``sealsum silo forgetting``: what a job's models found of each class at best, and what they find now."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from privacy.errors import ConfigurationError
from silo_agent.ledger_options import config_option
from silo_agent.personal.following import Followed, Following, forgotten
from silo_agent.settings import read_settings


@click.command(short_help="Show what JOB's models have forgotten of each class.")
@config_option
@click.option("--job", "asked", required=True, metavar="JOB", help="Its name, or 8 digits of its digest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def forgetting(config: Path, asked: str, as_json: bool) -> None:
    """Show what JOB's models have learned and forgotten of each class, on this silo's own patients.

    Needs follow_models: true in silo.yaml while the job runs. The numbers stay here; to tell others, a
    researcher asks for a dp_evaluation, which is charged.
    """
    rounds = _rounds_of(Following(read_settings(config).state_dir), asked)
    told = forgotten(rounds)
    if as_json:
        classes = {
            str(one): {
                "best": was.best,
                "best_round": was.best_round,
                "last": was.last,
                "forgetting": was.forgetting,
            }
            for one, was in told.items()
        }
        curve = [one.model_dump(mode="json") for one in rounds]
        click.echo(json.dumps({"job": rounds[-1].job, "classes": classes, "rounds": curve}, indent=2))
        return
    whom = "held out of the job" if rounds[-1].held_out else "that the job trains on"
    table = Table(title=f"{rounds[-1].job}: recall among this silo's patients {whom}, {len(rounds)} models")
    for heading in ("class", "best", "in round", "last", "forgotten"):
        table.add_column(heading)
    for one, was in told.items():
        numbers = (f"{was.best:.3f}", str(was.best_round), f"{was.last:.3f}", f"{was.forgetting:+.3f}")
        table.add_row(str(one), *numbers)
    Console().print(table)


def _rounds_of(following: Following, asked: str) -> tuple[Followed, ...]:
    found = [
        rounds
        for digest, rounds in following.jobs().items()
        if rounds and (rounds[-1].job == asked or (len(asked) >= 8 and digest.startswith(asked)))
    ]
    if len(found) != 1:
        many = "several jobs of that name; give a digest" if found else "no round of it was followed here"
        raise ConfigurationError(
            f"--job: expected a job that this silo followed, got {asked!r}: {many} (follow_models: true in "
            "silo.yaml)"
        )
    return found[0]
