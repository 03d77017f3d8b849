"""Which silos will take part in which job, and whether a job may begin: go, wait, or over. Knows no HTTP.

A silo's word is for planning only: the silo itself lets no round begin that it has not approved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from aggregator.job_rows import newest_job, open_jobs
from aggregator.readiness_rows import add_answer, add_asking, answers_to, asked_until
from aggregator.store import Store, Writer
from policies.loader import LoadedPolicy
from policies.planning import silos_needed
from privacy.ids import Digest, SiloId
from privacy.plan import JobSpec
from privacy.roster import Charter
from privacy.wire.envelope import Envelope
from privacy.wire.readiness import JobReadiness

Verdict = Literal["go", "wait", "over"]


@dataclass
class _Asked:
    """What is known of one open job."""

    until: float
    """Unix seconds."""
    answers: dict[SiloId, JobReadiness] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """Whether a job may go on, and if it is over, why."""

    verdict: Verdict
    why: str = ""


class Readiness:
    """The answers of silos to all open jobs, in memory and in the database."""

    def __init__(self, store: Store, wait_s: float, now: Callable[[], float]) -> None:
        """Take up what is stored."""
        self._wait_s = wait_s
        self._now = now
        self._asked: dict[Digest, _Asked] = {}
        self.newest = 0
        """Position of the newest job in the queue, open or not."""
        with store.read() as view:
            self.newest = newest_job(view)
            for _, job in open_jobs(view):
                until = asked_until(view, job.spec.digest)
                # One that has begun, or that an earlier release took, is given its time anew.
                asked = _Asked(until if until is not None and job.round == 0 else now() + wait_s)
                for answer in answers_to(view, job.spec.digest):
                    asked.answers[answer.silo] = answer
                self._asked[job.spec.digest] = asked

    def ask(self, transaction: Writer, job: Digest) -> None:
        """A job is being queued: silos have time to answer from now on."""
        add_asking(transaction, job, int(self._now() + self._wait_s))

    def queued(self, store: Store, job: Digest) -> None:
        """The transaction of ``ask`` has committed: silos are told that there is news."""
        self._of(job)
        with store.read() as view:
            self.newest = newest_job(view)

    def answer(self, transaction: Writer, answer: JobReadiness, envelope: Envelope) -> None:
        """Keep a silo's word; it replaces an earlier one."""
        add_answer(transaction, answer, envelope)
        self._of(answer.job_digest).answers[answer.silo] = answer

    def said(self, job: Digest, silo: SiloId) -> JobReadiness | None:
        """What a silo last said of a job."""
        return self._of(job).answers.get(silo)

    def who(self, job: Digest, silos: Collection[SiloId], decision: str) -> tuple[SiloId, ...]:
        """Those of ``silos`` that last answered so, sorted."""
        answers = self._of(job).answers
        return tuple(silo for silo in sorted(silos) if silo in answers and answers[silo].decision == decision)

    def may_come(self, job: Digest, silo: SiloId) -> bool:
        """Whether a silo has approved a job, or has not answered yet and may do so any moment."""
        said = self.said(job, silo)
        return said is None or said.decision == "approved"

    def judge(self, job: JobSpec, silos: Collection[SiloId], needed: int) -> Judged:
        """Go on once enough silos have approved; it is over where too many have rejected, or time is up."""
        asked = self._of(job.digest)
        if len(self.who(job.digest, silos, "approved")) >= needed:
            asked.until = max(asked.until, self._now() + self._wait_s)
            return Judged("go")
        rejected = self.who(job.digest, silos, "rejected")
        if len(silos) - len(rejected) < needed:
            names = ", ".join(f"{silo} ({asked.answers[silo].rule})" for silo in rejected)
            return Judged("over", f"too few silos: {needed} needed; rejected by {names}")
        if self._now() >= asked.until:
            approved = len(self.who(job.digest, silos, "approved"))
            why = f"not approved in time: {needed} silos needed, {approved} of {len(silos)} have approved"
            return Judged("over", why)
        return Judged("wait")

    def seconds_left(self) -> float:
        """Until the first job's time is up; infinity where none waits."""
        now = self._now()
        return min((max(0.0, asked.until - now) for asked in self._asked.values()), default=float("inf"))

    def forget(self, job: Digest) -> None:
        """The job is over."""
        self._asked.pop(job, None)

    def view_of(self, job: JobSpec, charter: Charter, policy: LoadedPolicy) -> dict[str, Any] | None:
        """What members see: how many are needed, and what each silo said; ``None`` once the job is over."""
        if job.digest not in self._asked:
            return None
        answers = self._of(job.digest).answers
        return {
            "needed": silos_needed(job, policy),
            "silos": {
                silo: {
                    "decision": answers[silo].decision if silo in answers else "unanswered",
                    "rule": answers[silo].rule if silo in answers else "",
                }
                for silo in charter.silos
            },
        }

    def _of(self, job: Digest) -> _Asked:
        return self._asked.setdefault(job, _Asked(self._now() + self._wait_s))
