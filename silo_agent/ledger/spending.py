"""What a ledger's entries add up to: its state is derived from them alone, and ε is computed, never stored.

Values in, values out. Within a job ε composes by PLD at the job's δ; across jobs ε and δ add up (basic
composition, which also holds for jobs chosen after seeing earlier results; Rogers et al. 2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, Real
from privacy.chain import Entry, Head
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import LedgerDamaged
from privacy.ids import Context, Digest, HexContext, HexDigest, JobName, Name

PositiveReal = Annotated[Real, Field(gt=0)]


class EpsilonCaps(Frozen):
    """The most ε that a patient's data may cost in one round, in one job, and ever."""

    round: PositiveReal
    job: PositiveReal
    lifetime: PositiveReal


class Opening(Frozen):
    """Body of ``open``: whose privacy this ledger counts, and its owner's caps; a later one replaces them."""

    dataset: Name
    unit: Literal["patient", "record"]
    adjacency: Literal["add_remove"] = "add_remove"
    patient_id: str
    epsilon: EpsilonCaps
    delta_max: PositiveReal


class Reserve(Frozen):
    """Body of ``reserve``: the worst that the round can cost, charged before data are read."""

    job: JobName
    job_digest: HexDigest
    context: HexContext
    round: Annotated[int, Field(ge=1)]
    event: DpEvent
    delta: Annotated[Real, Field(gt=0, lt=1)]
    log_head: Head
    """Head of the aggregator's log as it was offered to us: a rewritten log shows."""


class Begin(Frozen):
    """Body of ``begin``: noise and batches are drawn from here on."""

    context: HexContext


class Settle(Frozen):
    """Body of ``settle``: how many of the reserved steps ran. Nothing is refunded."""

    context: HexContext
    steps: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class JobCharge:
    """What one job has reserved."""

    job: str
    delta: float
    events: tuple[DpEvent, ...]

    @property
    def epsilon(self) -> float:
        """ε of all its rounds at its δ."""
        return epsilon(self.events, self.delta)

    def with_event(self, event: DpEvent) -> JobCharge:
        """The job after one more round."""
        return JobCharge(self.job, self.delta, (*self.events, event))


@dataclass
class Account:
    """The state that a ledger's entries lead to."""

    opening: Opening | None = None
    jobs: dict[Digest, JobCharge] = field(default_factory=dict)
    reserved: dict[Context, Reserve] = field(default_factory=dict)
    begun: set[Context] = field(default_factory=set)
    settled: set[Context] = field(default_factory=set)

    @property
    def epsilon(self) -> float:
        """ε over the dataset's life so far."""
        return sum(charge.epsilon for charge in self.jobs.values())

    @property
    def delta(self) -> float:
        """δ over the dataset's life so far: each job's once."""
        return sum(charge.delta for charge in self.jobs.values())

    def last_round(self, job_digest: Digest) -> int:
        """Number of the job's last round that was charged; 0 for a new job."""
        return max((one.round for one in self.reserved.values() if one.job_digest == job_digest), default=0)

    def apply(self, entry: Entry) -> None:
        """Follow one verified entry.

        Raises:
            LedgerDamaged: its owner signed something that the rules of spending do not allow.
        """
        try:
            self._apply(entry)
        except ValidationError as error:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: its body is not a {entry.kind}") from error

    def _apply(self, entry: Entry) -> None:
        if self.opening is None and entry.kind != "open":
            raise LedgerDamaged("ledger: expected it to start with an open entry")
        if entry.kind == "open":
            self.opening = Opening.model_validate(entry.body)
        elif entry.kind == "reserve":
            self._reserve(Reserve.model_validate(entry.body))
        elif entry.kind == "begin":
            self._follow(Begin.model_validate(entry.body).context, self.reserved, self.begun, entry)
        elif entry.kind == "settle":
            self._follow(Settle.model_validate(entry.body).context, self.begun, self.settled, entry)
        else:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: unknown kind {entry.kind}")

    def _reserve(self, reserve: Reserve) -> None:
        if reserve.context in self.reserved:
            raise LedgerDamaged(f"ledger: round {reserve.context[:16]}… is reserved twice")
        charge = self.jobs.get(reserve.job_digest, JobCharge(reserve.job, reserve.delta, ()))
        self.jobs[reserve.job_digest] = charge.with_event(reserve.event)
        self.reserved[reserve.context] = reserve

    @staticmethod
    def _follow(context: Context, before: Iterable[Context], after: set[Context], entry: Entry) -> None:
        if context not in before or context in after:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: {entry.kind} is out of order")
        after.add(context)
