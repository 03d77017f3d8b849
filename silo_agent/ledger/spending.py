"""What a ledger's entries add up to: its state is derived from them alone, and ε is computed, never stored.

Values in, values out. Within a job ε composes by PLD at the job's δ; how jobs compose is ``lifetime``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pydantic import ValidationError

from privacy.chain import WRITTEN_OFF, Entry
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import ConfigurationError, Conflict, LedgerDamaged
from privacy.ids import Context, Digest
from silo_agent.ledger.entries import FORMAT, Begin, Opening, Reserve, Settle

_BEFORE_ANY = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class JobCharge:
    """What one job has reserved: all its rounds are one mechanism, so they are counted, not listed."""

    job: str
    dataset: str
    """Whose records it reads."""
    delta: float
    event: DpEvent
    """Of one round."""
    fallback: DpEvent | None
    rounds: int = 0
    """Reserved, whether or not they began."""
    begun: int = 0
    block: tuple[int, int] = (0, 0)
    """First and last round of the newest block; earlier ones are over."""
    begun_in_block: int = 0
    last_begun: int = 0
    settled: bool = True
    """Whether the newest block is settled."""
    times: tuple[tuple[datetime, int], ...] = ()
    """When how many rounds were reserved."""

    @property
    def epsilon(self) -> float:
        """ε of all its reserved rounds at its δ."""
        return self.epsilon_of(self.rounds)

    @property
    def epsilon_fallback(self) -> float:
        """The same, should the secure sum fail."""
        return self.fallback_of(self.rounds)

    def epsilon_of(self, rounds: int) -> float:
        """ε of so many of its rounds."""
        return _epsilon(self.event, rounds, self.delta)

    def fallback_of(self, rounds: int) -> float:
        """ε_fallback of so many of its rounds."""
        return _epsilon(self.fallback or self.event, rounds, self.delta)

    def rounds_after(self, start: datetime) -> int:
        """Rounds reserved later than that."""
        return sum(rounds for at, rounds in self.times if at > start)

    @property
    def steps(self) -> int:
        """Steps of all reserved rounds."""
        return self.rounds * self.event.steps

    @property
    def events(self) -> tuple[DpEvent, ...]:
        """What was reserved, for an accountant."""
        return (self.event.model_copy(update={"steps": self.steps}),) if self.rounds else ()

    @property
    def own_events(self) -> tuple[DpEvent, ...]:
        """The same by the silo's own noise alone."""
        own = self.fallback or self.event
        return (own.model_copy(update={"steps": self.steps}),) if self.rounds else ()

    def holds(self, number: int) -> bool:
        """Whether that round is reserved and may still begin."""
        first, last = self.block
        return first <= number <= last and number > self.last_begun and not self.settled

    def settlement(self, job_digest: Digest) -> Settle:
        """What is to be said of the newest block."""
        first, last = self.block
        steps = self.begun_in_block * self.event.steps
        return Settle(
            job_digest=job_digest,
            first_round=first,
            last_round=last,
            begun=self.begun_in_block,
            steps=steps,
        )


def _epsilon(event: DpEvent, rounds: int, delta: float) -> float:
    if rounds == 0:
        return 0.0
    return epsilon((event.model_copy(update={"steps": rounds * event.steps}),), delta)


@dataclass
class Account:
    """The state that a ledger's entries lead to."""

    opening: Opening | None = None
    first_opening: Opening | None = None
    """What a filter's promise was fixed by; later caps may only be lower."""
    latest: datetime = _BEFORE_ANY
    """Latest time of any entry: a clock that was set back does not bring a period's budget back."""
    jobs: dict[Digest, JobCharge] = field(default_factory=dict)
    begun: dict[Context, tuple[Digest, int]] = field(default_factory=dict)
    """Rounds whose batches and noise were drawn: job and number."""

    written_off: bool = False
    """Entries are lost for good: nothing is left of the lifetime budget, whatever the caps."""

    @property
    def rounds(self) -> int:
        """Rounds reserved by all jobs."""
        return sum(charge.rounds for charge in self.jobs.values())

    def apply(self, entry: Entry) -> None:
        """Follow one verified entry.

        Raises:
            LedgerDamaged: its owner signed something that the rules of spending do not allow.
            ConfigurationError: an earlier release wrote it.
        """
        try:
            self._apply(entry)
            self.latest = max(self.latest, datetime.fromisoformat(entry.at))
        except ValidationError as error:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: its body is not a {entry.kind}") from error

    def _apply(self, entry: Entry) -> None:
        if self.opening is None and entry.kind not in ("open", WRITTEN_OFF):
            raise LedgerDamaged("ledger: expected it to start with an open entry")
        if self.written_off and entry.kind != "open":
            raise LedgerDamaged(f"ledger: entry {entry.seq}: {entry.kind} in a ledger that was written off")
        if entry.kind == WRITTEN_OFF:
            self.written_off = True
        elif entry.kind == "open":
            _refuse_other_format(entry)
            self.opening = Opening.model_validate(entry.body)
            self.first_opening = self.first_opening or self.opening
            try:
                assert_same_composition(self.first_opening, self.opening, "ledger")
            except Conflict as error:
                raise LedgerDamaged(f"ledger: entry {entry.seq}: {error}") from error
        elif entry.kind == "reserve":
            self._reserve(Reserve.model_validate(entry.body), entry)
        elif entry.kind == "begin":
            self._begin(Begin.model_validate(entry.body), entry)
        elif entry.kind == "settle":
            self._settle(Settle.model_validate(entry.body), entry)
        else:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: unknown kind {entry.kind}")

    def _reserve(self, reserve: Reserve, entry: Entry) -> None:
        new = JobCharge(reserve.job, reserve.dataset, reserve.delta, reserve.event, reserve.fallback)
        charge = self.jobs.get(reserve.job_digest, new)
        if (charge.delta, charge.event, charge.fallback) != (new.delta, new.event, new.fallback):
            raise LedgerDamaged(f"ledger: entry {entry.seq}: the job's δ or mechanism changed")
        if reserve.first_round <= charge.block[1]:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: round {reserve.first_round} is reserved twice")
        self.jobs[reserve.job_digest] = replace(
            charge,
            rounds=charge.rounds + reserve.rounds,
            block=(reserve.first_round, reserve.last_round),
            begun_in_block=0,
            settled=False,
            times=(*charge.times, (max(self.latest, datetime.fromisoformat(entry.at)), reserve.rounds)),
        )

    def _begin(self, begin: Begin, entry: Entry) -> None:
        charge = self.jobs.get(begin.job_digest)
        if charge is None or not charge.holds(begin.round) or begin.context in self.begun:
            raise LedgerDamaged(f"ledger: entry {entry.seq}: begin is out of order")
        self.begun[begin.context] = begin.job_digest, begin.round
        self.jobs[begin.job_digest] = replace(
            charge,
            begun=charge.begun + 1,
            begun_in_block=charge.begun_in_block + 1,
            last_begun=begin.round,
        )

    def _settle(self, settle: Settle, entry: Entry) -> None:
        charge = self.jobs.get(settle.job_digest)
        if charge is None or charge.settled or settle != charge.settlement(settle.job_digest):
            raise LedgerDamaged(f"ledger: entry {entry.seq}: settle is out of order or miscounts")
        self.jobs[settle.job_digest] = replace(charge, settled=True)


def assert_same_composition(first: Opening, later: Opening, where: object) -> None:
    """A ledger composes jobs as its first opening said: no other way, cheaper in hindsight, is taken later,
    and a filter's promise is for caps that were fixed before its first event.

    Raises:
        Conflict: another way, or a filter whose caps were raised.
    """
    if first.filter != later.filter:
        ways = {True: "composition: basic", False: "composition: filter"}
        raise Conflict(
            f"{where}: expected {ways[first.filter is None]} as when it was opened, got "
            f"{ways[later.filter is None]}; set it back in silo.yaml"
        )
    caps, held = later.epsilon, first.epsilon
    if first.filter is not None and (
        caps.lifetime > held.lifetime
        or caps.of_fallback.lifetime > held.of_fallback.lifetime
        or later.delta_max > first.delta_max
    ):
        raise Conflict(
            f"{where}: expected lifetime caps of at most ε {held.lifetime:g}, ε_fallback "
            f"{held.of_fallback.lifetime:g} and δ {first.delta_max:g}: a filter holds for caps fixed at its "
            "opening; lower them in silo.yaml"
        )


def _refuse_other_format(entry: Entry) -> None:
    written = entry.body.get("format", 1)
    if written != FORMAT:
        raise ConfigurationError(
            f"ledger: expected format {FORMAT}, got {written!r}, of another release of Sealsum; read with "
            "that release what was spent (sealsum silo budget), move the .jsonl and its .head away together, "
            "keep both, and lower the dataset's budget in silo.yaml by what was spent"
        )
