"""The exact cost of Gaussian mechanisms without sampling: one number μ, checkable by hand.

Sources: Dong, Roth, Su 2019 (arXiv 1905.02383): μ² = Σ 1/σ_i² (Corollary 3.3), δ(ε) (Corollary 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from privacy.dp.events import Adjacency, CappedEvent, Event

SENSITIVITY: dict[Adjacency, float] = {"add_remove": 1.0, "replace_one": 2.0}
"""How far, in clip norms, the sum moves between neighbours: a unit replaced is one out and one in."""


def is_full_batch(event: Event) -> bool:
    """Whether every step uses every unit."""
    return not isinstance(event, CappedEvent) and event.sample_rate == 1


def mu_squared(events: Iterable[Event], adjacency: Adjacency) -> float:
    """μ² = Σ steps · (sensitivity / σ)² over events that are all ``is_full_batch``."""
    sensitivity = SENSITIVITY[adjacency]
    return math.fsum(event.steps * (sensitivity / event.noise_multiplier) ** 2 for event in events)


def delta_at(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ); for ε up to 700, beyond which e^ε is no float."""
    return _phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * _phi(-mu / 2 - epsilon / mu)


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
