"""``sealsum aggregator drain``, ``hold``, ``expire``, ``gc`` and what undoes them: upkeep while it runs.

Each asks the server as a person with a role for it; the server decides, and logs who asked and why.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import click

from sealsum.login.options import calling, person_client

_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
_REASON = click.option("--reason", required=True, help="Why, such as a ticket or file number; it is logged.")


@click.command(short_help="Begin no new jobs, or rounds, until resume.")
@calling
@click.option(
    "--rounds",
    is_flag=True,
    help="Hold running jobs too, once their open round has ended; else new jobs only.",
)
@_REASON
@_JSON
def drain(rounds: bool, reason: str, as_json: bool, **who: Any) -> None:
    """Begin nothing new, also over restarts; what runs goes on to its end. Jobs can still be submitted."""
    with person_client(**who) as client:
        stands = client.post("/v1/drain", {"what": "rounds" if rounds else "jobs", "reason": reason})
    _say(stands, as_json)


@click.command(short_help="End a drain: new jobs and rounds begin again.")
@calling
@_JSON
def resume(as_json: bool, **who: Any) -> None:
    """Begin new jobs and rounds again."""
    with person_client(**who) as client:
        client.delete("/v1/drain")
        stands = client.get("/v1/upkeep")
    _say(stands, as_json)


@click.command(short_help="Put a job's evidence under a legal hold.")
@click.argument("job")
@calling
@_REASON
@_JSON
def hold(job: str, reason: str, as_json: bool, **who: Any) -> None:
    """Keep all that the aggregator has of JOB, whatever its age. Shares of updates go with their round."""
    with person_client(**who) as client:
        stands = client.post("/v1/holds", {"job": job, "reason": reason})
    _say(stands, as_json)


@click.command(short_help="End the legal hold on a job.")
@click.argument("job")
@calling
@_JSON
def release(job: str, as_json: bool, **who: Any) -> None:
    """End the legal hold on JOB, as a DPO or security officer; nothing is deleted by that."""
    with person_client(**who) as client:
        client.delete(f"/v1/holds/{quote(job, safe='')}")
        stands = client.get("/v1/upkeep")
    _say(stands, as_json)


@click.command(short_help="Delete what is kept of old jobs, as far as nothing keeps it.")
@calling
@click.option(
    "--older-than",
    "days",
    required=True,
    type=click.IntRange(0, 36525),
    metavar="DAYS",
    help="Since its end.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_JSON
def expire(days: int, dry_run: bool, as_json: bool, **who: Any) -> None:
    """Delete models, messages and answers of jobs that ended longer ago; export their packs before.

    What a legal hold or the job's own threat model keeps stays, by name. The log's tree stays as it is.
    """
    with person_client(**who) as client:
        done = client.post("/v1/expire", {"older_than_days": days, "dry_run": dry_run})
    if as_json:
        click.echo(json.dumps(done))
        return
    for job in done["expired"]:
        click.echo(f"{job}: {'would be deleted' if done['dry_run'] else 'deleted'}")
    for one in done["kept"]:
        click.echo(f"{one['job']}: kept ({one['why']})")
    if not done["expired"] and not done["kept"]:
        click.echo("no ended job is that old")


@click.command(short_help="Delete stored bytes that the database does not know.")
@calling
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@_JSON
def gc(dry_run: bool, as_json: bool, **who: Any) -> None:
    """Delete now what a crash left of parts and models, older than collect_after_s; the server does it by
    itself every collect_every_s. Never what its database knows; what is missing of that is listed.
    """
    with person_client(**who) as client:
        done = client.post("/v1/collect", {"dry_run": dry_run})
    if as_json:
        click.echo(json.dumps(done))
        return
    for name in done["names"]:
        click.echo(f"{name}: {'would be deleted' if done['dry_run'] else 'deleted'}")
    for name in done["missing"]:
        click.echo(f"{name}: missing; restore it from a backup, or put it again")
    if not done["names"] and not done["missing"]:
        click.echo("nothing is stored that the database does not know")


@click.command(short_help="Show whether new work is held back, and which jobs are.")
@calling
@_JSON
def upkeep(as_json: bool, **who: Any) -> None:
    """Show the drain that stands, if one does, and all legal holds."""
    with person_client(**who) as client:
        stands = client.get("/v1/upkeep")
    _say(stands, as_json)


def _say(stands: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(stands))
        return
    drained = stands["drain"]
    if drained is None:
        click.echo("new jobs and rounds begin")
    else:
        click.echo(
            f"no new {drained['what']} since {_day(drained['at'])}, by {drained['by']}: {drained['reason']}"
        )
    for one in stands["holds"]:
        click.echo(f"{one['job']}: held since {_day(one['at'])}, by {one['by']}: {one['reason']}")


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
