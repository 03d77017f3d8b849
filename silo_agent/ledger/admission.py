"""What a reservation would cost and whether its dataset's caps allow it. Values in, values out; no disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from privacy.dp.events import DpEvent
from privacy.errors import BudgetExhausted, Conflict, OutOfOrder
from privacy.ids import Context, Digest, JobId
from privacy.transparency.checkpoint import LogHead
from silo_agent.ledger.entries import Opening, Reserve
from silo_agent.ledger.lifetime import lifetime_of, period_of
from silo_agent.ledger.spending import Account, JobCharge

BLOCKS = 16
"""A job is reserved in this many blocks or more, so at most a sixteenth of it is charged and never begun."""


class CapReached(BudgetExhausted):
    """Which cap a reservation would pass."""

    def __init__(self, cap: str, limit: float, cost: float) -> None:
        super().__init__(
            f"{cap}: expected at most {limit:g}, got {cost:.4g} with this round; "
            "the owner of the data may raise the cap in silo.yaml, or the job must ask for less"
        )
        self.cap = cap


class LedgerWrittenOff(CapReached):
    """Entries were lost: what they charged is unknown, so all of the lifetime budget counts as spent."""

    def __init__(self) -> None:
        BudgetExhausted.__init__(
            self,
            "epsilon.lifetime: entries of this dataset's ledger were lost and written off, so all of its "
            "budget counts as spent, whatever the caps; it takes part in no more rounds with DP",
        )
        self.cap = "epsilon.lifetime"


@dataclass(frozen=True)
class RoundCharge:
    """What one round asks of the ledgers of all whose patients it may read."""

    job: JobId
    job_digest: Digest
    dataset: str
    context: Context
    round: int
    rounds: int
    """How many the job has by its signed terms."""
    event: DpEvent
    fallback: DpEvent | None
    delta: float
    log_head: LogHead

    def of_job(self, account: Account) -> JobCharge:
        """What the job has reserved so far: nothing, if this is its first round here."""
        new = JobCharge(self.job, self.dataset, self.delta, self.event, self.fallback)
        return account.jobs.get(self.job_digest, new)

    def blocks(self) -> Iterator[Reserve]:
        """The block that begins with this round, and after it ever smaller ones, down to this round alone."""
        size = block_size(self.round, self.rounds)
        while size >= 1:
            yield Reserve(
                job=self.job,
                job_digest=self.job_digest,
                dataset=self.dataset,
                first_round=self.round,
                last_round=self.round + size - 1,
                event=self.event,
                fallback=self.fallback,
                delta=self.delta,
                log_head=self.log_head,
            )
            size //= 2


def block_size(first: int, rounds: int) -> int:
    """The most rounds that are reserved at once from round ``first`` on, of a job with ``rounds``."""
    return min(max(1, rounds // BLOCKS), rounds - first + 1)


@dataclass(frozen=True)
class Costs:
    """ε of one round, of the job, and of the dataset's life and period, once a block is reserved."""

    round: float
    job: float
    lifetime: float
    period: float = 0.0


@dataclass(frozen=True)
class Quote:
    """What the dataset's account comes to with a block."""

    epsilon: Costs
    fallback: Costs
    delta: float


def quote(
    opening: Opening, account: Account, job_digest: Digest, job: JobCharge, more: int, now: datetime
) -> Quote:
    """Price the account with ``more`` rounds of a job on top of what ``job`` has reserved already.

    Raises:
        LedgerWrittenOff: nobody knows what the account has reserved.
    """
    if account.written_off:
        raise LedgerWrittenOff
    at = max(now, account.latest)
    after = replace(job, rounds=job.rounds + more, times=(*job.times, (at, more)))
    jobs = {**account.jobs, job_digest: after}.values()
    life = lifetime_of(opening, jobs)
    period = period_of(opening, jobs, at)
    return Quote(
        epsilon=Costs(job.epsilon_of(1), after.epsilon, life.epsilon, period.epsilon),
        fallback=Costs(job.fallback_of(1), after.epsilon_fallback, life.fallback, period.fallback),
        delta=life.delta,
    )


def assert_within_caps(quoted: Quote, opening: Opening) -> None:
    """Refuse what passes a cap, checking ε of the round, of the job, of the period and of the dataset's life,
    then the same of ε_fallback, then δ.

    Raises:
        CapReached: naming the first cap that it would pass.
    """
    for name, costs, caps in (
        ("epsilon", quoted.epsilon, opening.epsilon),
        ("epsilon_fallback", quoted.fallback, opening.epsilon.of_fallback),
    ):
        _assert_within(f"{name}.round", costs.round, caps.round)
        _assert_within(f"{name}.job", costs.job, caps.job)
        _assert_within(f"{name}.period", costs.period, math.inf if caps.period is None else caps.period)
        _assert_within(f"{name}.lifetime", costs.lifetime, caps.lifetime)
    _assert_within("delta_max", quoted.delta, opening.delta_max)


def assert_in_order(account: Account, charge: RoundCharge) -> None:
    """Refuse a round that was begun before, precedes one that was, or has other terms than its job's first:
    rounds compose as computed only under one δ and one mechanism.

    Raises:
        Conflict: other terms. OutOfOrder: an earlier round, or the same.
    """
    job = account.jobs.get(charge.job_digest)
    if job is None:
        return
    over = job.last_begun if not job.settled else job.block[1]
    if charge.round <= over or charge.round < job.block[0]:
        raise OutOfOrder(
            f"ledger: expected a round after {max(over, job.block[0] - 1)} of job {charge.job}, got "
            f"{charge.round}; a round is trained once"
        )
    if job.delta != charge.delta:
        raise Conflict(f"ledger: job {charge.job}: expected delta {job.delta!r}, got {charge.delta!r}")
    if (job.event, job.fallback) != (charge.event, charge.fallback):
        raise Conflict(
            f"ledger: job {charge.job}: its sample rate, noise and steps are fixed by its first round"
        )


def _assert_within(cap: str, cost: float, limit: float) -> None:
    # Written so that NaN and infinity fail.
    if not cost <= limit:
        raise CapReached(cap, limit, cost)
