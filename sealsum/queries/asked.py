"""Wait for the answer to a submitted query and read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privacy.errors import ConfigurationError, PeerFault
from sealsum.job_view import JobView
from sealsum.queries.answer import read_answer
from sealsum.sdk import JobHandle


class QueryUnanswered(PeerFault):
    """The query's job ended without an opened sum."""

    kind = "job-failed"


def answer_of(handle: JobHandle, progress: Callable[[JobView], None] = lambda view: None) -> dict[str, Any]:
    """The answer as JSON holds it: each number with its standard error.

    Args:
        progress: told of each change of the job.

    Raises:
        QueryUnanswered: no sum was opened. ConfigurationError: the job is no query; said at once.
    """
    if handle.spec.query is None:
        raise ConfigurationError(
            f"job {handle.spec.job}: expected a query, got a job that trains a model; "
            "sealsum job show says how it does"
        )
    view = handle.now()
    for view in handle.watch():
        progress(view)
    opened = [one for one in view.history if one.outcome == "opened"]
    if view.state == "failed" or len(opened) != 1:
        refused = "".join(f"; {one.silo} refused ({one.rule}): {one.sentence}" for one in view.refusals)
        raise QueryUnanswered(f"query {view.job}: it has no answer: {view.reason or view.state}{refused}")
    return read_answer(handle.spec, handle.model(), len(opened[0].survivors))
