"""What a ledger's entries say: the bodies of ``open``, ``reserve``, ``begin`` and ``settle``, and caps.

Values only; what they add up to is in ``spending``, what may be reserved in ``admission``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real
from privacy.dp.events import DpEvent
from privacy.ids import HexContext, HexDigest, JobName, Name
from privacy.transparency.checkpoint import LogHead

FORMAT: Literal[2] = 2
"""Version of the bodies below; 1 reserved each round by itself and is no longer read."""

PositiveReal = Annotated[Real, Field(gt=0)]
Round = Annotated[int, Field(ge=1)]


class FallbackCaps(Frozen):
    """The most ε_fallback: what a silo's own noise gives by itself, should the secure sum fail."""

    round: PositiveReal
    job: PositiveReal
    lifetime: PositiveReal
    period: PositiveReal | None = None


class EpsilonCaps(Frozen):
    """The most ε that a patient's data may cost in one round, in one job, and ever."""

    round: PositiveReal
    job: PositiveReal
    lifetime: PositiveReal
    period: PositiveReal | None = None
    """Of all that is reserved within any ``period_days``; none: the lifetime is the only span that counts."""
    fallback: FallbackCaps | None = None
    """Left out: the same numbers hold for ε_fallback too, which is the strict choice."""

    @property
    def of_fallback(self) -> FallbackCaps:
        """The caps on ε_fallback in force."""
        if self.fallback is not None:
            return self.fallback
        return FallbackCaps(round=self.round, job=self.job, lifetime=self.lifetime, period=self.period)


class FilterOrders(Frozen):
    """Rényi orders of a filter over all jobs, one for ε and one for ε_fallback, named before the first."""

    order: Annotated[int, Field(ge=2)]
    fallback_order: Annotated[int, Field(ge=2)]


class Opening(Frozen):
    """Body of ``open``: whose privacy this ledger counts, and its owner's caps; a later one replaces them."""

    format: Literal[2] = FORMAT
    dataset: Name
    unit: Literal["patient", "record"]
    adjacency: Literal["add_remove"] = "add_remove"
    patient_id: str
    epsilon: EpsilonCaps
    delta_max: PositiveReal
    period_days: Annotated[int, Field(ge=1)] | None = None
    filter: FilterOrders | None = None
    """How jobs compose over the dataset's life: by these orders, or, with none, ε and δ add up. The first
    ``open`` of a ledger decides."""

    @model_validator(mode="after")
    def _a_period_has_a_length_and_a_cap(self) -> Self:
        caps = (self.epsilon.period, self.epsilon.of_fallback.period)
        if any((cap is None) != (self.period_days is None) for cap in caps):
            raise ValueError("period_days: expected it exactly where epsilon and its fallback have period")
        return self


class Reserve(Frozen):
    """Body of ``reserve``: the worst that a block of a job's rounds can cost; before data are read."""

    job: JobName
    job_digest: HexDigest
    """Digest of the signed job: its mechanism, δ and number of rounds are bound by it."""
    dataset: Name
    """Whose records the job reads: this ledger's, or those of one that shares patients with it."""
    first_round: Round
    last_round: Round
    event: DpEvent
    """Of one round."""
    fallback: DpEvent | None
    """What one silo's own noise gives in a round; none where that is all the noise there is."""
    delta: Annotated[Real, Field(gt=0, lt=1)]
    log_head: LogHead
    """Head of the aggregator's log as it was offered to us: a rewritten log shows."""

    @property
    def rounds(self) -> int:
        """How many rounds the block holds."""
        return self.last_round - self.first_round + 1

    @model_validator(mode="after")
    def _is_a_block(self) -> Self:
        if self.first_round > self.last_round:
            raise ValueError(f"last_round: expected at least {self.first_round}, got {self.last_round}")
        return self

    @model_validator(mode="after")
    def _the_fallback_is_no_better(self) -> Self:
        one, own = self.event, self.fallback
        if own is not None and (
            (own.mechanism, own.sample_rate, own.steps) != (one.mechanism, one.sample_rate, one.steps)
            or own.noise_multiplier > one.noise_multiplier
        ):
            raise ValueError("fallback: expected the same steps as event, with no more noise")
        return self


class Begin(Frozen):
    """Body of ``begin``: from here on batches and noise of one reserved round are drawn."""

    job_digest: HexDigest
    context: HexContext
    round: Round
    log_head: LogHead
    """As in ``Reserve``, now of this round's offer."""


class Settle(Frozen):
    """Body of ``settle``: a block is over, and so many of its rounds began. Nothing is refunded."""

    job_digest: HexDigest
    first_round: Round
    last_round: Round
    begun: Annotated[int, Field(ge=0)]
    """0 in the ledger of another dataset than the job reads: rounds begin in that one's."""
    steps: Annotated[int, Field(ge=0)]
