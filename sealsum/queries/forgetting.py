"""What models have forgotten of each class: recall now against the best before, all silos together.

Post-processing of evaluations that were charged, each with its error; nothing is asked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from privacy.dp.accountant import epsilon
from privacy.dp.events import round_event
from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from sealsum.queries.estimates import Estimate

BIASED: Final = (
    "best is the highest of several noisy numbers, so too high by chance: with more models before, more "
    "seems forgotten"
)


def charged_in_all(jobs: Sequence[JobSpec]) -> dict[str, Any]:
    """What all the evaluations together were charged, by composition.

    Raises:
        ConfigurationError: fewer than two; they are of several data sets, units of privacy, or one model; or
            one of them has no DP.
    """
    if len(jobs) < 2:
        raise ConfigurationError(f"expected two evaluations or more, in the order of models, got {len(jobs)}")
    for field in ("federation", "dataset"):
        if len(found := {str(getattr(job, field)) for job in jobs}) != 1:
            raise ConfigurationError(
                f"{field}: expected one of all evaluations, got {', '.join(sorted(found))}"
            )
    if len({job.data.digest for job in jobs}) != 1:
        raise ConfigurationError("data: expected one schema of all evaluations, got several")
    terms = [job.dp for job in jobs if job.dp is not None]
    if len(terms) != len(jobs) or len({one.unit for one in terms}) != 1:
        raise ConfigurationError("dp: expected evaluations that were charged for one unit, got others")
    delta = max(one.delta for one in terms)
    events = [round_event(one, job.training) for one, job in zip(terms, jobs, strict=True)]
    return {"unit": terms[0].unit, "epsilon": float(f"{epsilon(events, delta):.6g}"), "delta": delta}


def forgetting(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each class: recall of the last model, the best of those before, and what was lost, for JSON.

    Args:
        answers: as ``read_answer`` gives them, in the order of models.

    Raises:
        ConfigurationError: an evaluation has no confusion, or of other labels or thresholds; or two are of
            one model, whose difference is noise.
    """
    models = [one.get("model") for one in answers]
    if len(set(models)) != len(models):
        raise ConfigurationError("evaluations: expected each of another model, got two of one; leave one out")
    tables = [_confusion_of(one) for one in answers]
    first = tables[0]
    for answer, table in zip(answers, tables, strict=True):
        if (table["labels"], table["threshold"]) != (first["labels"], first["threshold"]):
            raise ConfigurationError(
                f"{answer['job']}: expected the labels and the threshold of {answers[0]['job']}, got others"
            )
    names = [str(answer["job"]) for answer in answers]
    return [
        _one_class(name, [_recall(table, place) for table in tables], names)
        for place, name in enumerate(first["labels"])
    ]


def _one_class(name: str, recalls: Sequence[Estimate | None], jobs: Sequence[str]) -> dict[str, Any]:
    before = [(one, job) for one, job in zip(recalls[:-1], jobs[:-1], strict=True) if one is not None]
    last = recalls[-1]
    if last is None or not before:
        return {"label": name, "forgetting": None, "note": "too few records of it beside the noise"}
    best, job = max(before, key=lambda found: found[0].value)
    lost = Estimate(best.value - last.value, math.hypot(best.standard_error, last.standard_error))
    return {
        "label": name,
        "best": best.report(),
        "best_in": job,
        "last": last.report(),
        "forgetting": lost.report(),
    }


def _confusion_of(answer: dict[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = [one for one in answer.get("metrics", []) if one["kind"] == "confusion"]
    if len(found) != 1:
        raise ConfigurationError(
            f"{answer['job']}: expected an evaluation with {{kind: confusion}}, which tells recall by class, "
            f"got {', '.join(one['kind'] for one in answer.get('metrics', [])) or 'statistics'}"
        )
    return found[0]


def _recall(table: dict[str, Any], place: int) -> Estimate | None:
    recall = table["classes"][place]["recall"]
    if recall["estimate"] is None:
        return None
    return Estimate(recall["estimate"], recall["standard_error"])
