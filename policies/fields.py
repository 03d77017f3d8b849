"""Every field of a threat model by its dotted path, read off the schema: so that no table can forget one.

Knows types, defaults and effective values; knows no order and no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from policies.schema import Spec, ThreatModel

NONE = "none"
"""The value of a group or field that is not there."""
PRESENT = "given"
"""The value of a group that may be absent and is there."""


@dataclass(frozen=True)
class Field:
    """One line that a threat model may have."""

    path: str
    """Without ``spec.`` in front; ``metadata.…``, ``apiVersion`` and ``kind`` as they stand."""
    info: FieldInfo
    group: type[BaseModel] | None
    """The fields below it, where it is a group that may be absent."""


def fields() -> Iterator[Field]:
    """All leaf fields, and the groups that may be absent before theirs, in the order of the schema."""
    return _below(ThreatModel, "")


def effective(model: ThreatModel) -> Mapping[str, Any]:
    """Path → the value that rules go by, whether written or left out.

    A group that is absent is ``"none"`` and has no fields below it. Where leaving a field out means what
    another one says, the value is that one's.
    """
    values: dict[str, Any] = {}
    for field in fields():
        above, _, _ = field.path.rpartition(".")
        if values.get(above) == NONE:
            continue
        value = _at(model, field.path)
        if field.group is not None:
            values[field.path] = NONE if value is None else PRESENT
        else:
            values[field.path] = NONE if value is None else value
    spec = model.spec
    caps = spec.limits.of_fallback
    values |= {f"limits.epsilon_fallback.{name}": getattr(caps, name) for name in type(caps).model_fields}
    values["evidence.witnesses_min"] = spec.witnesses_needed
    return MappingProxyType(values)


def spoken_value(value: Any) -> str:
    """A value as a policy file spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def _at(model: ThreatModel, path: str) -> Any:
    first = path.partition(".")[0]
    node: Any = model.spec if first in Spec.model_fields else model
    for step in path.split("."):
        node = getattr(node, step)
    return node


def _below(model: type[BaseModel], above: str) -> Iterator[Field]:
    for name, info in model.model_fields.items():
        path = f"{above}.{name}".strip(".").removeprefix("spec.")
        group = _group(info)
        if group is None:
            yield Field(path, info, None)
            continue
        if type(None) in get_args(info.annotation):
            yield Field(path, info, group)
        yield from _below(group, "" if name == "spec" else path)


def _group(info: FieldInfo) -> type[BaseModel] | None:
    options = (info.annotation, *get_args(info.annotation))
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
