"""The rules of spending: rounds are reserved within their caps, before any data are read, and begin once.

RESERVE (a block of a job's rounds) → BEGIN (each round) → SETTLE (the block), each on disk before the next
step (ADR 18). What is reserved stays charged, whether or not its rounds began or came to an end.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from privacy.chain import EMPTY, Entry, Head
from privacy.errors import Conflict, OutOfOrder
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, SiloId
from privacy.transparency.checkpoint import LogHead
from silo_agent.ledger.admission import (
    CapReached,
    Quote,
    RoundCharge,
    assert_in_order,
    assert_within_caps,
    block_size,
    quote,
)
from silo_agent.ledger.entries import Begin, Opening, Reserve
from silo_agent.ledger.journal import Journal, read_journal
from silo_agent.ledger.lifetime import Lifetime, kept_orders, lifetime_of
from silo_agent.ledger.spending import Account, assert_same_composition

_LEAST_ROUND = 1e-3
"""ε below which no useful round fits: a remainder this small counts as spent."""


@dataclass(frozen=True)
class Reserved:
    """Evidence that a round is paid for: only ``Ledger.reserve`` returns one."""

    charge: RoundCharge
    block: tuple[int, int]
    """First and last round of the block that pays."""
    new: bool
    """Whether the block was reserved just now, or earlier."""
    quote: Quote
    """What the dataset's account has come to, all reserved blocks included."""
    head: Head
    """Head of the ledger after the reservation."""

    @property
    def context(self) -> Context:
        """The round that may begin."""
        return self.charge.context

    @property
    def steps(self) -> int:
        """How many steps it may take."""
        return self.charge.event.steps


def ledger_origin(federation: str, silo: SiloId, dataset: str) -> str:
    """Name of the chain (docs/architecture.md, State on disk)."""
    return f"{federation}/ledger/{silo}/{dataset}"


class Ledger:
    """One dataset's budget, held by the one process that may spend it; its threads take turns."""

    def __init__(
        self,
        path: Path,
        origin: str,
        key: SigningKey,
        opening: Opening,
        now: datetime,
        *,
        declare: bool = True,
    ) -> None:
        """Open or create. A change of caps by their owner is recorded as another ``open`` entry: at once, or
        by ``declare``, where it is not known yet whether this ledger is whole.

        Raises:
            LedgerDamaged, ConfigurationError: as ``Journal``; or an earlier release wrote it.
            Conflict: the ledger counts another dataset, unit or patient column than ``opening``, or composes
                jobs in another way.
        """
        self._turn = threading.RLock()
        self._journal = Journal(path, origin, key)
        try:
            self._account = account_of(self._journal.entries)
            held = self._account.opening
            if held is not None and _scope(held) != _scope(opening):
                raise Conflict(
                    f"{path}: it counts {_scope(held)}, expected {_scope(opening)}; a changed privacy unit "
                    "needs another dataset name"
                )
            if self._account.first_opening is not None:
                opening = kept_orders(self._account.first_opening, opening)
                assert_same_composition(self._account.first_opening, opening, path)
            self._opening = opening
            if declare:
                self.declare(now)
        except BaseException:
            self._journal.close()
            raise

    def declare(self, now: datetime) -> None:
        """Record the caps in force, if the ledger does not say so yet."""
        with self._turn:
            if self._account.opening != self._opening:
                self._append("open", self._opening.model_dump(mode="json"), now)

    @property
    def head(self) -> Head:
        """Head of the chain."""
        return self._journal.head

    def holds(self, head: Head) -> bool:
        """Whether that entry is one of this ledger's."""
        return head == EMPTY or self._journal.holds(head)

    def heads_seen(self) -> tuple[LogHead, ...]:
        """The aggregator's log head that each round saw, in the order in which they began."""
        begun = (entry for entry in self._journal.entries if entry.kind == "begin")
        return tuple(Begin.model_validate(entry.body).log_head for entry in begun)

    def last_round(self, job_digest: Digest) -> int:
        """Number of the job's last round that began; 0 for a new job."""
        job = self._account.jobs.get(job_digest)
        return 0 if job is None else job.last_begun

    def covers(self, job_digest: Digest, number: int) -> bool:
        """Whether that round is reserved and may still begin."""
        job = self._account.jobs.get(job_digest)
        return job is not None and job.holds(number) and not self._account.written_off

    def is_open(self, context: Context) -> bool:
        """Whether that round has begun and is the last of a block that is not settled."""
        job_digest, number = self._account.begun.get(context, (None, 0))
        if job_digest is None or self._account.written_off:
            return False
        job = self._account.jobs[job_digest]
        return not job.settled and number == job.block[1]

    def spent(self) -> Lifetime:
        """What has been reserved over the dataset's life."""
        return lifetime_of(self._opening, self._account.jobs.values())

    def is_spent(self) -> bool:
        """Whether the lifetime caps leave no room for any round."""
        if self._account.written_off:
            return True
        caps, life = self._opening.epsilon, lifetime_of(self._opening, self._account.jobs.values())
        no_delta = self._opening.filter is None and life.delta >= self._opening.delta_max
        return (
            no_delta
            or life.epsilon > caps.lifetime - _LEAST_ROUND
            or life.fallback > caps.of_fallback.lifetime - _LEAST_ROUND
        )

    def foresee(self, job_digest: Digest, number: int, rounds: int, now: datetime) -> None:
        """Compute what ``reserve`` will need for a coming round of a job that is known, so that it finds it
        cached. Changes nothing."""
        job = self._account.jobs.get(job_digest)
        if job is not None and not job.holds(number) and not self._account.written_off:
            quote(self._opening, self._account, job_digest, job, block_size(number, rounds), now)

    def assess(self, charge: RoundCharge, now: datetime) -> tuple[Reserve | None, Quote]:
        """What ``reserve`` would write for a round, and what it would come to; nothing for a round that an
        earlier block pays for. Checks, in this order:

        (1) neither this round nor a later one of the job has begun; (2) the job keeps its δ and its
        mechanism, without which its rounds would not compose as computed; (3) ε of one round, (4) of the job
        with this block, (5) of the dataset's period and life, then (6) the same of ε_fallback, and (7) δ of
        the dataset's life stay within the caps. Where a whole block would pass a cap, a smaller one may not.

        Raises:
            Conflict, OutOfOrder: (1), (2). CapReached: (3) to (7), of this round alone.
        """
        with self._turn:
            assert_in_order(self._account, charge)  # (1), (2)
            if self.covers(charge.job_digest, charge.round):
                return None, self._within_caps(charge, 0, now)  # an owner may have lowered them
            *larger, alone = charge.blocks()
            for block in larger:
                with suppress(CapReached):
                    return block, self._within_caps(charge, block.rounds, now)  # (3) to (7)
            return alone, self._within_caps(charge, alone.rounds, now)

    def _within_caps(self, charge: RoundCharge, more: int, now: datetime) -> Quote:
        job = charge.of_job(self._account)
        quoted = quote(self._opening, self._account, charge.job_digest, job, more, now)
        assert_within_caps(quoted, self._opening)
        return quoted

    def reserve(self, charge: RoundCharge, now: datetime) -> Reserved:
        """Charge the block that a round begins, unless an earlier block pays for it.

        Raises:
            Conflict, OutOfOrder, CapReached: as ``assess``. Nothing is charged then.
        """
        with self._turn:
            block, quoted = self.assess(charge, now)
            self.declare(now)
            if block is not None:
                self._settle(charge.job_digest, now)
                self._append("reserve", block.model_dump(mode="json"), now)
            paid = self._account.jobs[charge.job_digest].block
            return Reserved(charge, paid, block is not None, quoted, self.head)

    def begin(self, reserved: Reserved, now: datetime) -> None:
        """Record that batches and noise are about to be drawn.

        Raises:
            OutOfOrder: no open block holds the round, or it or its job's later one has begun: a second run
                of a round would spend unseen.
        """
        charge = reserved.charge
        with self._turn:
            if not self.covers(charge.job_digest, charge.round) or charge.context in self._account.begun:
                raise OutOfOrder(f"ledger: round {charge.context[:16]}… is not waiting to begin")
            begin = Begin(
                job_digest=charge.job_digest,
                context=charge.context,
                round=charge.round,
                log_head=charge.log_head,
            )
            # One fsync a round: the head follows with the block's end.
            self._append("begin", begin.model_dump(mode="json"), now, head_durably=False)

    def settle(self, context: Context, now: datetime) -> None:
        """Close the block whose last round is done.

        Raises:
            OutOfOrder: that round has not begun, is not the last of its block, or the block is settled.
        """
        with self._turn:
            if not self.is_open(context):
                raise OutOfOrder(f"ledger: round {context[:16]}… does not end a block that is open")
            self._settle(self._account.begun[context][0], now)

    def close(self) -> None:
        """Let another process open it."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self, job_digest: Digest, now: datetime) -> None:
        job = self._account.jobs.get(job_digest)
        if job is not None and not job.settled:
            self._append("settle", job.settlement(job_digest).model_dump(mode="json"), now)

    def _append(
        self, kind: str, body: Mapping[str, Any], now: datetime, *, head_durably: bool = True
    ) -> None:
        entry = self._journal.append(kind, dict(body), now, head_durably=head_durably)
        self._account.apply(entry)


def read_account(path: Path, origin: str, verify_key: str) -> tuple[Account, tuple[Entry, ...]]:
    """Verify a ledger and add it up without holding it.

    Raises:
        LedgerDamaged, ConfigurationError: as ``read_journal``; or an earlier release wrote it.
    """
    entries = read_journal(path, origin, verify_key)
    return account_of(entries), entries


def account_of(entries: tuple[Entry, ...]) -> Account:
    """What verified entries add up to.

    Raises:
        LedgerDamaged, ConfigurationError: as ``Account.apply``.
    """
    account = Account()
    for entry in entries:
        account.apply(entry)
    return account


def _scope(opening: Opening) -> str:
    return f"{opening.dataset} per {opening.unit} ({opening.adjacency}, column {opening.patient_id!r})"
