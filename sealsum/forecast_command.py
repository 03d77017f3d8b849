"""``sealsum budget forecast``: a job file before a silo's ledgers, ahead of anybody signing or reserving."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from privacy.errors import ConfigurationError
from privacy.ids import SiloId
from privacy.keystore import load_identity
from sealsum.budget_forecast import MOST_ROUNDS, Asked, Forecast, Room, asked_of, forecast
from sealsum.job_file import read_job_file
from silo_agent.ledger.admission import Costs, Quote
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.entries import EpsilonCaps, FallbackCaps
from silo_agent.ledger.export import ReadLedger, read_export
from silo_agent.ledger.ledger import ledger_origin, read_account


@click.command("forecast")
@click.option(
    "--job",
    "job_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="job.yaml, as sealsum job submit takes it.",
)
@click.option(
    "--state",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A silo's state directory: the ledger of the job's dataset is read from it.",
)
@click.option(
    "--ledger",
    "ledgers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="An exported ledger (sealsum silo ledger --export). Repeat it for datasets that share patients.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def forecast_job(job_file: Path, state: Path | None, ledgers: tuple[Path, ...], as_json: bool) -> None:
    """Say what a job would cost a silo, what is left, and how many rounds fit at which noise."""
    file = read_job_file(job_file)
    asked = asked_of(file.job, file.dataset, file.rounds, file.dp, file.training)
    now = datetime.now(UTC)
    found = [(one.origin, forecast(asked, one.account, now)) for one in _ledgers(asked, state, ledgers)]
    if as_json:
        click.echo(json.dumps(_document(asked, found), indent=2))
        return
    click.echo(
        f"{asked.job}: {asked.rounds:,} rounds of {asked.event.steps} steps, "
        f"q = {asked.event.sample_rate:g}, σ = {asked.event.noise_multiplier:g}, δ = {asked.delta:g}"
    )
    for origin, one in found:
        _print(origin, asked, one)


def _ledgers(asked: Asked, state: Path | None, files: Sequence[Path]) -> list[ReadLedger]:
    """Those that the job would be charged to, verified.

    Raises:
        ConfigurationError: none is of the job's dataset. LedgerDamaged: one does not verify.
    """
    read = [read_export(file) for file in files]
    if state is not None:
        identity = load_identity(state)
        key = identity.signing.verify_key
        origin = ledger_origin(identity.pin.federation, SiloId(identity.pin.party), asked.dataset)
        account, entries = read_account(ledger_path(state, asked.dataset), origin, key)
        read.append(ReadLedger(origin, key, entries[-1].head, account))
    if not any(one.account.opening and one.account.opening.dataset == asked.dataset for one in read):
        given = ", ".join(one.origin for one in read) or "none"
        raise ConfigurationError(
            f"--ledger: expected a ledger of dataset {asked.dataset}, got {given}; name --state DIR, or "
            "a file that sealsum silo ledger --export wrote"
        )
    return read


def _document(asked: Asked, found: Sequence[tuple[str, Forecast]]) -> dict[str, Any]:
    return {
        "job": asked.job,
        "dataset": asked.dataset,
        "rounds": asked.rounds,
        "steps_per_round": asked.event.steps,
        "sample_rate": asked.event.sample_rate,
        "noise_multiplier": asked.event.noise_multiplier,
        "noise_multiplier_alone": (asked.fallback or asked.event).noise_multiplier,
        "delta": asked.delta,
        "admitted": not any(one.refused_by for _, one in found),
        "ledgers": [_ledger_document(origin, asked, one) for origin, one in found],
    }


def _ledger_document(origin: str, asked: Asked, one: Forecast) -> dict[str, Any]:
    return {
        "ledger": origin,
        "cost": {
            "epsilon": {"round": one.after.epsilon.round, "job": one.after.epsilon.job},
            "epsilon_fallback": {"round": one.after.fallback.round, "job": one.after.fallback.job},
            "delta": asked.delta,
        },
        "left_before": _left(one, one.before),
        "left_after": _left(one, one.after),
        "admitted": not one.refused_by,
        "refused_by": one.refused_by or None,
        "rounds_left": [_room_document(room) for room in one.rooms],
    }


def _left(one: Forecast, at: Quote) -> dict[str, Any]:
    """Caps less costs; below 0 where the job does not fit."""
    caps = one.opening.epsilon
    return {
        "epsilon": _left_of(caps, at.epsilon),
        "epsilon_fallback": _left_of(caps.of_fallback, at.fallback),
        "delta": one.opening.delta_max - at.delta,
    }


def _left_of(caps: EpsilonCaps | FallbackCaps, costs: Costs) -> dict[str, float | None]:
    return {
        "round": caps.round - costs.round,
        "job": caps.job - costs.job,
        "period": None if caps.period is None else caps.period - costs.period,
        "lifetime": caps.lifetime - costs.lifetime,
    }


def _room_document(room: Room) -> dict[str, Any]:
    return {
        "noise_multiplier": room.noise_multiplier,
        "rounds": room.rounds,
        "at_least": not room.cap,
        "next_refused_by": room.cap or None,
        "epsilon": room.epsilon,
        "epsilon_fallback": room.fallback,
    }


def _print(origin: str, asked: Asked, one: Forecast) -> None:
    verdict = f"refused: {one.refused_by} would be passed" if one.refused_by else "admitted"
    click.echo(f"{origin}: {verdict}")
    table = Table()
    for heading in ("", "of the job", "left before", "left after"):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    caps = one.opening.epsilon
    for name, costs, before, after in (
        ("ε", one.after.epsilon, _left_of(caps, one.before.epsilon), _left_of(caps, one.after.epsilon)),
        (
            "ε_fallback",
            one.after.fallback,
            _left_of(caps.of_fallback, one.before.fallback),
            _left_of(caps.of_fallback, one.after.fallback),
        ),
    ):
        cost = {"round": costs.round, "job": costs.job}
        for span, remains in after.items():
            if remains is not None:
                shown = _rounded_up(cost[span]) if span in cost else ""
                table.add_row(f"{name} {span}", shown, _number(before[span]), _number(remains))
    left, kept = one.opening.delta_max - one.before.delta, one.opening.delta_max - one.after.delta
    table.add_row("δ", f"{asked.delta:g}", f"{left:g}", f"{kept:g}")
    Console().print(table)
    click.echo("Rounds that fit, on top of what is reserved:")
    rooms = Table()
    for heading in ("σ", "rounds", "ε", "ε_fallback", "then"):
        rooms.add_column(heading, justify="left" if heading == "then" else "right", overflow="fold")
    for room in one.rooms:
        rounds = f"{room.rounds:,}" if room.cap else f"{MOST_ROUNDS:,} or more"
        cells = _rounded_up(room.epsilon), _rounded_up(room.fallback), room.cap
        rooms.add_row(f"{room.noise_multiplier:g}", rounds, *cells)
    Console().print(rooms)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _rounded_up(value: float) -> str:
    """Four decimals, never below what was computed."""
    return f"{math.ceil(value * 10**4) / 10**4:.4f}"
