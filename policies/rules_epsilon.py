"""What a plan's round and its whole job cost in ε, against the caps of a threat model."""

from __future__ import annotations

from collections.abc import Iterator

from policies.findings import Finding
from policies.schema import EpsilonLimits, Spec
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent, fallback_event, round_event
from privacy.plan import RoundPlan
from privacy.roster import Charter

MIN_NOISE = 0.3
MAX_STEPS = 100_000
MAX_SIGNAL = 1000.0
"""Bounds of what is accounted at all. Beyond them ε is far above any cap a threat model may state (100), and
computing it takes minutes and gigabytes: a hostile plan must not buy that with one line."""


def epsilon_within_caps(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """ε of one round and of all rounds of the job at the plan's δ, by PLD over the plan's own events.

    With distributed noise, of both: what the sum costs, and what one silo's own noise gives without it.
    """
    if plan.dp is None:
        return
    yield from _within(
        "epsilon", round_event(plan.dp, plan.training), plan.rounds, plan.dp.delta, spec.limits.epsilon
    )
    own = fallback_event(plan.dp, plan.training)
    if own is not None:
        yield from _within("epsilon_fallback", own, plan.rounds, plan.dp.delta, spec.limits.of_fallback)


def _within(
    name: str, one_round: DpEvent, rounds: int, delta: float, caps: EpsilonLimits
) -> Iterator[Finding]:
    whole_job = one_round.model_copy(update={"steps": one_round.steps * rounds})
    whose = "" if name == "epsilon" else ", of one silo's own noise"
    if not _accountable(whole_job):
        yield Finding(
            f"{name}_unbounded",
            "so little noise over so many steps is no protection that could be accounted for",
            f"noise_multiplier ≥ {MIN_NOISE}{whose}, at most {MAX_STEPS} steps in all, "
            f"steps · (sample_rate / noise_multiplier)² ≤ {MAX_SIGNAL:g}",
            f"noise_multiplier {whole_job.noise_multiplier:g}, sample_rate {whole_job.sample_rate:g}, "
            f"{whole_job.steps} steps",
            "sign the job with more noise or fewer steps"
            + ("" if not whose else ", fewer noise_shares or model: local"),
        )
        return
    for scope, event, cap in (("round", one_round, caps.round), ("job", whole_job, caps.job)):
        cost = epsilon([event], delta)
        if not cost <= cap:
            yield Finding(
                f"{name}_{scope}",
                f"one {scope} would cost more ε than the threat model allows"
                + ("" if not whose else ", should the secure sum fail"),
                f"at most {cap:g} at δ = {delta:g} (limits.{name}.{scope})",
                f"{cost:.4g} ({event.steps} steps, noise_multiplier {event.noise_multiplier:g}{whose}, "
                f"sample_rate {event.sample_rate:g})",
                "sign the job with more noise, a lower sample_rate, or fewer steps or rounds"
                + ("" if not whose else "; or with fewer noise_shares, down to model: local"),
            )


def _accountable(event: DpEvent) -> bool:
    signal = event.steps * (event.sample_rate / event.noise_multiplier) ** 2
    return event.noise_multiplier >= MIN_NOISE and event.steps <= MAX_STEPS and signal <= MAX_SIGNAL
