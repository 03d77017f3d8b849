"""What a job would cost the silo's ledgers, by the ledgers' own rules, before anything is reserved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from policies.findings import Finding
from policies.loader import LoadedPolicy
from privacy.dp.events import fallback_event, round_event
from privacy.ids import SiloId
from privacy.keystore import Identity
from privacy.plan import JobSpec
from silo_agent.ledger.admission import CapReached, Costs, assert_within_caps, quote
from silo_agent.ledger.books import ledger_path, opening_for
from silo_agent.ledger.entries import Opening
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.ledger.spending import Account, JobCharge
from silo_agent.refusals import finding_of
from silo_agent.settings import SiloSettings


@dataclass(frozen=True)
class Cost:
    """A job before the ledger of one dataset."""

    dataset: str
    before: Costs
    after: Costs
    """With all rounds that the job has left."""
    delta: float
    """Of the dataset's whole life, after the job."""
    lifetime: float
    """The cap."""
    rounds_left: int
    rounds_fit: int
    """How many of those the caps allow."""
    refused_by: str
    """The cap that ends the job before its last round; empty if none does."""

    @property
    def left_after(self) -> float:
        """ε of the dataset's life that is left after the job."""
        return max(0.0, self.lifetime - self.after.lifetime)


def job_charge(job: JobSpec) -> JobCharge | None:
    """What one round of the job is to an accountant; ``None`` without DP."""
    if job.dp is None:
        return None
    event = round_event(job.dp, job.training)
    return JobCharge(job.job, job.dataset, job.dp.delta, event, fallback_event(job.dp, job.training))


def read_accounts(
    settings: SiloSettings, identity: Identity, own_policy: LoadedPolicy
) -> dict[str, tuple[Opening, Account]]:
    """Each dataset's caps and what its ledger, read and verified now, adds up to.

    Raises:
        LedgerDamaged: one does not verify.
    """
    accounts = {}
    for dataset in settings.datasets:
        path = ledger_path(settings.state_dir, dataset)
        account = Account()
        if path.exists():
            origin = ledger_origin(identity.pin.federation, SiloId(identity.pin.party), dataset)
            account, _ = read_account(path, origin, identity.signing.verify_key)
        accounts[dataset] = (account.opening or opening_for(dataset, settings, own_policy), account)
    return accounts


def costs_of(
    job: JobSpec,
    scopes: tuple[str, ...],
    accounts: Mapping[str, tuple[Opening, Account]],
    now: datetime,
) -> tuple[Cost, ...]:
    """The job before every ledger that it is charged to, its own dataset's last; none without DP."""
    charge = job_charge(job)
    if charge is None:
        return ()
    return tuple(_cost(job, charge, scope, *accounts[scope], now) for scope in scopes)


def first_round_refused(costs: tuple[Cost, ...]) -> Finding | None:
    """Why not even the job's next round can be paid for, in public words; ``None`` if it can."""
    for cost in costs:
        if cost.rounds_left and not cost.rounds_fit:
            return finding_of(CapReached(cost.refused_by, 0, 0))
    return None


def _cost(
    job: JobSpec, charge: JobCharge, scope: str, opening: Opening, account: Account, now: datetime
) -> Cost:
    held = account.jobs.get(job.digest, charge)
    left = max(0, job.rounds - held.block[1])

    def refusal(more: int) -> str:
        try:
            assert_within_caps(quote(opening, account, job.digest, held, more, now), opening)
        except CapReached as cap:
            return cap.cap
        return ""

    fit, refused_by = _fitting(left, refusal)
    after = quote(opening, account, job.digest, held, left, now)
    return Cost(
        dataset=scope,
        before=quote(opening, account, job.digest, held, 0, now).epsilon,
        after=after.epsilon,
        delta=after.delta,
        lifetime=opening.epsilon.lifetime,
        rounds_left=left,
        rounds_fit=fit,
        refused_by=refused_by,
    )


def _fitting(left: int, refusal: Callable[[int], str]) -> tuple[int, str]:
    """How many of the rounds left are within all caps, and which cap the next would pass: by halving."""
    last = refusal(left)
    if not last:
        return left, ""
    low, high = 0, left
    while high - low > 1:
        middle = (low + high) // 2
        cap = refusal(middle)
        low, high, last = (low, middle, cap) if cap else (middle, high, last)
    return low, last
