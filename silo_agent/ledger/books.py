"""One ledger for each dataset of a silo: where it lies, and with which caps it is opened."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Literal

from policies.loader import LoadedPolicy
from privacy.errors import ConfigurationError
from privacy.ids import Context, Digest, SiloId
from privacy.keystore import Identity
from privacy.transparency.checkpoint import LogHead
from silo_agent.ledger.admission import RoundCharge
from silo_agent.ledger.entries import EpsilonCaps, FallbackCaps, Opening
from silo_agent.ledger.ledger import Ledger, Reserved, ledger_origin
from silo_agent.ledger.lifetime import orders_for
from silo_agent.ledger.witnessed import Witness, lacking, unregistered
from silo_agent.settings import SiloSettings


def ledger_path(state_dir: Path, dataset: str) -> Path:
    """File of a dataset's ledger."""
    return state_dir / "ledger" / f"{dataset}.jsonl"


def opening_for(dataset: str, settings: SiloSettings, policy: LoadedPolicy) -> Opening:
    """Scope and caps: the owner's from ``silo.yaml``, else those of the silo's own threat model."""
    terms = settings.datasets[dataset]
    spec = policy.model.spec
    limits = spec.limits
    whole, own = limits.epsilon, limits.of_fallback
    caps = EpsilonCaps(
        round=whole.round,
        job=whole.job,
        lifetime=whole.lifetime,
        fallback=FallbackCaps(round=own.round, job=own.job, lifetime=own.lifetime),
    )
    budget = terms.budget
    epsilon = caps if budget is None else budget.epsilon
    delta_max = limits.delta_max if budget is None else budget.delta_max
    return Opening(
        dataset=dataset,
        unit=ledger_unit(policy),
        patient_id=terms.patient_id,
        epsilon=epsilon,
        delta_max=delta_max,
        period_days=None if budget is None else budget.period_days,
        filter=orders_for(epsilon, delta_max) if terms.composition == "filter" else None,
    )


def ledger_unit(own_policy: LoadedPolicy) -> Literal["patient", "record"]:
    """Whose privacy this silo's ledgers count: patients', unless its own threat model says records."""
    dp = own_policy.model.spec.require.dp
    return "patient" if dp is None else dp.unit


class Books:
    """The open ledgers of a running agent. Damage to any of them stops it before it serves anything."""

    def __init__(
        self, identity: Identity, settings: SiloSettings, policy: LoadedPolicy, now: datetime
    ) -> None:
        """Open them all.

        Raises:
            LedgerDamaged, Conflict: as ``Ledger``.
            ConfigurationError: as ``Ledger``; or a ledger is there whose dataset is in no settings.
        """
        _refuse_orphans(settings)
        self._settings = settings
        self._turn = threading.RLock()
        self._ledgers: dict[str, Ledger] = {}
        silo = SiloId(identity.pin.party)
        try:
            for dataset in settings.datasets:
                self._ledgers[dataset] = Ledger(
                    ledger_path(settings.state_dir, dataset),
                    ledger_origin(identity.pin.federation, silo, dataset),
                    identity.signing,
                    opening_for(dataset, settings, policy),
                    now,
                    declare=False,
                )
        except BaseException:
            self.close()
            raise

    def __getitem__(self, dataset: str) -> Ledger:
        return self._ledgers[dataset]

    def heads_seen(self) -> dict[str, tuple[LogHead, ...]]:
        """By dataset, the log heads that its rounds saw."""
        return {name: ledger.heads_seen() for name, ledger in self._ledgers.items()}

    def last_round(self, job_digest: Digest) -> int:
        """Number of the job's last round that began on any dataset; 0 for a new job."""
        return max(ledger.last_round(job_digest) for ledger in self._ledgers.values())

    def assert_whole(self, seen: Iterable[Witness], now: datetime) -> None:
        """Refuse to go on from a ledger that lacks an entry which a server has seen signed by this silo, or
        without the dataset it is of. Only then do the ledgers say which caps are in force: an entry behind a
        gap would make it final.

        Raises:
            LedgerDamaged: naming the dataset, both heads, the server, and what to do.
        """
        for witness in seen:
            ledger = self._ledgers.get(witness.dataset)
            if ledger is None:
                if witness.dataset not in self._settings.retired_datasets:
                    raise unregistered(witness)
            elif not ledger.holds(witness.head):
                path = ledger_path(self._settings.state_dir, witness.dataset)
                raise lacking(path, witness.dataset, ledger.head, witness)
        for ledger in self._ledgers.values():
            ledger.declare(now)

    def all_spent(self) -> bool:
        """Whether no dataset has budget for another round, ever."""
        spent = {name: ledger.is_spent() for name, ledger in self._ledgers.items()}
        return all(any(spent[scope] for scope in self._settings.scopes(name)) for name in spent)

    def reserve(self, charge: RoundCharge, now: datetime) -> Reserved:
        """Charge a round to every dataset whose patients it may read, its own last, if none of them refuses.

        A crash between two of them leaves the round charged where it was, and not yet paid for: reserved
        again, it is charged to the others only.

        Raises:
            Conflict, OutOfOrder, CapReached: as ``Ledger.assess``, of any of them. Nothing is charged then.
        """
        with self._turn:
            *others, own = (self._ledgers[name] for name in self._settings.scopes(charge.dataset))
            for ledger in (*others, own):
                ledger.assess(charge, now)
            for ledger in others:
                ledger.reserve(charge, now)
            return own.reserve(charge, now)

    def covers(self, dataset: str, job_digest: Digest, number: int) -> bool:
        """Whether that round is reserved, wherever it must be, and may still begin."""
        scopes = self._settings.scopes(dataset)
        return all(self._ledgers[name].covers(job_digest, number) for name in scopes)

    def foresee(self, dataset: str, job_digest: Digest, number: int, rounds: int, now: datetime) -> None:
        """Compute what ``reserve`` will need for a coming round of a job. Changes nothing."""
        for name in self._settings.scopes(dataset):
            self._ledgers[name].foresee(job_digest, number, rounds, now)

    def settle_if_open(self, context: Context, now: datetime) -> None:
        """Settle the block that a round ends whose contribution is complete, be it after a crash."""
        for ledger in self._ledgers.values():
            if ledger.is_open(context):
                ledger.settle(context, now)

    def close(self) -> None:
        """Release every ledger."""
        for ledger in self._ledgers.values():
            ledger.close()


def _refuse_orphans(settings: SiloSettings) -> None:
    """A dataset under a new name would begin with nothing spent, for patients who have paid before."""
    for path in sorted((settings.state_dir / "ledger").glob("*.jsonl")):
        if path.stem not in {*settings.datasets, *settings.retired_datasets}:
            raise ConfigurationError(
                f"{path}: silo.yaml has no dataset {path.stem!r}; if it was renamed, give it its old "
                "name back, so that what was spent stays counted; if its patients are in no other dataset, "
                "name it under retired_datasets"
            )
