"""What chaos found: one value, its JSON and its table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class Tally:
    """The figures of a run."""

    seed: int
    minutes: float
    cases: tuple[str, ...]
    """Which fault befell which kind of party: ``kill aggregator`` and so on."""
    kills: int
    jobs: int
    finished: int
    """Jobs with a model; the others ended with a reason."""
    opened: int
    """Rounds."""
    ended_by_name: int
    """Rounds that ended with a reason and no sum."""
    recoveries_s: tuple[float, ...]
    """From each fault to the next round that ended."""
    violations: tuple[str, ...]

    def as_json(self) -> str:
        """For machines."""
        return json.dumps(
            {
                "cases": len(self.cases),
                "seeds": 1,
                "kills": self.kills,
                "violations": len(self.violations),
                "recovery_p50_s": quantile(self.recoveries_s, 0.5),
                "recovery_p99_s": quantile(self.recoveries_s, 0.99),
                "seed": self.seed,
                "minutes": round(self.minutes, 2),
                "strikes": len(self.recoveries_s),
                "jobs": self.jobs,
                "jobs_finished": self.finished,
                "rounds_opened": self.opened,
                "rounds_ended_by_name": self.ended_by_name,
                "violated": list(self.violations),
            },
            indent=2,
        )

    def table(self) -> Table:
        """For people."""
        table = Table(title=f"Chaos, seed {self.seed}, {self.minutes:.1f} minutes", show_header=False)
        p50, p99 = quantile(self.recoveries_s, 0.5), quantile(self.recoveries_s, 0.99)
        recovery = "no fault" if p50 is None else f"{p50} s in the median, {p99} s at the 99th percentile"
        for name, figure in (
            ("cases", ", ".join(self.cases) or "none"),
            ("kills", str(self.kills)),
            ("jobs", f"{self.jobs}, of which {self.finished} left a model"),
            ("rounds", f"{self.opened} opened, {self.ended_by_name} ended with a reason"),
            ("recovery", recovery),
            ("violations", "\n".join(self.violations) or "none"),
        ):
            table.add_row(name, figure)
        return table


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest of the values that at least this share does not exceed, in seconds; ``None`` of none."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(share * len(values)) - 1)], 2)
