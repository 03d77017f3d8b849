"""``sealsum tune``: search a job's settings under one budget.

On records that cost nobody any, or on a table of the caller's own with each trial charged. On silos' own
records every trial would be a job with a reservation of its own; what that would cost is said, and nothing is
submitted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

import click
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from privacy.errors import ConfigurationError
from sealsum.job_tree import read_tree
from sealsum.simulator.practice import Practice, made_up, public_table
from sealsum.simulator.private_trials import TRAINING_SHARE, PrivateTable
from sealsum.simulator.trials import Grid, Outcome, Trial, cost_of_all, spelt, trials_of, tried

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the job's own server learning rate, where no grid is given."""


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "--grid",
    "grids",
    multiple=True,
    metavar="PATH=V1,V2,…",
    help="Values of a number in job.yaml, such as dp.clip_l2=0.5,1 or rounds=20,60; may be repeated. "
    "[default: training.server_learning_rate from a quarter to four times the job's]",
)
@click.option(
    "--budget-epsilon",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="ε that each trial's noise is made for; with --private, of all trials together.",
)
@click.option(
    "--public", type=click.Path(path_type=Path), help="A CSV that everybody may read, under the job's schema."
)
@click.option("--synthetic", is_flag=True, help="Records made up from the job's schema.")
@click.option(
    "--private",
    type=click.Path(path_type=Path),
    help="A CSV of your own, under the job's schema. The budget is then that of all trials together: each is "
    "charged in --ledger before it reads a record, and judged by a noisy count.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="With --private: the folder of the table's ledger and key.",
)
@click.option("--silos", type=click.IntRange(2, 100), help="Simulated silos.  [default: the job's min_silos]")
@click.option("--repetitions", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the scores into this PNG.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def tune(
    job: Path,
    grids: tuple[str, ...],
    budget_epsilon: float,
    public: Path | None,
    synthetic: bool,
    private: Path | None,
    ledger: Path | None,
    silos: int | None,
    repetitions: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Search the settings of JOB under one budget, on public, made-up or own records."""
    sources = {"--public": public is not None, "--synthetic": synthetic, "--private": private is not None}
    if sum(sources.values()) > 1:
        got = " and ".join(name for name, given in sources.items() if given)
        raise ConfigurationError(f"tune: expected one of {', '.join(sources)}, got {got}; leave one")
    if (private is None) != (ledger is None):
        raise ConfigurationError("tune: expected --private FILE and --ledger FOLDER together, got only one")
    tree = read_tree(job)
    if private is not None and ledger is not None:
        _tune_privately(tree, _grid(grids, tree), budget_epsilon, private, ledger, silos, as_json)
        return
    trials = trials_of(tree, _grid(grids, tree), budget_epsilon)
    total = cost_of_all(trials)
    if public is None and not synthetic:
        _show_plan(trials, total, as_json)
        raise ConfigurationError(
            "tune: nothing was submitted. On silos' records each trial is a job of its own: sign and submit "
            "the ones you can afford with sealsum job submit, or give --public FILE, --synthetic or --private"
        )
    schema = trials[0].job.data
    practice: Practice = made_up(schema, 4000) if public is None else public_table(public, schema)
    outcomes = [tried(trial, practice, silos or trial.job.min_silos, repetitions) for trial in trials]
    best = max(outcomes, key=lambda outcome: outcome.mean)
    if not best.scores:
        raise ConfigurationError(f"tune: no trial could be trained: {best.failure}")
    if plot is not None:
        _plot(outcomes, plot)
    if as_json:
        click.echo(json.dumps(_document(outcomes, best, total, "synthetic" if public is None else "public")))
        return
    _show_outcomes(outcomes, best, total, made_up_records=public is None)
    click.echo(f"Best: {spelt(best.trial.settings)}, with dp.target_epsilon {budget_epsilon:g}.")


def _tune_privately(
    tree: dict[str, Any],
    grid: Grid,
    budget: float,
    path: Path,
    ledger: Path,
    silos: int | None,
    as_json: bool,
) -> None:
    count = prod(len(values) for values in grid.values())
    trials = trials_of(tree, grid, budget / count * TRAINING_SHARE)
    table = PrivateTable(
        path, ledger, budget, 2 * sum(trial.dp.delta for trial in trials), silos or trials[0].job.min_silos
    )
    tuning = table.tune(trials, datetime.now(UTC))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "records": "private",
                    "trials": [
                        {
                            "settings": one.trial.settings,
                            "right": one.right,
                            "deviation": one.deviation,
                            "epsilon": one.epsilon,
                        }
                        for one in tuning.judged
                    ],
                    "best": tuning.best.trial.settings,
                    "epsilon_spent": tuning.epsilon_spent,
                    "delta_spent": tuning.delta_spent,
                }
            )
        )
        return
    for one in sorted(tuning.judged, key=lambda judged: -judged.right):
        told = f"{one.right:.0f} ± {one.deviation:.0f} right, ε {one.epsilon:.3f}"
        click.echo(f"{told}: {spelt(one.trial.settings)}")
    click.echo(
        f"The table's ledger stands at ε = {tuning.epsilon_spent:.3f}, δ = {tuning.delta_spent:g}; "
        "a job on the same patients costs its own ε besides."
    )
    click.echo(f"Best: {spelt(tuning.best.trial.settings)}.")


def _grid(grids: Sequence[str], tree: dict[str, Any]) -> Grid:
    read: dict[str, list[float]] = {}
    for one in grids:
        path, equals, values = one.partition("=")
        try:
            read[path] = [float(value) for value in values.split(",")]
        except ValueError as error:
            raise ConfigurationError(f"grid: expected PATH=V1,V2,… with numbers, got {one!r}") from error
        if not equals or not path:
            raise ConfigurationError(f"grid: expected PATH=V1,V2,… with numbers, got {one!r}")
    if read:
        return read
    training = tree.get("training")
    rate = training.get("server_learning_rate", 1.0) if isinstance(training, dict) else 1.0
    try:
        return {"training.server_learning_rate": [float(rate) * factor for factor in _FACTORS]}
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"training.server_learning_rate: expected a number, got {rate!r}; correct it or give --grid"
        ) from error


def _show_plan(trials: Sequence[Trial], total: float, as_json: bool) -> None:
    if as_json:
        planned = [{"settings": trial.settings, "epsilon": trial.epsilon} for trial in trials]
        click.echo(json.dumps({"trials": planned, "epsilon_of_all": total, "submitted": 0}))
        return
    for trial in trials:
        click.echo(f"ε {trial.epsilon:.3f}, noise {trial.dp.noise_multiplier:g}: {spelt(trial.settings)}")
    click.echo(
        f"On the same records, all {len(trials)} trials cost ε = {total:.3f} at δ = {trials[0].dp.delta:g}."
    )


def _show_outcomes(outcomes: Sequence[Outcome], best: Outcome, total: float, made_up_records: bool) -> None:
    table = Table(title=f"{len(outcomes)} trials at ε {best.trial.epsilon:.3f}", title_justify="left")
    for path in best.trial.settings:
        table.add_column(path, justify="right")
    for head in ("noise", "right", "spread"):
        table.add_column(head, justify="right")
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.mean):
        shown = (
            [f"{100 * outcome.mean:.1f} %", f"{100 * max(outcome.scores) - 100 * min(outcome.scores):.1f}"]
            if outcome.scores
            else ["failed", ""]
        )
        values = [f"{value:g}" for value in outcome.trial.settings.values()]
        table.add_row(*values, f"{outcome.trial.dp.noise_multiplier:.4g}", *shown)
    Console().print(table)
    if made_up_records:
        click.echo("Records were made up: believe which settings fail, not how right the best is.")
    click.echo(
        f"Nobody's budget was spent; on silos' records these trials would cost ε = {total:.3f} in all."
    )


def _document(outcomes: Sequence[Outcome], best: Outcome, total: float, source: str) -> dict[str, Any]:
    return {
        "records": source,
        "trials": [
            {
                "settings": outcome.trial.settings,
                "noise_multiplier": outcome.trial.dp.noise_multiplier,
                "epsilon": outcome.trial.epsilon,
                "scores": list(outcome.scores),
                "failure": outcome.failure or None,
            }
            for outcome in outcomes
        ],
        "best": best.trial.settings,
        "epsilon_of_all": total,
        "epsilon_spent": 0.0,
    }


def _plot(outcomes: Sequence[Outcome], path: Path) -> None:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    names = [spelt(outcome.trial.settings) for outcome in outcomes]
    for place, outcome in enumerate(outcomes):
        axes.plot(
            [place] * len(outcome.scores), [100 * score for score in outcome.scores], "o", color="tab:blue"
        )
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=7)
    axes.set_ylabel("% right, held out")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
