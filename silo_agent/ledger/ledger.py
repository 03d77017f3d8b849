"""The rules of spending: a round is reserved within its caps, once, before any data are read.

RESERVE → BEGIN → SETTLE, each on disk before the next step of the round. What is reserved stays charged,
whether or not the round came to an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from privacy.chain import Entry, Head
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import BudgetExhausted, Conflict, OutOfOrder
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, SiloId
from silo_agent.ledger.journal import Journal, read_journal
from silo_agent.ledger.spending import Account, Begin, JobCharge, Opening, Reserve, Settle


class CapReached(BudgetExhausted):
    """Which cap a reservation would pass."""

    def __init__(self, cap: str, limit: float, cost: float) -> None:
        super().__init__(
            f"{cap}: expected at most {limit:g}, got {cost:.4g} with this round; "
            "the owner of the data may raise the cap in silo.yaml, or the job must ask for less"
        )
        self.cap = cap


_LEAST_ROUND = 1e-3
"""ε below which no useful round fits: a remainder this small counts as spent."""


@dataclass(frozen=True)
class Reserved:
    """Evidence that a round is paid for: only ``Ledger.reserve`` returns one."""

    context: Context
    steps: int
    epsilon_round: float
    epsilon_job: float
    epsilon_lifetime: float
    head: Head
    """Head of the ledger after the reservation; the manifest shows it to others."""


def ledger_origin(federation: str, silo: SiloId, dataset: str) -> str:
    """Name of the chain (docs/architecture.md, State on disk)."""
    return f"{federation}/ledger/{silo}/{dataset}"


class Ledger:
    """One dataset's budget, held by the one process that may spend it."""

    def __init__(self, path: Path, origin: str, key: SigningKey, opening: Opening, now: datetime) -> None:
        """Open or create. A change of caps by their owner is recorded as another ``open`` entry.

        Raises:
            LedgerDamaged, ConfigurationError: as ``Journal``.
            Conflict: the ledger counts another dataset, unit or patient column than ``opening``.
        """
        self._journal = Journal(path, origin, key)
        try:
            self._account = _replay(self._journal.entries)
            held = self._account.opening
            if held is not None and _scope(held) != _scope(opening):
                raise Conflict(
                    f"{path}: it counts {_scope(held)}, expected {_scope(opening)}; a changed privacy unit "
                    "needs another dataset name"
                )
            if held != opening:
                self._append("open", opening.model_dump(mode="json"), now)
        except BaseException:
            self._journal.close()
            raise
        self._opening = opening

    @property
    def head(self) -> Head:
        """Head of the chain."""
        return self._journal.head

    def last_round(self, job_digest: Digest) -> int:
        """Number of the job's last round that was charged; 0 for a new job."""
        return self._account.last_round(job_digest)

    def is_reserved(self, context: Context) -> bool:
        """Whether that round was ever paid for."""
        return context in self._account.reserved

    def is_open(self, context: Context) -> bool:
        """Whether that round has begun and is not settled."""
        return context in self._account.begun - self._account.settled

    def is_spent(self) -> bool:
        """Whether the lifetime caps leave no room for any round."""
        caps = self._opening
        return (
            self._account.epsilon > caps.epsilon.lifetime - _LEAST_ROUND
            or self._account.delta >= caps.delta_max
        )

    def foresee(self, job_digest: Digest, job: str, event: DpEvent, delta: float) -> None:
        """Compute what ``reserve`` will need, so that it finds it cached. Changes nothing."""
        _ = epsilon([event], delta), self._charge(job_digest, job, delta).with_event(event).epsilon

    def reserve(self, reserve: Reserve, now: datetime) -> Reserved:
        """Charge a round, after these checks and before anything else is done for it:

        (1) neither this round nor a later one of the job was reserved: a round is trained once; (2) the
        job keeps its δ and its mechanism, without which its rounds would not compose as computed;
        (3) ε of the round, (4) of the job with this round, (5) of the dataset's life, and (6) δ of its
        life stay within the caps.

        Raises:
            Conflict, OutOfOrder: (1), (2). BudgetExhausted: (3) to (6), naming the cap. Nothing is
                charged then.
        """
        # (1)
        if reserve.context in self._account.reserved:
            raise Conflict(
                f"ledger: round {reserve.context[:16]}… was reserved before; a round is trained once"
            )
        last = self.last_round(reserve.job_digest)
        if reserve.round <= last:
            raise OutOfOrder(
                f"ledger: expected a round after {last} of job {reserve.job}, got {reserve.round}"
            )
        # (2)
        charge = self._charge(reserve.job_digest, reserve.job, reserve.delta)
        if charge.delta != reserve.delta:
            raise Conflict(
                f"ledger: job {reserve.job}: expected delta {charge.delta!r}, got {reserve.delta!r}"
            )
        for past in charge.events[:1]:
            if _mechanism(past) != _mechanism(reserve.event):
                raise Conflict(
                    f"ledger: job {reserve.job}: its sample rate and noise are fixed by its first round"
                )
        # (3) to (6)
        after = charge.with_event(reserve.event)
        others = [job for digest, job in self._account.jobs.items() if digest != reserve.job_digest]
        epsilon_round = epsilon([reserve.event], reserve.delta)
        epsilon_lifetime = after.epsilon + sum(job.epsilon for job in others)
        caps = self._opening
        _assert_within("epsilon.round", epsilon_round, caps.epsilon.round)
        _assert_within("epsilon.job", after.epsilon, caps.epsilon.job)
        _assert_within("epsilon.lifetime", epsilon_lifetime, caps.epsilon.lifetime)
        _assert_within("delta_max", reserve.delta + sum(job.delta for job in others), caps.delta_max)
        entry = self._append("reserve", reserve.model_dump(mode="json"), now)
        return Reserved(
            context=reserve.context,
            steps=reserve.event.steps,
            epsilon_round=epsilon_round,
            epsilon_job=after.epsilon,
            epsilon_lifetime=epsilon_lifetime,
            head=entry.head,
        )

    def begin(self, reserved: Reserved, now: datetime) -> None:
        """Record that batches and noise are about to be drawn.

        Raises:
            OutOfOrder: begun before; a second run of the same round would spend unseen.
        """
        if reserved.context not in self._account.reserved or reserved.context in self._account.begun:
            raise OutOfOrder(f"ledger: round {reserved.context[:16]}… is not waiting to begin")
        self._append("begin", Begin(context=reserved.context).model_dump(mode="json"), now)

    def settle(self, context: Context, now: datetime) -> None:
        """Record that all was done for which the round was charged.

        Raises:
            OutOfOrder: not begun, or settled before.
        """
        if context not in self._account.begun or context in self._account.settled:
            raise OutOfOrder(f"ledger: round {context[:16]}… is not waiting to be settled")
        steps = self._account.reserved[context].event.steps
        self._append("settle", Settle(context=context, steps=steps).model_dump(mode="json"), now)

    def close(self) -> None:
        """Let another process open it."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _charge(self, job_digest: Digest, job: str, delta: float) -> JobCharge:
        return self._account.jobs.get(job_digest, JobCharge(job, delta, ()))

    def _append(self, kind: str, body: Mapping[str, Any], now: datetime) -> Entry:
        entry = self._journal.append(kind, dict(body), now)
        self._account.apply(entry)
        return entry


def read_account(path: Path, origin: str, verify_key: str) -> tuple[Account, tuple[Entry, ...]]:
    """Verify a ledger and add it up without holding it.

    Raises:
        LedgerDamaged, ConfigurationError: as ``read_journal``.
    """
    entries = read_journal(path, origin, verify_key)
    return _replay(entries), entries


def _replay(entries: tuple[Entry, ...]) -> Account:
    account = Account()
    for entry in entries:
        account.apply(entry)
    return account


def _scope(opening: Opening) -> str:
    return f"{opening.dataset} per {opening.unit} ({opening.adjacency}, column {opening.patient_id!r})"


def _mechanism(event: DpEvent) -> tuple[str, float, float]:
    return event.mechanism, event.sample_rate, event.noise_multiplier


def _assert_within(cap: str, cost: float, limit: float) -> None:
    # Written so that NaN and infinity fail.
    if not cost <= limit:
        raise CapReached(cap, limit, cost)
