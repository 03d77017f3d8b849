"""Following a job to its end: the aggregator's long-poll and the agents' logs, folded into one standing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from privacy.errors import SealsumError
from sealsum.demo.logs import LogReader
from sealsum.demo.results import RefusalRow
from sealsum.demo.screen import Screen
from sealsum.demo.standing import SiloStanding, Standing, after_events
from sealsum.demo.supervise import Supervisor
from sealsum.job_view import ENDED, JobView
from sealsum.sdk import JobHandle

LOOK_S = 0.5
"""Longest wait for news before the children are looked at; the aggregator answers as soon as it has some."""
LAST_WORDS_S = 10.0


class JobFailed(SealsumError):
    """The job ended without a model; carries the aggregator's reason and the silos' refusals."""


class Following:
    """Reads the agents' logs beside the aggregator's reports."""

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self._readers = {name: LogReader(path) for name, path in logs.items()}
        self._silos = {name: SiloStanding(name) for name in logs}

    def standing(self, view: JobView) -> Standing:
        """Where the run stands, agents' latest words included."""
        for name, reader in self._readers.items():
            self._silos[name] = after_events(self._silos[name], reader.new_events())
        return Standing(
            state=view.state,
            finished=sum(row.outcome == "opened" for row in view.history),
            rounds=view.rounds,
            openings=view.openings,
            silos=tuple(self._silos.values()),
            refusals=refusal_rows(view),
        )


def follow(
    job: JobHandle, logs: Mapping[str, Path], supervisor: Supervisor, screen: Screen
) -> tuple[JobView, Standing]:
    """Show a job's progress until it has finished; return its last view and standing.

    Raises:
        JobFailed: it ended without a model. ChildFailed: a process that it needs has ended.
    """
    following = Following(logs)
    view = job.now()
    while True:
        standing = following.standing(view)
        screen.show(standing)
        if view.state in ENDED:
            break
        supervisor.check()
        view = job.view(view, LOOK_S) or view
    if view.state == "failed":
        refused = [f"  round {row.round}, {row.silo}: {row.rule}: {row.sentence}" for row in view.refusals]
        raise JobFailed("\n".join([f"job {view.job} failed: {view.reason}", *refused]))
    return view, _last_words(following, view)


def _last_words(following: Following, view: JobView) -> Standing:
    """The standing once every agent has logged the result of each round it trained in."""
    deadline = time.monotonic() + LAST_WORDS_S
    standing = following.standing(view)
    while time.monotonic() < deadline and not _complete(standing.silos):
        time.sleep(0.02)
        standing = following.standing(view)
    return standing


def _complete(silos: Sequence[SiloStanding]) -> bool:
    return all(len(silo.overhead_ms) == len(silo.train_ms) for silo in silos)


def refusal_rows(view: JobView) -> tuple[RefusalRow, ...]:
    """Refusals as the aggregator reports them."""
    return tuple(RefusalRow(row.round, row.silo, row.rule, row.sentence) for row in view.refusals)
