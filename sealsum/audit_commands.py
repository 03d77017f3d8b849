"""``sealsum audit attack``: Sealsum attacks itself; the exit code says whether all came out as it must.

Needs no federation and no data: what is attacked is this installation's own code, on synthetic records.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from sealsum.attack.effort import EFFORTS, SuiteName
from sealsum.attack.picture import summary_png
from sealsum.attack.report import render_report
from sealsum.attack.suite import Attack, Result, attacks_on, run_suite
from sealsum.attack.vouching import voucher
from sealsum.researcher_options import AGGREGATOR, PROXY

NOT_AS_CLAIMED: Final = 5
"""Exit code, as that of ``sealsum-verify``: some claim does not hold, or some attack shows nothing."""
_RESULTS, _REPORT, _PICTURE = "attack.json", "report.html", "attack.png"


@click.command(
    "attack", short_help="Attack this installation; every attack must fail where it is claimed to."
)
@click.option(
    "--suite",
    type=click.Choice(list(EFFORTS)),
    default="quick",
    show_default=True,
    help="quick takes about a minute on two cores, full about ten.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Directory for {_RESULTS}, {_REPORT} and {_PICTURE}; none of them is replaced.",
)
@click.option("--job", "name", help="Attack this finished job's noise too, and vouch for the results.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --job: state directory of a silo, or of a researcher who did not ask for it.",
)
@AGGREGATOR
@PROXY
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def attack(
    suite: SuiteName,
    out: Path | None,
    name: str | None,
    state: Path | None,
    url: str | None,
    proxy: str | None,
    as_json: bool,
) -> None:
    """Run attacks on the real code path with each protection off and on.

    With --job and --state the results are signed and handed in at the aggregator, where a threat model may
    ask for them before the job's model goes to researchers (require.attack_suite).

    Exit code 0: all succeeded with the protection off and failed with it on; 5: some did not.
    """
    if (name is None) != (state is None):
        raise ConfigurationError("--job, --state: expected both or neither; who vouches signs")
    if out is not None:
        _refuse_to_replace(out)
    if name is None or state is None:
        _tell(_run(suite), out, as_json)
        return
    with voucher(state, url, proxy) as member:
        subject = member.subject(name, state)
        result = _run(suite, subject.job)
        member.hand_in(subject, result, _document(result), datetime.now(UTC))
    _tell(result, out, as_json)


def _document(result: Result) -> bytes:
    return json.dumps(result.plain(), ensure_ascii=False, indent=2).encode() + b"\n"


def _tell(result: Result, out: Path | None, as_json: bool) -> None:
    """Write and print what came of it; end with 5 unless all is as it must be."""
    plain = json.dumps(result.plain(), ensure_ascii=False, indent=2)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / _RESULTS).write_bytes(_document(result))
        (out / _REPORT).write_bytes(render_report(result))
        (out / _PICTURE).write_bytes(summary_png(result))
    if as_json:
        click.echo(plain)
    else:
        _print(result)
        if out is not None:
            click.echo(f"{out / _REPORT}")
    if not result.ok:
        raise click.exceptions.Exit(NOT_AS_CLAIMED)


def _refuse_to_replace(out: Path) -> None:
    """
    Raises:
        ConfigurationError: a file of an earlier run is there.
    """
    for name in (_RESULTS, _REPORT, _PICTURE):
        if (out / name).exists():
            raise ConfigurationError(
                f"--out: {out / name} exists and is not replaced; choose another directory"
            )


def _run(suite: SuiteName, job: JobSpec | None = None) -> Result:
    """Run with a progress bar on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(attacks_on(job)))

        begun: list[Attack] = []

        def announce(one: Attack) -> None:
            done = len(begun)
            begun.append(one)
            progress.update(bar, description=one.title, completed=done)

        return run_suite(suite, announce, job)


def _print(result: Result) -> None:
    table = Table(title=f"Attacks, suite {result.suite}", title_justify="left")
    for heading in ("attack", "protection", "measured", "bound or claim", "verdict"):
        table.add_column(heading, overflow="fold")
    for _, findings in result.parts:
        for outcome in findings.outcomes:
            style = None if outcome.as_expected else "bold red"
            table.add_row(
                outcome.attack,
                outcome.protection,
                outcome.measured,
                outcome.expected,
                outcome.verdict,
                style=style,
            )
        table.add_section()
    Console().print(table)
    expected = sum(outcome.as_expected for outcome in result.outcomes)
    click.echo(
        f"{expected} of {len(result.outcomes)} came out as they must, in {result.duration_s:.0f} s: attacks "
        "succeed with their protection off and fail with it on"
    )
