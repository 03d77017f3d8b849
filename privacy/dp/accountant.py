"""What events cost: ε at a δ, the least of the upper bounds that hold, and which of them it is.

This module is the only door to ``dp_accounting``. Full batches have an exact formula (``full_batch``);
everything else is composed by privacy-loss distributions and checked from above by Rényi DP. Sources:
Koskela et al. 2020 and Doroshenko et al. 2022 (PLD); Balle, Wang 2018 (exact Gaussian); Canonne, Kamath,
Steinke 2020, Proposition 12 (Rényi DP to ε). GDP's central limit is never used: it under-counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_gaussian_mechanism,
    identity,
)
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

from privacy.dp.batch_cap import cap_bites
from privacy.dp.events import Adjacency, CappedEvent, Event, Stated, merged, unmixed
from privacy.dp.full_batch import SENSITIVITY, is_full_batch, mu_squared
from privacy.dp.renyi import ORDERS, renyi_divergences
from privacy.errors import ConfigurationError

ACCOUNTANT = "pld"
ACCOUNTANT_VERSION = "dp-accounting 0.6 PLD, interval 1e-3 or finer, pessimistic; full batches exactly"

_INTERVAL = 1e-3
_SHARE = 2.5e-4
"""Rounding losses to a grid of interval h adds about h²/6 to a step's variance; this share of it at most."""
_STEP_POINTS, _TOTAL_POINTS, _COARSE_POINTS = 1 << 17, 1 << 20, 1 << 10
"""Most grid points of one step's losses, of the composition and of a step in a first look: no schedule buys
minutes or gigabytes."""
_WIDEST_INTERVAL = 100.0
"""What needs a coarser grid costs an ε of many thousands: RDP's bound says as much."""
_RELATIVE, _ABSOLUTE = 1e-9, 1e-10
"""Root finding stops at 1e-12: rounding by these keeps its results on the safe side."""

_RELATION = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}


@dataclass(frozen=True)
class Price:
    """What a composition costs."""

    epsilon: float
    """Least of the bounds."""
    epsilon_rdp: float
    mu: float | None
    """Only for full batches: the composition is exactly as hard to tell apart as N(0,1) from N(μ,1)."""
    accountant: Literal["gaussian", "pld", "rdp"]
    """Which bound ``epsilon`` is: the exact formula, the tight one, or the upper check."""


def epsilon(events: Iterable[Event | Stated], delta: float, adjacency: Adjacency = "add_remove") -> float:
    """ε of the composition at ``delta``, rounded up. Raises as ``price`` does."""
    return price(events, delta, adjacency).epsilon


def epsilon_rdp(events: Iterable[Event | Stated], delta: float, adjacency: Adjacency = "add_remove") -> float:
    """ε of the composition at ``delta`` by RDP: looser, an upper bound on the true ε too."""
    return _rdp(merged(unmixed(events, adjacency)), delta, adjacency)


def price(events: Iterable[Event | Stated], delta: float, adjacency: Adjacency) -> Price:
    """ε of the composition by every accountant that knows its events.

    Raises:
        MixedAdjacency: an event states the other adjacency. ConfigurationError: δ is not in (0, 1).
    """
    if not 0 < delta < 1:
        raise ConfigurationError(
            f"delta: expected a number above 0 and below 1, got {delta!r}; take less than 1 / number of units"
        )
    return _price(merged(unmixed(events, adjacency)), delta, adjacency)


@lru_cache(maxsize=4096)
def _price(events: tuple[Event, ...], delta: float, adjacency: Adjacency) -> Price:
    if not events:
        return Price(0.0, 0.0, None, "pld")
    rdp = _rdp(events, delta, adjacency)
    if all(map(is_full_batch, events)):
        mu = math.sqrt(mu_squared(events, adjacency))
        return Price(full_batch_epsilon(mu, delta), rdp, mu, "gaussian")
    interval = _interval(events, adjacency, rdp, delta)
    if interval > _WIDEST_INTERVAL:
        return Price(rdp, rdp, None, "rdp")
    pld = _pld(events, adjacency, interval).get_epsilon_for_delta(delta)
    # Where steps cost next to nothing, the grid's pessimism can pass RDP's. Both are upper bounds.
    return Price(float(pld), rdp, None, "pld") if pld <= rdp else Price(rdp, rdp, None, "rdp")


def full_batch_epsilon(mu: float, delta: float) -> float:
    """Least ε at which N(μ,1) and N(0,1) are (ε, δ)-indistinguishable, rounded up."""
    with np.errstate(divide="ignore"):  # it takes log 0 where δ vanishes
        return float(get_epsilon_gaussian(1 / mu, delta)) * (1 + _RELATIVE) + _ABSOLUTE


@lru_cache(maxsize=256)
def full_batch_mu(epsilon_cap: float, delta: float) -> float:
    """Largest μ whose ε at ``delta`` is at most ``epsilon_cap``, rounded down."""
    with np.errstate(divide="ignore"):
        mu = 1 / float(get_sigma_gaussian(epsilon_cap, delta))
    while full_batch_epsilon(mu, delta) > epsilon_cap:
        mu *= 1 - _RELATIVE
    return mu


def _rdp(events: tuple[Event, ...], delta: float, adjacency: Adjacency) -> float:
    if not events:
        return 0.0
    total = sum(renyi_divergences(event, adjacency) for event in events)
    return float(compute_epsilon(ORDERS, total, delta)[0])


def _pld(events: tuple[Event, ...], adjacency: Adjacency, interval: float) -> PrivacyLossDistribution:
    total = identity(interval)
    full = [event for event in events if is_full_batch(event)]
    if full:
        # Many Gaussians are one, exactly; rounding it once costs less than rounding each.
        deviation = 1 / math.sqrt(mu_squared(full, "add_remove"))
        total = total.compose(_gaussian(1.0, deviation, adjacency, interval))
    for event in events:
        if not is_full_batch(event):
            one_step = _gaussian(event.sample_rate, event.noise_multiplier, adjacency, interval)
            if isinstance(event, CappedEvent):
                at_cap = _gaussian(event.sample_rate, event.noise_multiplier / 2, "replace_one", interval)
                one_step = at_cap.compute_mixture(one_step, cap_bites(event))
            total = total.compose(one_step.self_compose(event.steps))
    return total


@lru_cache(maxsize=64)
def _gaussian(rate: float, noise: float, adjacency: Adjacency, interval: float) -> PrivacyLossDistribution:
    """One step. Half of the cost of an ε; a job's rounds differ in their number of steps only.

    With a unit replaced, (1−q)·N(0,σ²) + q·N(1,σ²) against the same with −1 dominates (docs/privacy.md).
    """
    return from_gaussian_mechanism(
        noise,
        value_discretization_interval=interval,
        sampling_prob=rate,
        pessimistic_estimate=True,
        neighboring_relation=_RELATION[adjacency],
    )


def _interval(events: tuple[Event, ...], adjacency: Adjacency, rdp: float, delta: float) -> float:
    """Interval of the grid: so fine that pessimism is a small share of the cost, so coarse that it ends.

    Each term grows, or stays, as events are added, so the composition's rounding never shrinks with it.
    """
    steps = sum(event.steps for event in events)
    variance = sum(event.steps * _loss_variance(event, adjacency) for event in events) / steps
    widest = max(_loss_range(event, adjacency) for event in events)
    interval = max(min(_INTERVAL, math.sqrt(6 * _SHARE * variance)), widest / _STEP_POINTS)
    if rdp <= interval * _TOTAL_POINTS:
        return interval
    # Where RDP is far off (hardly any noise), a first look on a coarse grid says how wide the sum is.
    coarse = max(widest / _COARSE_POINTS, steps * widest / (4 * _TOTAL_POINTS))
    rough = rdp
    if coarse <= _WIDEST_INTERVAL:
        rough = float(_pld(events, adjacency, coarse).get_epsilon_for_delta(delta))
    return max(interval, min(rdp, rough) / _TOTAL_POINTS)


def _loss_variance(event: Event, adjacency: Adjacency) -> float:
    """About the variance of one step's privacy loss: χ² of the sampled Gaussian, or q times the whole."""
    signal = (SENSITIVITY[adjacency] / event.noise_multiplier) ** 2
    return min(event.sample_rate**2 * math.expm1(min(signal, 50.0)), event.sample_rate * signal)


def _loss_range(event: Event, adjacency: Adjacency) -> float:
    """About the largest privacy loss of one step within ten standard deviations."""
    capped = 2 if isinstance(event, CappedEvent) else 1
    sensitivity = max(SENSITIVITY[adjacency], capped * capped)
    return sensitivity * (10 * event.noise_multiplier + sensitivity) / event.noise_multiplier**2
