"""What a person sees while the demo runs: a live display on a terminal, plain lines elsewhere; on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sealsum.demo.standing import Standing


class Screen:
    """Shows phases and, while rounds run, who trained, what was spent and who refused."""

    def __init__(self, console: Console, began: float) -> None:
        """``began``: monotonic time from which lines are timed."""
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._began = began
        self._last_finished = 0
        self._phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def phase(self, text: str) -> None:
        """Begin a phase of the run."""
        self._phase = text
        if self._console.is_terminal:
            self._live.update(self._spinner())
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Say one thing that stays."""
        stamped = f"{time.monotonic() - self._began:6.1f} s  {text}"
        self._console.print(stamped, highlight=False, markup=False, soft_wrap=True)

    def show(self, standing: Standing) -> None:
        """Show where the rounds stand; without a terminal, one line a round."""
        if self._console.is_terminal:
            self._live.update(Group(self._spinner(), _bar(standing), _table(standing)))
        elif standing.finished > self._last_finished:
            spent = ", ".join(f"{silo.name} {silo.epsilon:.2f}" for silo in standing.silos)
            refused = f"; {len(standing.refusals)} refusals" if standing.refusals else ""
            self.line(f"round {standing.finished} of {standing.rounds}; ε spent: {spent}{refused}")
        self._last_finished = max(self._last_finished, standing.finished)

    def _spinner(self) -> Spinner:
        return Spinner("dots", Text(self._phase))


def _bar(standing: Standing) -> Table:
    row = Table.grid(padding=(0, 2))
    row.add_row(
        Text(f"round {standing.finished} of {standing.rounds}"),
        ProgressBar(total=standing.rounds, completed=standing.finished, width=40),
        Text(f"{standing.openings} sums opened"),
    )
    return row


def _table(standing: Standing) -> Table:
    table = Table()
    table.add_column("hospital")
    for heading in ("rounds trained", "ε spent", "refusals"):
        table.add_column(heading, justify="right")
    for silo in standing.silos:
        table.add_row(silo.name, str(len(silo.train_ms)), f"{silo.epsilon:.3f}", str(silo.refusals))
    if standing.refusals:
        latest = standing.refusals[-1]
        table.caption = f"round {latest.round}, {latest.silo}: {latest.rule}: {latest.sentence}"
    return table
