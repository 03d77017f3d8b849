"""Updates, records and errors as fields and arrays of frames, and back. What comes back is looked at anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

import numpy as np

from policies.findings import Finding, PolicyRefusal
from privacy.errors import ConfigurationError, MalformedMessage, SealsumError, Unprocessable
from privacy.labels import LabelKind
from privacy.plan import RoundPlan
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.vectors import VectorName
from silo_agent.data.records import Records
from silo_agent.problems import Diverged, OutOfMemory, Stopped
from silo_agent.training.frames import Array, Frame
from silo_agent.training.work import Trained
from silo_agent.update import FloatUpdate, GridUpdate, Update

_FLOATS, _STEPS, _FURTHER, _KEEP = "floats", "steps", "further.", "keep."
_ERRORS: Final[Mapping[str, type[SealsumError]]] = {
    kind.__name__: kind
    for kind in (
        ConfigurationError,
        Diverged,
        OutOfMemory,
        SealsumError,
        Stopped,
        Unprocessable,
        UpdateOutOfRange,
    )
}
STARVED: Final = 12
"""Exit code of a worker that has no memory to receive a request."""
OUT_OF_MEMORY: Final = (
    "worker: the data or the model need more memory than there is; raise worker.memory_mib if it is set, or "
    "lower worker.pass_records"
)
_ROOM: Final = 16
"""Vectors as long as all of a plan's, which an update with all that it keeps does not exceed."""
_SLACK: Final = 1 << 20


def most_bytes(plan: RoundPlan) -> int:
    """Of the arrays that a worker may answer a round's training with."""
    coordinates = plan.parameters + sum(vector.coordinates for vector in plan.further)
    return 8 * _ROOM * coordinates + _SLACK


def frame_of_trained(trained: Trained) -> Frame:
    """What training made, as an answer."""
    arrays = _arrays_of(trained.update, "")
    for name, further in trained.update.further.items():
        arrays |= _arrays_of(further, f"{_FURTHER}{name}.")
    arrays |= {_KEEP + name: array for name, array in trained.update.keep.items()}
    fields: dict[str, Any] = {"weight": trained.weight}
    if isinstance(trained.update, FloatUpdate):
        fields["own_weight"] = trained.update.weight
    return Frame("done", fields, arrays)


def trained_of(frame: Frame) -> Trained:
    """The same, looked at: types and shapes. Lengths and ranges are the encoding's to judge.

    Raises:
        MalformedMessage: it is no update.
    """
    arrays = dict(frame.arrays)
    keep = {
        name.removeprefix(_KEEP): _typed(arrays.pop(name), np.float32)
        for name in list(arrays)
        if name.startswith(_KEEP)
    }
    further = {
        VectorName(name.removeprefix(_FURTHER).rpartition(".")[0]): _update_of(
            {name.rpartition(".")[2]: arrays.pop(name)}
        )
        for name in list(arrays)
        if name.startswith(_FURTHER)
    }
    weight, own = frame.fields.get("weight"), frame.fields.get("own_weight")
    if not isinstance(weight, float) or not 0 < weight <= 1:
        raise MalformedMessage("worker: expected a weight in (0, 1]")
    if own is not None and (not isinstance(own, float) or not 0 < own <= 1):
        raise MalformedMessage("worker: expected a weight of the silo's own in (0, 1], or none")
    update = _update_of(arrays)
    if isinstance(update, FloatUpdate):
        return Trained(FloatUpdate(update.values, further, own, keep), weight)
    return Trained(GridUpdate(update.steps, further, keep), weight)


def frame_of_records(records: Records) -> Frame:
    """Records that the agent has read, as a request."""
    arrays: dict[str, Array] = {"features": records.features, "labels": records.labels}
    if records.units is not None:
        arrays["units"] = records.units
    arrays["patients"] = np.frombuffer(json.dumps(records.patients).encode(), dtype=np.uint8)
    fields = {
        "classes": records.classes,
        "views": records.views,
        "kind": records.kind,
        "listed": records.listed,
    }
    return Frame("records", fields, arrays)


def records_of(frame: Frame) -> Records:
    """
    Raises:
        ConfigurationError: they do not fit together. MalformedMessage: they are none.
    """
    kind = frame.fields["kind"]
    if kind not in get_args(LabelKind):
        raise MalformedMessage("worker: expected a kind of labels")
    return Records(
        features=_typed(frame.arrays["features"], np.float32),
        labels=_typed(frame.arrays["labels"], np.float32),
        patients=tuple(json.loads(frame.arrays["patients"].tobytes())),
        classes=int(frame.fields["classes"]),
        units=frame.arrays.get("units"),
        views=int(frame.fields["views"]),
        kind=cast("LabelKind", kind),
        listed=frame.fields["listed"],
    )


def frame_of_error(error: SealsumError) -> Frame:
    """An error as an answer: by the nearest class that has a name here."""
    if isinstance(error, PolicyRefusal):
        findings = [
            {
                "rule": one.rule,
                "sentence": one.sentence,
                "expected": one.expected,
                "got": one.got,
                "remedy": one.remedy,
            }
            for one in error.findings
        ]
        return Frame("refused", {"subject": error.subject, "findings": findings})
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    return Frame("failed", {"error": name, "text": str(error)})


def error_of(frame: Frame) -> SealsumError:
    """
    Raises:
        MalformedMessage: it is none.
    """
    try:
        if frame.kind == "refused":
            findings = [Finding(**one) for one in frame.fields["findings"]]
            return PolicyRefusal(str(frame.fields["subject"]), findings)
        return _ERRORS[frame.fields["error"]](str(frame.fields["text"]))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedMessage(
            f"worker: expected an error, got something else ({type(error).__name__})"
        ) from None


def _arrays_of(update: Update, prefix: str) -> dict[str, Array]:
    if isinstance(update, FloatUpdate):
        return {prefix + _FLOATS: update.values}
    return {prefix + _STEPS: update.steps}


def _update_of(arrays: Mapping[str, Array]) -> Update:
    match list(arrays):
        case ["floats"]:
            return FloatUpdate(_typed(arrays[_FLOATS], np.float32, flat=True))
        case ["steps"]:
            return GridUpdate(_typed(arrays[_STEPS], np.float64, flat=True))
    raise MalformedMessage(f"worker: expected one array {_FLOATS} or {_STEPS} a vector")


def _typed(
    array: Array, dtype: type[np.float32 | np.float64], *, flat: Literal[True, False] = False
) -> Array:
    if array.dtype != dtype or (flat and array.ndim != 1):
        raise MalformedMessage(f"worker: expected an array of {dtype.__name__}")
    return array
