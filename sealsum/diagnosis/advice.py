"""From numbers to sentences: stay with FedAvg, correct drift, personalise, or do not federate. Pure.

Each sentence carries the numbers it rests on. What decides is what was measured last: figures of models where
rounds were run, skew of the data where they were not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from privacy.errors import ConfigurationError
from sealsum.diagnosis.thresholds import (
    AT_ENDS,
    COLUMN_SKEW,
    CONFLICT,
    GAPS,
    LABEL_SKEW,
    SIZE_SKEW,
    Level,
    level_of,
)
from sealsum.simulator.scored import LOWER_IS_BETTER, FigureName

Verdict: TypeAlias = Literal[
    "stay_with_fedavg", "correct_drift", "personalise", "do_not_federate", "mend_data", "too_noisy"
]
Tree: TypeAlias = Mapping[str, Any]
MATTERS: Final = 0.005
"""A difference of half a point is none, however little it varies over seeds."""
MATTERS_PERSONALLY: Final = 0.01
_SAID: Final[dict[Verdict, str]] = {
    "stay_with_fedavg": "Stay with FedAvg",
    "correct_drift": "Use FedProx or SCAFFOLD",
    "personalise": "Personalise",
    "do_not_federate": "Do not federate",
    "mend_data": "Mend the data first",
    "too_noisy": "Ask again with less noise",
}


@dataclass(frozen=True)
class Advice:
    """What to do, and why."""

    verdict: Verdict
    sentence: str
    reasons: tuple[str, ...]
    """Everything that was found, a sentence each, numbers included."""

    def report(self) -> dict[str, Any]:
        """For JSON."""
        return {"verdict": self.verdict, "sentence": self.sentence, "reasons": list(self.reasons)}


def advise(data: Tree, rounds: Tree | None = None) -> Advice:
    """
    Args:
        data: as ``data_report`` gives it. rounds: as ``rounds_report`` does, where rounds were run.
    """
    label = level_of(data["label_skew"]["divergence"], LABEL_SKEW)
    broken = tuple(_broken(data))
    reasons = (*_of_data(data, label), *broken)
    if rounds is None:
        verdict, why = _before(label, bool(broken))
        return Advice(verdict, f"{_SAID[verdict]}: {why}", reasons)
    verdict, why = _after(label, rounds)
    return Advice(verdict, f"{_SAID[verdict]}: {why}", (*reasons, *_of_rounds(rounds)))


def served_sentences(answer: Tree) -> tuple[str, ...]:
    """What an evaluation with ``silo_accuracy`` says of how silos are served.

    Raises:
        ConfigurationError: it did not ask for that.
    """
    for one in answer.get("metrics", ()):
        if one["kind"] == "silo_accuracy":
            return (
                f"Of the evaluated model the mean accuracy of silos is {_number(one['mean'])}, its variance "
                f"between them {_number(one['variance'])}; {_number(one['under'])} of the silos are served "
                f"worse than {one['threshold']:g}, each silo close to that counting in part.",
            )
    raise ConfigurationError(
        "evaluation: expected a query with the metric silo_accuracy; ask one by sealsum query submit"
    )


def _before(label: Level, broken: bool) -> tuple[Verdict, str]:
    if label == "unknown":
        return "too_noisy", (
            "the interval of the label skew spans from little to strong; a larger ε, a larger least "
            "number of "
            "patients a silo, or fewer columns narrow it."
        )
    if broken:
        return "mend_data", "columns mean or hold different things at silos; no algorithm mends that."
    if label == "low":
        return "stay_with_fedavg", "labels are spread alike; nothing in the data asks for more."
    if label == "moderate":
        return "correct_drift", (
            "labels differ enough that local steps drift apart; run a few rounds and look at how "
            "updates agree."
        )
    return "correct_drift", (
        "labels differ so strongly that plain averaging loses accuracy; SCAFFOLD holds up best, and personal "
        "models are worth a try."
    )


def _after(label: Level, rounds: Tree) -> tuple[Verdict, str]:
    figures, cosine = rounds["figures"], rounds["cosine"]["mean"]["mean"]
    federated = [name for name in figures if _better(name, figures[name], "federated_over_local")]
    personal = [name for name in figures if _better(name, figures[name], "personal_over_local")]
    pooled = [name for name in figures if _better(name, figures[name], "pooled_over_local")]
    worse = [name for name in figures if _worse(name, figures[name], "federated_over_local")]
    tuned = [
        name
        for name in figures
        if _better(name, figures[name], "personal_over_federated", MATTERS_PERSONALLY)
    ]
    if not federated and not personal and not pooled:
        return "do_not_federate", (
            "neither the federated, nor a personal, nor even a pooled model beats what silos train alone, by "
            f"{' or '.join(figures)}."
        )
    if tuned or (worse and personal):
        on = " and ".join(tuned or worse)
        still = f", and keep what federation gains on {' and '.join(personal)}" if personal else ""
        return "personalise", f"a few own steps on the federated model serve silos better on {on}{still}."
    if cosine < CONFLICT[1] or not federated:
        strong = "SCAFFOLD" if cosine < CONFLICT[0] or label == "strong" else "FedProx, then SCAFFOLD"
        return "correct_drift", (
            f"updates agree little (cosine {cosine:.2f} at {rounds['local_steps']} local steps); try "
            f"{strong}, "
            "or fewer local steps. sealsum compare puts them side by side."
        )
    return "stay_with_fedavg", (
        f"updates agree (cosine {cosine:.2f} at {rounds['local_steps']} local steps) and the model beats "
        f"training alone on {' and '.join(federated)}."
    )


def _of_data(data: Tree, label: Level) -> Iterator[str]:
    said = {
        "low": "little",
        "moderate": "moderately",
        "strong": "strongly",
        "unknown": "by an amount that the noise hides",
    }
    skew = data["label_skew"]["divergence"]
    yield (
        f"Labels differ {said[label]} between silos: JSD / log K {_number(skew)} (moderate from "
        f"{LABEL_SKEW[0]:g}, strong from {LABEL_SKEW[1]:g})."
    )
    sizes = data["size_skew"]["variation"]
    level = level_of(sizes, SIZE_SKEW)
    more = {
        "low": "silos count alike",
        "moderate": "uniform weights favour the small silos a little",
        "strong": "uniform weights let small silos count for many records; think about weights by examples",
        "unknown": "the noise hides how much",
    }
    yield f"Sizes vary by a coefficient of {_number(sizes)}: {more[level]}."
    apart = [one for one in data["columns"] if level_of(one["between"], COLUMN_SKEW) == "strong"]
    if apart:
        named = ", ".join(f"{one['column']} {_number(one['between'])}" for one in _most(apart, "between"))
        yield (
            f"Much of the variance of some columns lies between silos (large from {COLUMN_SKEW[1]:g}): "
            f"{named}."
        )
    elif data["columns"] and all(level_of(one["between"], COLUMN_SKEW) == "low" for one in data["columns"]):
        yield f"No column's variance lies between silos by more than {COLUMN_SKEW[0]:g}."


def _broken(data: Tree) -> Iterator[str]:
    """Columns that some silos have and others have not, and ranges that do not fit."""
    for one in _most(data["columns"], "missing_between"):
        if _surely_above(one["missing_between"], GAPS):
            yield (
                f"{one['column']} is missing at some silos and there at others: "
                f"{_percent(one['missing_between'])} of the variance of its gaps lies between silos, "
                f"{_percent(one['missing'])} of patients lack it. Leave it out, or give it an indicator."
            )
    for one in data["columns"]:
        if "at_ends" in one and _surely_above(one["at_ends"], AT_ENDS):
            yield (
                f"{one['column']}: {_percent(one['at_ends'])} of its values are at or beyond the ends of its "
                "range; a silo may use other units, or the range is too narrow."
            )


def _of_rounds(rounds: Tree) -> Iterator[str]:
    cosine = rounds["cosine"]["mean"]["mean"]
    agree = (
        "agree" if cosine >= CONFLICT[1] else "agree little" if cosine >= CONFLICT[0] else "are in conflict"
    )
    yield (
        f"Updates {agree}: mean pairwise cosine {cosine:.2f} over the first "
        f"{len(rounds['cosine']['by_round'])} "
        f"rounds at {rounds['local_steps']} local steps (look closer below {CONFLICT[1]:g}, act below "
        f"{CONFLICT[0]:g})."
    )
    for name, figure in rounds["figures"].items():
        yield _gain(name, figure)
        yield (
            f"A personal model has {name} {figure['personal']['mean_over_silos']['mean']:.3f} "
            f"({_signed(figure['personal_over_federated'])} over the federated one); all records "
            "pooled would give "
            f"{figure['pooled']['mean_over_silos']['mean']:.3f}."
        )
    first = next(iter(rounds["figures"]))
    federated, below = rounds["figures"][first]["federated"], rounds["served_below"]
    yield (
        f"Between silos {first} of the federated model has variance "
        f"{federated['variance_between_silos']['mean']:.4f}; the worst silo has "
        f"{federated['worst_silo']['mean']:.3f}, and {100 * below['share_of_silos']['mean']:.0f} % of "
        "silos are "
        f"served worse than {below['threshold']:g}."
    )


def _gain(name: FigureName, figure: Tree) -> str:
    gain = figure["federated_over_local"]
    numbers = (
        f"{figure['federated']['mean_over_silos']['mean']:.3f} against "
        f"{figure['local']['mean_over_silos']['mean']:.3f}, {_signed(gain)}"
    )
    if _better(name, figure, "federated_over_local"):
        return f"On {name} federation beats training alone: {numbers}."
    if _worse(name, figure, "federated_over_local"):
        return f"On {name} federation is worse than training alone: {numbers}."
    return f"On {name} federation barely differs from training alone: {numbers}."


def _better(name: FigureName, figure: Tree, of: str, least: float = MATTERS) -> bool:
    """Whether the gain is more than ``least``, and than two standard errors over seeds."""
    gain = figure[of]["mean"] * (-1 if name in LOWER_IS_BETTER else 1)
    return bool(gain > max(least, 2 * figure[of]["standard_error"]))


def _worse(name: FigureName, figure: Tree, of: str) -> bool:
    loss = figure[of]["mean"] * (1 if name in LOWER_IS_BETTER else -1)
    return bool(loss > max(MATTERS, 2 * figure[of]["standard_error"]))


def _most(columns: list[Any], of: str, count: int = 5) -> list[Any]:
    known = [one for one in columns if one[of].get("estimate") is not None]
    return sorted(known, key=lambda one: -float(one[of]["estimate"]))[:count]


def _surely_above(one: Tree, bound: float) -> bool:
    """Whether even the lower end of the interval is above."""
    return one.get("estimate") is not None and one["interval_95"][0] > bound


def _number(one: Tree) -> str:
    if one.get("estimate") is None:
        return "unknown beside the noise"
    low, high = one["interval_95"]
    shown = f"{one['estimate']:.2f}"
    return shown if low == high else f"{shown} ({low:.2f} to {high:.2f} with 95 %)"


def _percent(one: Tree) -> str:
    return f"{100 * one['estimate']:.0f} %"


def _signed(gain: Tree) -> str:
    return f"{gain['mean']:+.3f} ± {gain['standard_error']:.3f}"
