"""What people see of a ledger: spent and left, per dataset and job. Computed from verified entries only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from privacy.ids import SiloId
from privacy.keystore import Identity
from silo_agent.ledger.books import ledger_path, opening_for
from silo_agent.ledger.entries import Opening
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.ledger.lifetime import all_of_it, lifetime_of, period_of
from silo_agent.ledger.spending import Account
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import SiloSettings


def statement_of(settings: SiloSettings, identity: Identity, now: datetime) -> dict[str, Any]:
    """Every dataset's account, as ``sealsum silo budget --json`` prints it.

    Raises:
        LedgerDamaged: a ledger does not verify.
    """
    policy = load_own_policy(settings)
    datasets = {}
    for dataset in settings.datasets:
        path = ledger_path(settings.state_dir, dataset)
        account = Account()
        if path.exists():
            silo = SiloId(identity.pin.party)
            origin = ledger_origin(identity.pin.federation, silo, dataset)
            account, _ = read_account(path, origin, identity.signing.verify_key)
        opening = account.opening or opening_for(dataset, settings, policy)
        datasets[dataset] = dataset_statement(opening, account, now)
    return {"federation": identity.pin.federation, "silo": identity.pin.party, "datasets": datasets}


def dataset_statement(opening: Opening, account: Account, now: datetime) -> dict[str, Any]:
    """One dataset's account: caps, spent, left, and each job."""
    life = all_of_it(opening) if account.written_off else lifetime_of(opening, account.jobs.values())
    caps, own = opening.epsilon, opening.epsilon.of_fallback
    return {
        "unit": opening.unit,
        "adjacency": opening.adjacency,
        "written_off": account.written_off,
        "composition": "basic" if opening.filter is None else "filter",
        "caps": {
            "epsilon": {"round": caps.round, "job": caps.job, "lifetime": caps.lifetime},
            "epsilon_fallback": {"round": own.round, "job": own.job, "lifetime": own.lifetime},
            "delta": opening.delta_max,
        },
        "spent": {
            "epsilon": life.epsilon,
            "epsilon_fallback": life.fallback,
            "delta": life.delta,
            "rounds": account.rounds,
            "begun": len(account.begun),
        },
        "remaining": {
            "epsilon": max(0.0, caps.lifetime - life.epsilon),
            "epsilon_fallback": max(0.0, own.lifetime - life.fallback),
            "delta": max(0.0, opening.delta_max - life.delta),
        },
        "period": _period_statement(opening, account, now),
        "jobs": [
            {
                "job": charge.job,
                "job_digest": digest,
                "dataset": charge.dataset,
                "rounds": charge.rounds,
                "begun": charge.begun,
                "epsilon": charge.epsilon,
                "epsilon_fallback": charge.epsilon_fallback,
                "delta": charge.delta,
            }
            for digest, charge in account.jobs.items()
        ],
    }


def _period_statement(opening: Opening, account: Account, now: datetime) -> dict[str, Any] | None:
    """The last ``period_days``; the lifetime beside it never resets."""
    if opening.period_days is None:
        return None
    period = period_of(opening, account.jobs.values(), max(now, account.latest))
    caps, own = opening.epsilon.period, opening.epsilon.of_fallback.period
    return {
        "days": opening.period_days,
        "caps": {"epsilon": caps, "epsilon_fallback": own},
        "spent": {"epsilon": period.epsilon, "epsilon_fallback": period.fallback, "delta": period.delta},
    }
