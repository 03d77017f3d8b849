"""What an evidence pack claims is an upper bound, and never above the verifier's own."""

from __future__ import annotations

from privacy.dp.accountant import epsilon, epsilon_rdp
from privacy.dp.events import DpEvent
from sealsum.evidence_claim import claimed_epsilon


def test_where_rdp_is_the_smaller_upper_bound_it_is_claimed() -> None:
    # Small q, large σ: PLD's pessimistic rounding adds up over 5,000 steps.
    events = [DpEvent(sample_rate=0.01, noise_multiplier=20.0, steps=5000)]
    assert claimed_epsilon(events, 1e-4) == epsilon_rdp(events, 1e-4) < epsilon(events, 1e-4)


def test_elsewhere_pld_is() -> None:
    events = [DpEvent(sample_rate=0.5, noise_multiplier=4.56, steps=40)]
    assert claimed_epsilon(events, 1e-5) == epsilon(events, 1e-5) < epsilon_rdp(events, 1e-5)
