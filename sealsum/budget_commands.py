"""``sealsum budget``: what a schedule costs and what noise it needs, before anybody signs or reserves it.

Reads no data, and ledgers only where ``forecast`` is given one; ``sealsum silo budget`` shows what was spent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

import click
from pydantic import Field, ValidationError
from rich.console import Console
from rich.table import Table

from privacy.canonical import Frozen, Real
from privacy.dp.accountant import Price, price
from privacy.dp.calibration import calibrated_noise
from privacy.dp.events import ADJACENCIES, Adjacency, CappedEvent, DpEvent, Event, Stated
from privacy.errors import ConfigurationError
from sealsum.forecast_command import forecast_job

_MOST_COUNT = 10**7
_LEAST_RATE, _LEAST_NOISE, _MOST_NOISE = 1e-9, 1e-2, 1e6
"""Bounds of what is priced: no job comes near them, and within them an answer takes seconds."""
_Count = Annotated[int, Field(strict=True, ge=1, le=_MOST_COUNT)]

_COUNT = f"a whole number from 1 to {_MOST_COUNT:,}"
_EXPECTED: dict[str, str] = {
    "q": f"a number from {_LEAST_RATE:g} to 1, the probability with which a step draws one unit",
    "sigma": f"a number from {_LEAST_NOISE:g} to {_MOST_NOISE:g}, the noise's deviation over the clip norm",
    "steps": _COUNT,
    "cap": f"{_COUNT}, the most units that a step uses, together with units_at_most",
    "units_at_most": f"{_COUNT}, a public bound of the number of units, together with cap",
    "adjacency": f"{' or '.join(ADJACENCIES)}",
}
_EXAMPLE = '\'{"q": 0.01, "sigma": 1.0, "steps": 20000}\''

_ACCOUNTANTS = {
    "gaussian": "exact for full batches (Gaussian DP)",
    "pld": "privacy-loss distributions",
    "rdp": "Rényi DP",
}


class EventOption(Frozen):
    """One ``--event``."""

    q: Annotated[Real, Field(ge=_LEAST_RATE, le=1)]
    sigma: Annotated[Real, Field(ge=_LEAST_NOISE, le=_MOST_NOISE)]
    steps: _Count
    cap: _Count | None = None
    units_at_most: _Count | None = None
    adjacency: Adjacency | None = None

    def event(self) -> Event:
        """What it stands for."""
        if self.cap is None or self.units_at_most is None:
            return DpEvent(sample_rate=self.q, noise_multiplier=self.sigma, steps=self.steps)
        return CappedEvent(
            sample_rate=self.q,
            noise_multiplier=self.sigma,
            steps=self.steps,
            batch_cap=self.cap,
            units_at_most=self.units_at_most,
        )


@click.group()
def budget() -> None:
    """Price a schedule in ε, find the noise for a target ε, or put a job before a silo's ledger."""


budget.add_command(forecast_job)

_DELTA = click.option("--delta", type=float, required=True, help="Less than 1 / number of units.")
_ADJACENCY = click.option(
    "--adjacency",
    type=click.Choice(ADJACENCIES),
    default="add_remove",
    show_default=True,
    help="What makes two datasets neighbours; never mixed in one price.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@budget.command("price")
@click.option(
    "--event",
    "events",
    metavar="JSON",
    multiple=True,
    required=True,
    help=f"Steps with one rate and noise, for example {_EXAMPLE}; also cap and units_at_most. Repeatable.",
)
@_DELTA
@_ADJACENCY
@_JSON
def price_schedule(events: tuple[str, ...], delta: float, adjacency: Adjacency, as_json: bool) -> None:
    """Say what a schedule of DP steps costs."""
    stated = [_stated(number, text, adjacency) for number, text in enumerate(events, start=1)]
    cost = price(stated, delta, adjacency)
    if as_json:
        click.echo(json.dumps(_plain(cost)))
        return
    click.echo(f"At δ = {delta:g}, {adjacency}:")
    table = Table()
    for heading in ("q", "σ", "steps"):
        table.add_column(heading, justify="right")
    for event in (one.event for one in stated):
        table.add_row(f"{event.sample_rate:.10g}", f"{event.noise_multiplier:.10g}", f"{event.steps:,}")
    Console().print(table)
    _print_cost(cost)


@budget.command("calibrate")
@click.option("--epsilon", type=float, required=True, help="Most ε that all steps may cost.")
@_DELTA
@click.option("--q", "rate", type=float, required=True, help="Sampling rate; 1 is the full batch.")
@click.option("--steps", type=int, required=True)
@_ADJACENCY
@_JSON
def calibrate(
    epsilon: float, delta: float, rate: float, steps: int, adjacency: Adjacency, as_json: bool
) -> None:
    """Find the noise at which steps cost at most a target ε, and hardly less."""
    for field, given, valid in (
        ("q", rate, _LEAST_RATE <= rate <= 1),
        ("steps", steps, 1 <= steps <= _MOST_COUNT),
    ):
        if not valid:
            raise ConfigurationError(f"--{field}: expected {_EXPECTED[field]}; got {given!r}; correct it")
    found = calibrated_noise(epsilon, delta, rate, steps, adjacency)
    if as_json:
        click.echo(json.dumps({"sigma": found.noise_multiplier, **_plain(found.price)}))
        return
    click.echo(
        f"σ = {found.noise_multiplier:g} for {steps:,} steps at q = {rate:g}, δ = {delta:g}, {adjacency}"
    )
    _print_cost(found.price)


def _stated(number: int, text: str, adjacency: Adjacency) -> Stated:
    """Read one ``--event``.

    Raises:
        ConfigurationError: naming the field, what was expected and what came.
    """
    where = f"--event {number}"
    try:
        given = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise ConfigurationError(
            f"{where}: expected a JSON object such as {_EXAMPLE}, got {text[:80]!r} ({error}); correct it"
        ) from error
    if not isinstance(given, dict):
        raise ConfigurationError(
            f"{where}: expected a JSON object such as {_EXAMPLE}, got {text[:80]!r}; correct it"
        )
    unknown = sorted(set(given) - set(_EXPECTED))
    if unknown:  # before what is missing: a misspelt field is both
        raise ConfigurationError(f"{where}: {_fault(unknown[0], given)}")
    try:
        option = EventOption.model_validate(given)
    except ValidationError as error:
        field = str(error.errors(include_url=False)[0]["loc"][0])
        raise ConfigurationError(f"{where}: {_fault(field, given)}") from error
    if (option.cap is None) != (option.units_at_most is None):
        missing = "cap" if option.cap is None else "units_at_most"
        raise ConfigurationError(f"{where}: {_fault(missing, given)}")
    return Stated(option.event(), option.adjacency or adjacency)


def _fault(field: str, given: dict[str, Any]) -> str:
    if field not in _EXPECTED:
        return f"{field[:80]}: expected only {', '.join(_EXPECTED)}, got a field of that name; leave it out"
    came = json.dumps(given[field])[:80] if field in given else "nothing"
    return f"{field}: expected {_EXPECTED[field]}; got {came}; write for example {_EXAMPLE}"


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _plain(cost: Price) -> dict[str, Any]:
    exact = {} if cost.mu is None else {"mu": cost.mu}
    return {"epsilon": cost.epsilon, "epsilon_rdp": cost.epsilon_rdp, **exact, "accountant": cost.accountant}


def _print_cost(cost: Price) -> None:
    click.echo(f"ε      {_rounded_up(cost.epsilon)}  {_ACCOUNTANTS[cost.accountant]}")
    if cost.accountant != "rdp":
        click.echo(f"check  {_rounded_up(cost.epsilon_rdp)}  Rényi DP, an upper bound")
    if cost.mu is not None:
        click.echo(f"μ      {cost.mu:.6g}  μ² = Σ steps · (sensitivity / σ)²")


def _rounded_up(number: float) -> str:
    """Four decimals, never below what was computed."""
    return f"{math.ceil(number * 10**4) / 10**4:.4f}"
