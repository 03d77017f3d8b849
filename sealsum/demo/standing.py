"""Where a running demo stands: what the aggregator reports and what the agents log, as one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sealsum.demo.results import RefusalRow


@dataclass(frozen=True)
class SiloStanding:
    """One hospital so far, from its agent's own log."""

    name: str
    epsilon_after_round: tuple[float, ...] = ()
    train_ms: tuple[float, ...] = ()
    overhead_ms: tuple[float, ...] = ()
    sent_bytes: tuple[int, ...] = ()
    refusals: int = 0

    @property
    def epsilon(self) -> float:
        """ε of the job after the last reservation."""
        return self.epsilon_after_round[-1] if self.epsilon_after_round else 0.0

    def after(self, event: Mapping[str, Any]) -> SiloStanding:
        """This standing once the agent has logged ``event``."""
        match event.get("event"):
            case "reserved":
                return replace(
                    self, epsilon_after_round=(*self.epsilon_after_round, float(event["epsilon_job"]))
                )
            case "trained":
                return replace(self, train_ms=(*self.train_ms, float(event["train_ms"])))
            case "round_result":
                return replace(
                    self,
                    overhead_ms=(*self.overhead_ms, float(event["overhead_ms"])),
                    sent_bytes=(*self.sent_bytes, int(event["sent_bytes"])),
                )
            case "refused":
                return replace(self, refusals=self.refusals + 1)
        return self


@dataclass(frozen=True)
class Standing:
    """The whole run so far."""

    state: str
    finished: int
    """Rounds that have ended."""
    rounds: int
    openings: int
    silos: tuple[SiloStanding, ...]
    refusals: tuple[RefusalRow, ...] = ()


def after_events(silo: SiloStanding, events: Iterable[Mapping[str, Any]]) -> SiloStanding:
    """Fold several log events into a standing."""
    for event in events:
        silo = silo.after(event)
    return silo
