"""What several runs say together: a row an algorithm, means over seeds with their spread. For JSON and
people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from sealsum.comparison.runs import LOCAL, POOLED, Run, rounds_to
from sealsum.simulator.scored import LOWER_IS_BETTER, FigureName

Report = dict[str, Any]


def report_of(runs: Sequence[Run], split: str, targets: Sequence[float]) -> Report:
    """Rows in the order in which algorithms were first run.

    Args:
        targets: of the first figure's mean over silos, for rounds-to-target.
    """
    names = list(dict.fromkeys(run.algorithm for run in runs))
    told = [name for run in runs for name in run.final]
    figures = list(dict.fromkeys(told))
    rows = [_row([run for run in runs if run.algorithm == name], figures, targets) for name in names]
    return {"split": split, "figures": figures, "targets": list(targets), "rows": rows}


def spread(values: Iterable[float]) -> dict[str, float]:
    """Mean, standard deviation over seeds, and each seed's value."""
    listed = [float(value) for value in values]
    return {"mean": _six(float(np.mean(listed))), "spread": _six(float(np.std(listed)))}


def _row(runs: Sequence[Run], figures: Sequence[FigureName], targets: Sequence[float]) -> Report:
    done = [run for run in runs if not run.failure]
    row: Report = {"algorithm": runs[0].algorithm, "seeds": [run.seed for run in done]}
    if failures := sorted({run.failure for run in runs if run.failure}):
        row["failures"] = failures
    if not done:
        return row
    for name in figures:
        scored = [run.final[name] for run in done]
        row[name] = {
            "mean_over_silos": spread(one.mean for one in scored),
            "together": spread(one.together for one in scored),
            "worst_silo": spread(one.worst for one in scored),
            "variance_between_silos": spread(one.variance for one in scored),
            "by_silo": {
                silo: spread(one.by_silo[silo] for one in scored if silo in one.by_silo)
                for silo in dict.fromkeys(silo for one in scored for silo in one.by_silo)
            },
        }
    if done[0].curve:
        row["bytes_up_per_round"] = done[0].bytes_up
        row["curve"] = [_six(float(np.mean(at))) for at in zip(*(run.curve for run in done), strict=True)]
        row["rounds_to"] = {f"{target:g}": _rounds(done, target, figures[0]) for target in targets}
    return row


def _rounds(runs: Sequence[Run], target: float, name: FigureName) -> dict[str, Any]:
    """The median over the seeds that reach the target, and how many do."""
    reached = [rounds_to(run.curve, target, name) for run in runs]
    there = [one for one in reached if one is not None]
    return {"median": float(np.median(there)) if there else None, "reached": f"{len(there)}/{len(runs)}"}


def table_of(report: Report) -> Table:
    """The report as a table for people."""
    figures, targets = report["figures"], report["targets"]
    seeds = max((len(row["seeds"]) for row in report["rows"]), default=0)
    table = Table(title=report["split"], caption=_caption(seeds, figures))
    table.add_column(
        "algorithm", no_wrap=True, min_width=max(len(row["algorithm"]) for row in report["rows"])
    )
    for said in (figures[0] if figures else "figure", "worst silo", "variance", *figures[1:]):
        table.add_column(said, justify="right")
    for target in targets:
        table.add_column(f"rounds to {target:g}", justify="right")
    table.add_column("bytes up", justify="right")
    for row in report["rows"]:
        table.add_row(*_cells(row, figures, targets))
        if row["algorithm"] == LOCAL:
            table.add_section()
    return table


def _caption(seeds: int, figures: Sequence[FigureName]) -> str:
    lower = [name for name in figures if name in LOWER_IS_BETTER]
    better = f"; of {', '.join(lower)} lower is better" if lower else ""
    spread = f" ± standard deviation over {seeds} seeds" if seeds > 1 else ", one seed"
    return f"means over silos{spread}; variance between silos; bytes a silo and round{better}"


def _cells(row: Mapping[str, Any], figures: Sequence[FigureName], targets: Sequence[float]) -> list[str]:
    cells = [row["algorithm"]]
    if not row["seeds"]:
        return [*cells, "did not run"]
    first = row[figures[0]]
    seeds = len(row["seeds"])
    cells += [_shown(first["mean_over_silos"], seeds), _shown(first["worst_silo"], seeds)]
    cells.append(f"{first['variance_between_silos']['mean']:.4f}")
    cells += [_shown(row[name]["mean_over_silos"], seeds) for name in figures[1:]]
    for target in targets:
        reached = row.get("rounds_to", {}).get(f"{target:g}")
        cells.append("" if reached is None else _reached(reached))
    cells.append(f"{row['bytes_up_per_round']:,}" if "bytes_up_per_round" in row else "")
    return cells


def _shown(one: Mapping[str, float], seeds: int) -> str:
    return f"{one['mean']:.3f}" + (f" ±{one['spread']:.3f}" if seeds > 1 else "")


def _reached(one: Mapping[str, Any]) -> str:
    if one["median"] is None:
        return "–"
    return f"{one['median']:g} ({one['reached']})"


def _six(number: float) -> float:
    return float(f"{number:.6g}")


BASELINES = (POOLED, LOCAL)
