"""What events cost: ε at a δ, by privacy-loss distributions (tight) and by Rényi DP (upper check).

This module is the only door to ``dp_accounting``. Sources: Koskela et al. 2020 and Doroshenko et al.
2022 (PLD); Mironov 2017 and Mironov, Talwar, Zhang 2019 (RDP of the sampled Gaussian). GDP's central
limit is never used: it under-counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from dp_accounting import dp_event
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_gaussian_mechanism,
    identity,
)
from dp_accounting.rdp import rdp_privacy_accountant

from privacy.dp.events import DpEvent, merged

ACCOUNTANT = "pld"
ACCOUNTANT_VERSION = "dp-accounting 0.6 PLD, interval 1e-3, pessimistic"
_INTERVAL = 1e-3
_RDP_ORDERS = [
    *range(2, 129),
    160,
    192,
    256,
    384,
    512,
]  # integer orders have a closed form that always converges


def epsilon(events: Iterable[DpEvent], delta: float) -> float:
    """ε of the composition at ``delta``, add/remove adjacency, rounded up by the PLD discretisation."""
    return _pld(merged(events), delta)


def epsilon_rdp(events: Iterable[DpEvent], delta: float) -> float:
    """ε of the composition at ``delta`` by RDP: looser, an upper bound on the true ε too."""
    accountant = rdp_privacy_accountant.RdpAccountant(_RDP_ORDERS)
    for event in merged(events):
        accountant.compose(_composed(event))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=4096)
def _pld(events: tuple[DpEvent, ...], delta: float) -> float:
    if not events:
        return 0.0
    total = identity(_INTERVAL)
    for event in events:
        total = total.compose(_one_step(event.sample_rate, event.noise_multiplier).self_compose(event.steps))
    return float(total.get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def _one_step(sample_rate: float, noise_multiplier: float) -> PrivacyLossDistribution:
    """Half of the cost of an ε; a job's rounds differ in their number of steps only."""
    return from_gaussian_mechanism(
        noise_multiplier,
        value_discretization_interval=_INTERVAL,
        sampling_prob=sample_rate,
        pessimistic_estimate=True,
    )


def _composed(event: DpEvent) -> dp_event.DpEvent:
    gaussian: dp_event.DpEvent = dp_event.GaussianDpEvent(event.noise_multiplier)
    if event.sample_rate < 1:
        gaussian = dp_event.PoissonSampledDpEvent(event.sample_rate, gaussian)
    return dp_event.SelfComposedDpEvent(gaussian, event.steps)
