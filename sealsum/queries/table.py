"""An answer as a table for people: one row a number, with its 95 % interval. Reads only what JSON says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

Row = tuple[str, str, str]


def answer_table(answer: Mapping[str, Any]) -> Table:
    """Every number of an answer."""
    privacy = answer["privacy"]
    table = Table(
        title=f"{answer['job']}: {answer['dataset']} at {answer['silos']} silos",
        caption=f"ε = {privacy['epsilon']:.3g}, δ = {privacy['delta']:g} for one {privacy['unit']}; "
        "intervals hold the noise alone",
    )
    table.add_column("")
    table.add_column("estimate", justify="right")
    table.add_column("95 %", justify="right")
    for one in [*answer.get("statistics", ()), *answer.get("metrics", ())]:
        for row in _ROWS[one["kind"]](one):
            table.add_row(*row)
        table.add_section()
    return table


def _number(name: str, one: Mapping[str, Any]) -> Row:
    if one["estimate"] is None:
        return name, "–", "too little beside the noise"
    low, high = one["interval_95"]
    return name, f"{one['estimate']:.4g}", f"{low:.4g} to {high:.4g}"


def _count(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number("patients", one["count"])


def _label(one: Mapping[str, Any]) -> Iterator[Row]:
    for count in one["counts"]:
        yield _number(count["label"], count)


def _moments(one: Mapping[str, Any]) -> Iterator[Row]:
    for name in ("count", "sum", "mean", "variance"):
        if name in one:
            yield _number(f"{one['column']}: {name}", one[name])


def _histogram(one: Mapping[str, Any]) -> Iterator[Row]:
    for histogram in one["histograms"]:
        named = f"{one['column']}, {histogram['label']}" if "label" in histogram else one["column"]
        for bin_ in histogram["bins"]:
            where = bin_.get("category") or f"{bin_['from']:g} to {bin_['to']:g}"
            yield _number(f"{named}: {where}", bin_)
        yield _number(f"{named}: missing", histogram["missing"])
        for quantile in histogram.get("quantiles", ()):
            yield _number(f"{named}: {100 * quantile['quantile']:g} % below", quantile)


def _loss(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number(f"loss, each at most {one['cap']:g}", one["loss"])


def _accuracy(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number(f"accuracy at {one['threshold']:g}", one["accuracy"])


def _confusion(one: Mapping[str, Any]) -> Iterator[Row]:
    for label, row in zip(one["labels"], one["matrix"], strict=True):
        for predicted, cell in zip(one["labels"], row, strict=True):
            yield _number(f"{label}, predicted {predicted}", cell)
    for name in ("sensitivity", "specificity", "precision"):
        if name in one:
            yield _number(f"{name} at {one['threshold']:g}", one[name])
    for row in one["classes"]:
        for name in ("recall", "precision", "f1"):
            yield _number(f"{row['label']}: {'F1' if name == 'f1' else name}", row[name])


def _error(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number(f"{one['column']}: mean absolute error", one["mae"])
    yield _number(f"{one['column']}: root mean squared error", one["rmse"])


def _dice(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number(f"Dice at {one['threshold']:g}, mean over records", one["dice"])


def _concordance(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number("concordance", one["concordance"])


def _auc(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number("area under the ROC curve", one["auc"])


def _calibration(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number("observed less predicted frequency", one["observed_less_predicted"])
    error = one.get("expected_calibration_error")
    if error is not None:
        yield (
            "expected calibration error",
            f"{error['estimate']:.4g}",
            f"{error['of_noise_alone']:.4g} by noise",
        )


def _label_skew(one: Mapping[str, Any]) -> Iterator[Row]:
    for share in one["shares"]:
        yield _number(f"mean share of {share['label']}", share)
    yield _number("label skew: JSD / log K", one["divergence"])


def _size_skew(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number("mean patients of a silo", one["mean"])
    yield _number("coefficient of variation of n", one["variation"])


def _column_skew(one: Mapping[str, Any]) -> Iterator[Row]:
    names = {"mean": "mean", "between": "variance between silos", "missing": "missing"}
    names |= {"missing_between": "missing, between silos", "at_ends": "at the range's ends"}
    for name, said in names.items():
        if name in one:
            yield _number(f"{one['column']}: {said}", one[name])


def _silo_accuracy(one: Mapping[str, Any]) -> Iterator[Row]:
    yield _number("accuracy, mean over silos", one["mean"])
    yield _number("accuracy, variance between silos", one["variance"])
    yield _number(f"part of the silos under {one['threshold']:g}", one["under"])


_ROWS = {
    "silo_accuracy": _silo_accuracy,
    "label_skew": _label_skew,
    "size_skew": _size_skew,
    "column_skew": _column_skew,
    "count": _count,
    "label": _label,
    "mean": _moments,
    "variance": _moments,
    "histogram": _histogram,
    "loss": _loss,
    "accuracy": _accuracy,
    "confusion": _confusion,
    "auc": _auc,
    "concordance": _concordance,
    "dice": _dice,
    "error": _error,
    "calibration": _calibration,
}
