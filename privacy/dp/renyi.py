"""Rényi divergence of one step at integer orders, the looser, independent way to a cost.

Sources: Mironov 2017 (arXiv 1702.07476); Mironov, Talwar, Zhang 2019 (arXiv 1908.10530), section 3.3, for
Poisson sampling under add/remove. Knows no ε and no δ.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privacy.dp.batch_cap import cap_bites
from privacy.dp.events import Adjacency, CappedEvent, Event

ORDERS: tuple[int, ...] = (*range(2, 129), 160, 192, 256, 384, 512)
"""Integer orders have a closed form that always converges."""
_ROUNDING = 1e-12
"""More than what summing in floating point loses of a step's cost; matters where it is next to nothing."""
_INTEGRATED = 64
_INTEGRATED_NOISE = 0.2
"""Orders up to which, and noise from which on, a step with a unit replaced is integrated: bounded effort."""
_TAILS = 12.0
"""Standard deviations beyond the outermost peaks at which integration ends: e^−72 is below rounding."""


def renyi_divergences(event: Event, adjacency: Adjacency) -> NDArray[np.float64]:
    """Cost of all steps of ``event`` at each of ``ORDERS``: float64[orders]. Costs of events add up."""
    return np.array(_one_step(event.model_copy(update={"steps": 1}), adjacency)) * event.steps


@lru_cache(maxsize=1024)
def _one_step(event: Event, adjacency: Adjacency) -> tuple[float, ...]:
    orders = np.array(ORDERS, dtype=np.float64)
    room = _divergences(event.sample_rate, event.noise_multiplier, adjacency)
    bites = cap_bites(event) if isinstance(event, CappedEvent) else 0.0
    if bites == 0:
        return tuple(room.tolist())
    # Which of the two cases it is depends on other units only, so E[(P/Q)^α] is their mixture.
    full = _divergences(event.sample_rate, event.noise_multiplier / 2, "replace_one")
    with np.errstate(divide="ignore"):  # a cap that always bites has log 0 for the other case
        mixture = np.logaddexp(np.log(bites) + (orders - 1) * full, np.log1p(-bites) + (orders - 1) * room)
    return tuple((mixture / (orders - 1)).tolist())


def _divergences(rate: float, noise: float, adjacency: Adjacency) -> NDArray[np.float64]:
    orders: NDArray[np.float64] = np.array(ORDERS, dtype=np.float64)
    if adjacency == "add_remove":
        return _sampled_gaussian(rate, noise, ORDERS)
    without_sampling = _sampled_gaussian(1.0, noise / 2, ORDERS)
    if rate == 1:
        return without_sampling
    # Removing one unit and adding the other, by Mironov 2017, Proposition 11 (Hölder with exponents 2, 2):
    # D_α(P‖Q) ≤ (α − ½)/(α − 1) · D_2α(P‖R) + D_{2α−1}(R‖Q). R is the step without either unit.
    removing = _sampled_gaussian(rate, noise, [2 * order for order in ORDERS])
    adding = _sampled_gaussian(rate, noise, [2 * order - 1 for order in ORDERS])
    bound: NDArray[np.float64] = np.minimum(
        without_sampling, (orders - 0.5) / (orders - 1) * removing + adding
    )
    # That is loose at low noise, where low orders matter, and these can be integrated.
    if noise >= _INTEGRATED_NOISE:
        low = orders <= _INTEGRATED
        bound[low] = np.minimum(bound[low], _replaced_gaussian(rate, noise, orders[low]))
    return bound


def _replaced_gaussian(rate: float, noise: float, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """D_α((1−q)·N(0,σ²) + q·N(1,σ²) ‖ (1−q)·N(0,σ²) + q·N(−1,σ²)): float64[orders].

    By the trapezoidal rule, whose error falls exponentially for a function that is analytic in a strip, here
    of half-width πσ² (Trefethen, Weideman 2014, Theorem 5.1). The integrand's last peak is at 2α − 1.
    """
    step = min(noise, noise**2) / 16
    x = np.arange(-1 - _TAILS * noise, 2 * orders.max() - 1 + _TAILS * noise, step)
    log_0, log_p, log_q = (-((x - centre) ** 2) / (2 * noise**2) for centre in (0, 1, -1))
    log_p, log_q = (np.logaddexp(np.log1p(-rate) + log_0, np.log(rate) + log_1) for log_1 in (log_p, log_q))
    unit = np.log(step) - np.log(noise * np.sqrt(2 * np.pi))
    logs = [np.logaddexp.reduce(order * log_p + (1 - order) * log_q) for order in orders]
    divergences: NDArray[np.float64] = np.maximum(np.array(logs) + unit + _ROUNDING, 0.0) / (orders - 1)
    return divergences


def _sampled_gaussian(rate: float, noise: float, orders: Sequence[int]) -> NDArray[np.float64]:
    """D_α((1−q)·N(0,σ²) + q·N(1,σ²) ‖ N(0,σ²)), the larger of both directions of add/remove: float64[orders].

    log E[(P/Q)^α] = log Σ_k C(α,k) (1−q)^(α−k) q^k exp((k² − k) / 2σ²), and α/2σ² without sampling.
    """
    if rate == 1:
        return np.array(orders, dtype=np.float64) / (2 * noise**2)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, max(orders) + 1)))))
    result = np.empty(len(orders))
    for index, order in enumerate(orders):
        k = np.arange(order + 1)
        choose = log_factorial[order] - log_factorial[k] - log_factorial[order - k]
        terms = choose + k * np.log(rate) + (order - k) * np.log1p(-rate) + (k * k - k) / (2 * noise**2)
        largest = terms.max()
        result[index] = (largest + np.log(np.exp(terms - largest).sum()) + _ROUNDING) / (order - 1)
    return np.maximum(result, 0.0)
