"""``sealsum silo jobs|show|approve|reject``: where a person at the silo reads about jobs and decides."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privacy.identity import SigningKey
from privacy.keystore import load_identity, read_secret
from privacy.people import PERSON_ROLES, PersonRole
from silo_agent.approvals.registry import Decided, Listed, Registry
from silo_agent.approvals.sentences import as_text, on_one_line, sentences_of
from silo_agent.ledger_commands import config_option
from silo_agent.settings import read_settings

_DAYS = 30
_HEADINGS = ("job", "researcher", "purpose", "dataset, by", "ε asked of left", "until", "state")
_WIDE = 110
"""Columns from which they fit side by side."""
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
_KEY = click.option(
    "--key",
    "key_file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Your own key file (sealsum keys new).",
)
_AS = click.option("--as", "name", required=True, help="Your name under people in silo.yaml.")
_ROLE = click.option(
    "--role", type=click.Choice(PERSON_ROLES), help="In which of your roles; the first that may if left out."
)
_REASON = click.option("--reason", default="", help="For the record; it stays at this silo.")


def _registry(config: Path) -> Registry:
    settings = read_settings(config)
    return Registry(settings, load_identity(settings.state_dir))


@click.command(short_help="List the jobs that this silo was shown.")
@config_option
@click.option("--all", "ended", is_flag=True, help="Also jobs that have ended.")
@_JSON
def jobs(config: Path, ended: bool, as_json: bool) -> None:
    """List the jobs that this silo was shown: who asks, what it costs, where each stands."""
    listed, unread = _registry(config).all(datetime.now(UTC), ended)
    if as_json:
        click.echo(json.dumps({"jobs": [_plain(one) for one in listed], "unread": list(unread)}, indent=2))
        return
    for fault in unread:
        click.echo(f"not shown: {on_one_line(fault)}", err=True)
    console = Console()
    if console.width < _WIDE:
        for one in listed:
            console.print(_in_lines(one), soft_wrap=True)
        return
    table = Table(title="Jobs")
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for one in listed:
        # A researcher's words are no markup either.
        table.add_row(*(Text(on_one_line(cell)) for cell in _row(one)))
    console.print(table)


@click.command(short_help="Say all that a person needs to decide about JOB.")
@click.argument("asked", metavar="JOB")
@config_option
@_JSON
def show(asked: str, config: Path, as_json: bool) -> None:
    """Say all that a person needs to decide about JOB: what is trained, on which data, at which cost.

    JOB is its name, or the first 8 digits of its digest.
    """
    registry = _registry(config)
    listed = registry.one(asked, datetime.now(UTC))
    parts = sentences_of(listed.case, listed.standing, registry.office)
    if as_json:
        said = [{"heading": heading, "sentences": list(said)} for heading, said in parts]
        click.echo(json.dumps({**_plain(listed), "says": said}, indent=2, ensure_ascii=False))
        return
    click.echo(as_text(parts))


@click.command(short_help="Approve JOB as it is.")
@click.argument("asked", metavar="JOB")
@config_option
@_KEY
@_AS
@_ROLE
@click.option(
    "--expires",
    "days",
    type=click.IntRange(1, 366),
    default=_DAYS,
    show_default=True,
    help="Days until the approval ends; the job stops at the next round.",
)
@_REASON
@_JSON
def approve(
    asked: str,
    config: Path,
    key_file: Path,
    name: str,
    role: str | None,
    days: int,
    reason: str,
    as_json: bool,
) -> None:
    """Approve JOB as it is: a job with any other term needs another approval.

    Exits 3 if you may not (you asked for it yourself, or lack the role), or if it would be refused anyway.
    """
    _decide("approve", asked, config, key_file, name, role, days, reason, as_json)


@click.command(short_help="Reject JOB, also while it runs.")
@click.argument("asked", metavar="JOB")
@config_option
@_KEY
@_AS
@_ROLE
@_REASON
@_JSON
def reject(
    asked: str, config: Path, key_file: Path, name: str, role: str | None, reason: str, as_json: bool
) -> None:
    """Reject JOB; if it runs already, this silo takes no part in its next round."""
    _decide("reject", asked, config, key_file, name, role, _DAYS, reason, as_json)


def _decide(
    decision: Literal["approve", "reject"],
    asked: str,
    config: Path,
    key_file: Path,
    name: str,
    role: str | None,
    days: int,
    reason: str,
    as_json: bool,
) -> None:
    registry = _registry(config)
    now = datetime.now(UTC)
    listed = registry.one(asked, now)
    key = SigningKey.from_pem(read_secret(key_file))
    decided = registry.decide(listed, decision, name, key, now, days, reason, cast("PersonRole | None", role))
    if as_json:
        click.echo(json.dumps(_said(decided), indent=2))
        return
    click.echo(
        f"{decided.file}: {decision} of job {listed.case.spec.job} by {name} ({decided.approval.role})"
    )
    click.echo(f"It stands: {decided.standing.state}; {decided.standing.why}.")


def _said(decided: Decided) -> dict[str, Any]:
    return {
        "file": decided.file,
        "approval": decided.approval.model_dump(mode="json"),
        "standing": {"state": decided.standing.state, "why": decided.standing.why},
    }


def _row(one: Listed) -> tuple[str, ...]:
    terms, costs = one.case.request.terms, one.case.costs
    left = f"{costs[-1].lifetime - costs[-1].before.lifetime:.3g}" if costs else "nothing"
    return (
        terms.job,
        one.case.request.researcher.id,
        one.case.request.purpose,
        f"{terms.dataset}, {terms.algorithm}",
        "no DP" if terms.epsilon_job is None else f"{terms.epsilon_job:.3g} of {left}",
        one.standing.until[:10],
        one.state,
    )


def _in_lines(one: Listed) -> Text:
    """A job where a table would break words: its name and state, then what the other columns say."""
    job, *between, state = (on_one_line(cell) for cell in _row(one))
    told = [f"  {heading}: {cell}" for heading, cell in zip(_HEADINGS[1:-1], between, strict=True)]
    return Text("\n".join([f"{job}: {state}", *told]))


def _plain(one: Listed) -> dict[str, Any]:
    case, researcher = one.case, one.case.request.researcher
    return {
        **case.request.terms.model_dump(mode="json"),
        "purpose": case.request.purpose,
        "researcher": researcher.id,
        "legal_entity": researcher.legal_entity,
        "state": one.state,
        "why": one.standing.why,
        "until": one.standing.until or None,
        "would_be_refused": [
            {
                "rule": finding.rule,
                "sentence": finding.sentence,
                "expected": finding.expected,
                "got": finding.got,
            }
            for finding in case.findings
        ],
        "costs": [
            {
                "dataset": cost.dataset,
                "epsilon_round": cost.after.round,
                "epsilon_job": cost.after.job,
                "epsilon_lifetime_before": cost.before.lifetime,
                "epsilon_lifetime_after": cost.after.lifetime,
                "epsilon_lifetime_cap": cost.lifetime,
                "rounds_left": cost.rounds_left,
                "rounds_that_fit": cost.rounds_fit,
                "refused_by": cost.refused_by or None,
            }
            for cost in case.costs
        ],
    }
