"""What each of four hospitals gains: its own model, the shared one, and personal ones, on FLamby's split.

    python benchmarks/personal.py [--json] [--out FILE] [--only NAME …]

Nothing is random but what DP draws: FLamby's split, public ranges, public first weights. Accuracy and AUC are
on each hospital's own held-out patients. "over its own" is the least, over hospitals, by which a model is
above the strongest that the hospital's patients alone give (prior width by cross-validation).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

if not __package__:  # run as a file; opacus installs a package of this name, which would be found first
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.flamby_heart import Halves
from benchmarks.personal_recipes import RECIPES, Scored, flamby
from silo_agent.personal.measures import Board, outcome_of

PUBLISHED: Final = {
    "pooled": 0.735,
    "best local": 0.722,
    "FedAvg": 0.685,
    "SCAFFOLD": 0.684,
    "best strategy (FedYogi)": 0.731,
}
"""FLamby's accuracies on this split, mean over hospitals."""
OWN: Final = "local only"


Scores = dict[str, dict[str, float]]
"""Hospital → metric → value."""


def measure(name: str) -> Scores:
    """One recipe's."""
    hospitals = flamby()
    return _scores(RECIPES[name](hospitals), hospitals)


def _scores(models: Mapping[str, Scored], hospitals: Mapping[str, Halves]) -> Scores:
    told: Scores = {}
    for hospital, one in models.items():
        asked = hospitals[hospital].test
        board = Board(asked, {"it": outcome_of(one.place.scored(one.vector), asked)})
        told[hospital] = {metric: board.figure("it", metric).value for metric in board.metrics}
    return told


def summary(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Means over hospitals, and the worst difference from each hospital's own model."""
    told = {}
    for name, by_hospital in scores.items():
        over = [one["accuracy"] - scores[OWN][hospital]["accuracy"] for hospital, one in by_hospital.items()]
        told[name] = {
            "accuracy": float(np.mean([one["accuracy"] for one in by_hospital.values()])),
            "auc": float(np.mean([one["auc"] for one in by_hospital.values() if "auc" in one])),
            "loss": float(np.mean([one["loss"] for one in by_hospital.values()])),
            "variance": float(np.var([one["accuracy"] for one in by_hospital.values()])),
            "over_its_own": min(over),
        }
    return told


def table(result: Mapping[str, Any]) -> str:
    """A line a recipe."""
    hospitals = list(result["hospitals"])
    head = f"{'':32}{'accuracy':>9}{'auc':>7}{'loss':>7}{'over its own':>14}  " + "".join(
        f"{one:>15}" for one in hospitals
    )
    lines = [head]
    for name, one in result["summary"].items():
        each = "".join(f"{result['scores'][name][hospital]['accuracy']:15.3f}" for hospital in hospitals)
        lines.append(
            f"{name:32}{one['accuracy']:9.3f}{one['auc']:7.3f}{one['loss']:7.3f}"
            f"{one['over_its_own']:+14.3f}  {each}"
        )
    published = "; ".join(f"{name} {value}" for name, value in result["published"].items())
    return "\n".join([*lines, f"FLamby's own accuracies: {published}"])


def _result(scores: Mapping[str, Scores]) -> dict[str, Any]:
    sizes = {name: [len(one.train), len(one.test)] for name, one in flamby().items()}
    return {"hospitals": sizes, "published": PUBLISHED, "summary": summary(scores), "scores": dict(scores)}


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="write here after each; what was measured before is kept")
    options = parser.parse_args()
    scores: dict[str, Scores] = {}
    if options.out is not None and options.out.exists():
        scores = json.loads(options.out.read_text(encoding="utf-8"))["scores"]
    for name in dict.fromkeys([*(() if OWN in scores else (OWN,)), *options.only]):
        scores[name] = measure(name)
        result = _result({one: scores[one] for one in RECIPES if one in scores})
        if options.out is not None:
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1) if options.json else table(result))


if __name__ == "__main__":
    main()
