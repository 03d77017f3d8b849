"""After a job under faults: what its report, its logs and its evidence say of the invariants.

I1 (each update is charged), I2, I4 and what of I6 is signed are judged by ``sealsum-verify`` over the
exported pack; I5 and I7 here. I3 and the plaintext sum (I6) need the updates, which no process may see: the
simulation in ``tests/faults`` judges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sealsum.demo.job import MIN_SILOS
from sealsum.demo.results import Verdict
from sealsum.job_view import ENDED, JobView


def view_violations(view: JobView) -> Iterator[str]:
    """What a job's last report shows."""
    opened = [row for row in view.history if row.outcome == "opened"]
    numbers = [row.round for row in view.history]
    if view.state not in ENDED:
        yield f"I7: {view.job} is {view.state} and goes no further"
    elif view.state == "finished" and numbers != list(range(1, view.rounds + 1)):
        yield f"I7: {view.job} finished with rounds {numbers}, expected 1 to {view.rounds}, each once"
    elif view.state == "failed" and not view.reason:
        yield f"I7: {view.job} failed without a reason"
    if view.openings != len(opened):
        yield f"I4: {view.job} has {view.openings} openings in {len(opened)} opened rounds"
    for row in opened:
        if len(row.survivors) < MIN_SILOS:
            yield f"I2: {view.job} round {row.round} was opened for {len(row.survivors)} silos"
    for row in view.history:
        if row.outcome != "opened" and not row.reason:
            yield f"I7: {view.job} round {row.round} ended without a reason"


def log_violations(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[str]:
    """Whether each log goes on where it was."""
    for name, lines in before.items():
        if not now.get(name, b"").startswith(lines):
            yield f"I5: the log of {name} is not the one that was there, with more after it"


def verdict_violations(job: str, verdict: Verdict) -> Iterator[str]:
    """What an auditor says of the job's evidence."""
    if verdict.exit_code != 0:
        yield f"I1–I6: the evidence of {job} does not verify: {' | '.join(verdict.checks[-3:])}"
