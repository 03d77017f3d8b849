"""What an evidence pack claims is an upper bound, and never above the verifier's own."""

from __future__ import annotations

import pytest

from privacy.dp.accountant import epsilon, epsilon_rdp
from privacy.dp.events import DpEvent
from sealsum.evidence_replay import claimed_epsilon


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    # The first has many steps that cost next to nothing: a loss grid of 1e-3 would charge more than RDP.
    [(0.01, 20.0, 5000, 1e-4), (0.5, 4.56, 40, 1e-5), (1.0, 30.0, 50, 1e-5)],
)
def test_the_claim_is_what_the_ledger_charged_and_below_rdp(
    rate: float, noise: float, steps: int, delta: float
) -> None:
    events = [DpEvent(sample_rate=rate, noise_multiplier=noise, steps=steps)]
    assert claimed_epsilon(events, delta) == epsilon(events, delta) < epsilon_rdp(events, delta)
