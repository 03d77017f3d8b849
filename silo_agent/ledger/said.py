"""What the agent's operational log says of a new reservation: ids and ε."""

from __future__ import annotations

from silo_agent.ledger.ledger import Reserved


def said_of(reserved: Reserved) -> dict[str, str | int | float]:
    """What the log says of a new block."""
    epsilon, fallback = reserved.quote.epsilon, reserved.quote.fallback
    return {
        "dataset": reserved.charge.dataset,
        "last_round": reserved.block[1],
        "epsilon_round": round(epsilon.round, 6),
        "epsilon_job": round(epsilon.job, 6),
        "epsilon_lifetime": round(epsilon.lifetime, 6),
        "epsilon_fallback_round": round(fallback.round, 6),
        "epsilon_fallback_job": round(fallback.job, 6),
        "epsilon_fallback_lifetime": round(fallback.lifetime, 6),
    }
