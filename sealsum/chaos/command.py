"""``sealsum chaos``: options, progress, exit code; the run itself is in ``run``."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

TERMINATED = 128 + signal.SIGTERM
VIOLATED = 5


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=5.0, show_default=True)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Who is struck, how and after how long. Where in a round that finds them, no seed decides.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("sealsum-chaos"),
    show_default=True,
    metavar="DIR",
    help="Folder for logs, and for evidence that does not verify; an earlier run's is replaced.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the figures as JSON to stdout, and nothing else."
)
def command(minutes: float, seed: int, out: Path, as_json: bool) -> None:
    """Kill and stall a federation of this machine's processes, and judge what it does.

    Seven processes train the demo's job on public records, again and again; one after the other is killed
    (SIGKILL) or stopped for a while. Each job's evidence goes through sealsum-verify. Exit code 5: an
    invariant broke; docs/faults.md lists them.
    """
    # Imported here because it brings torch: help and usage errors answer without it.
    from sealsum.chaos.run import run_chaos

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)
    )
    with bar:
        task = bar.add_task("starting", total=1.0)

        def told(what: str, share: float) -> None:
            bar.update(task, description=what, completed=min(1.0, share))

        tally = run_chaos(minutes, seed, out, told)
    if as_json:
        click.echo(tally.as_json())
    else:
        Console().print(tally.table())
    if tally.violations:
        raise click.exceptions.Exit(VIOLATED)


def _end(_number: int, _frame: FrameType | None) -> None:
    """Leave by the ordinary way, so that every ``with`` block ends its children."""
    raise SystemExit(TERMINATED)
