"""Schema faults in an auditor's words: where, what was expected, what came, what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from policies.findings import Finding
from policies.schema import ThreatModel

Path = tuple[int | str, ...]

NOT_ENFORCED: Mapping[str, str] = {
    "spec.require.attestation": "attested hardware: no quote is verified",
    "spec.require.cert_max_ttl": "a longest certificate life: certificates are not renewed",
    "spec.release.metrics.min_cohort": "a minimum of its own for metrics: limits.min_silos_open holds",
    "spec.release.model.approvals": "approvals before a release: silos approve a job before they take part",
    "spec.retention.updates": "a time to keep updates: shares and ciphertexts are removed with their round",
    "spec.retention.updates_hours": "a time to keep updates: shares and ciphertexts go with their round",
    "spec.retention.evidence": "a period in this spelling: write retention.evidence_days",
}
"""Fields of the design that do not exist, and what holds instead: authors will look for them (ADR 24)."""


def as_finding(fault: ErrorDetails) -> Finding:
    """One pydantic error as a finding. The value is quoted: a policy holds no secrets."""
    path = fault["loc"]
    where = ".".join(str(step) for step in path) or "the file"
    got = _quoted(fault["input"])
    kind = fault["type"]
    if kind == "extra_forbidden":
        return _unknown_field(path, where, got)
    if kind == "missing":
        return Finding(
            "schema.missing_field",
            f"{where}: it has no default, because it is a fact that only its authors know",
            f"a value for {where}",
            "nothing",
            f"add {where}",
        )
    expected = _expected(fault)
    return Finding(
        "schema.bad_value",
        f"{where}: the value does not fit",
        expected.removeprefix("expected "),
        got,
        f"correct {where}",
    )


def _unknown_field(path: Path, where: str, got: str) -> Finding:
    known = _fields_beside(path)
    if where in NOT_ENFORCED:
        return Finding(
            "schema.not_enforced",
            f"{where}: this release does not enforce {NOT_ENFORCED[where]}; an idle line deceives",
            "no such line",
            got,
            f"remove {where}",
        )
    close = get_close_matches(str(path[-1]), known, n=1)
    return Finding(
        "schema.unknown_field",
        f"{where}: a threat model has no such field, and nothing is ignored",
        f"one of {', '.join(known)}",
        f"{path[-1]}: {got}",
        f"write {close[0]}, if that was meant, or remove it" if close else f"remove {where}",
    )


def _fields_beside(path: Path) -> list[str]:
    """Names a threat model knows at the level of ``path``'s last step."""
    model: type[BaseModel] = ThreatModel
    for step in path[:-1]:
        annotation = model.model_fields[str(step)].annotation
        options = (annotation, *get_args(annotation))
        models = (option for option in options if isinstance(option, type) and issubclass(option, BaseModel))
        model = next(models)
    return list(model.model_fields)


def _expected(fault: ErrorDetails) -> str:
    """What would have been right, from the error's own context where it has one."""
    context: dict[str, Any] = fault.get("ctx") or {}
    bounds = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    for key, words in bounds.items():
        if key in context:
            return f"{words} {context[key]:g}"
    if "pattern" in context:
        return f"text of the form {context['pattern']}"
    if "expected" in context:
        return str(context["expected"])
    if "error" in context:
        return str(context["error"])
    return {
        "tuple_type": "a list",
        "model_type": "a group of fields",
        "model_attributes_type": "a group of fields",
        "string_type": "a word",
    }.get(fault["type"], fault["msg"])


def _quoted(value: object) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
