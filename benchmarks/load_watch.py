"""Watch the processes of a job from outside, Linux only: when rounds ended, CPU time, resident memory."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rounds_bare import cpu_ms
from streaming_memory import memory_mib

from sealsum.demo.logs import LogReader
from sealsum.demo.supervise import Child, Supervisor

LOOK_S = 0.5
PATIENCE_S = 1800.0


@dataclass
class Watched:
    """What is seen of running processes during a job."""

    servers: Sequence[Child]
    agents: Sequence[Child]
    resident: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._logs = {child.name: LogReader(child.log) for child in self.agents}
        self._cpu = {child.name: cpu_ms(child.process.pid) for child in (*self.servers, *self.agents)}
        self._results: dict[int, list[float]] = {}

    def wait(self, supervisor: Supervisor, silos: int, rounds: int) -> list[float]:
        """Until every silo has every result; when the last silo had each, in seconds."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, self._results.values())) < silos * rounds:
            supervisor.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"silos: expected every result within {PATIENCE_S:.0f} s")
            for server in self.servers:
                self.resident.setdefault(server.name, []).append(memory_mib(server, "VmRSS"))
            time.sleep(LOOK_S)
            for event in itertools.chain(*(log.new_events() for log in self._logs.values())):
                if event.get("event") == "round":
                    self._results.setdefault(event["round"], []).append(event["at"])
        return [max(self._results[number]) for number in sorted(self._results)]

    def cpu(self, rounds: int) -> dict[str, float]:
        """Milliseconds a round of each server and of all simulated silos together."""
        spent = {"silos": 0.0}
        for child in (*self.servers, *self.agents):
            name = "silos" if child in self.agents else child.name
            spent[name] = spent.get(name, 0.0) + (cpu_ms(child.process.pid) - self._cpu[child.name]) / rounds
        return {name: round(value, 1) for name, value in spent.items()}

    def memory(self) -> dict[str, dict[str, float]]:
        """MiB of each server: at its peak, and by how much it grew while rounds went on."""
        figures = {}
        for server in self.servers:
            seen = self.resident[server.name]
            second, last = _quarter(seen, 1), _quarter(seen, 3)
            growth = statistics.median(last) - statistics.median(second)
            figures[server.name] = {"peak": round(max(seen), 1), "growth": round(growth, 1)}
        return figures


def _quarter(seen: Sequence[float], number: int) -> Sequence[float]:
    """The ``number``-th quarter of four, counted from 0; never empty."""
    start = number * len(seen) // 4
    return seen[start : max(start + 1, (number + 1) * len(seen) // 4)]
