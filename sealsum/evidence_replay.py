"""What ledgers say that a job cost, block by block, so that any accountant can price it again.

Values in, values out: entries come verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from privacy.chain import Entry
from privacy.dp.accountant import epsilon, epsilon_rdp
from privacy.dp.events import DpEvent
from privacy.dp.full_batch import is_full_batch, mu_squared
from privacy.ids import SiloId
from privacy.plan import JobSpec
from silo_agent.ledger.entries import Reserve
from silo_agent.ledger.spending import Account, JobCharge

_DECIMALS = 4


def accountant_replay(job: JobSpec, ledgers: Mapping[SiloId, Iterable[Entry]]) -> dict[str, Any]:
    """``dp/accountant-replay.json``: each silo's caps, its blocks, and ε after each of them."""
    silos = {silo: _silo_replay(job, entries) for silo, entries in sorted(ledgers.items())}
    return {
        "delta": None if job.dp is None else job.dp.model_dump(mode="json")["delta"],
        "silos": {silo: replay for silo, replay in silos.items() if replay["blocks"]},
    }


def _silo_replay(job: JobSpec, entries: Iterable[Entry]) -> dict[str, Any]:
    account, blocks, caps = Account(), [], None
    for entry in entries:
        account.apply(entry)
        if entry.kind == "open":
            caps = entry.body
        if entry.kind == "reserve" and entry.body["job_digest"] == job.digest:
            reserved = Reserve.model_validate(entry.body)
            blocks.append(
                {
                    "entry": entry.seq,
                    "at": entry.at,
                    "first_round": reserved.first_round,
                    "last_round": reserved.last_round,
                    "event": entry.body["event"],
                    "fallback": entry.body["fallback"],
                    "after": priced(account.jobs[job.digest]),
                }
            )
    caps = caps or {}
    return {"caps": {name: caps.get(name) for name in ("epsilon", "delta_max", "unit")}, "blocks": blocks}


def priced(charge: JobCharge) -> dict[str, Any]:
    """What one job has cost so far, as decimals that are never below what was computed."""
    whole, alone = charge.events, charge.own_events
    full = bool(whole) and all(is_full_batch(event) for event in whole)
    return {
        "epsilon": _rounded_up(claimed_epsilon(whole, charge.delta)),
        "epsilon_rdp": _rounded_up(epsilon_rdp(whole, charge.delta)),
        "epsilon_fallback": _rounded_up(claimed_epsilon(alone, charge.delta)),
        "epsilon_fallback_rdp": _rounded_up(epsilon_rdp(alone, charge.delta)),
        "mu": _rounded_up(math.sqrt(mu_squared(whole, "add_remove"))) if full else None,
        "rounds": charge.rounds,
        "steps": charge.steps,
    }


def claimed_epsilon(events: Sequence[DpEvent], delta: float) -> float:
    """The smaller of two upper bounds: PLD's discretisation can cost more than RDP where ε is small."""
    return min(epsilon(events, delta), epsilon_rdp(events, delta))


def _rounded_up(number: float) -> str:
    """Never below what was computed, so that the claim stays true."""
    return f"{math.ceil(number * 10**_DECIMALS) / 10**_DECIMALS:.{_DECIMALS}f}"
