"""From a policy file's text to a threat model that keeps its promises, or every fault of it at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic import ValidationError

from policies.faults import Path, as_finding
from policies.findings import Finding, PolicyInvalid
from policies.profiles import PROFILES, profile_text
from policies.rules_extends import MAX_GENERATIONS, loosened, too_many_generations, unknown_parent
from policies.rules_loader import LOADER_RULES
from policies.schema import ThreatModel
from policies.yaml_text import read_yaml
from privacy.canonical import sha256_hex
from privacy.ids import Digest

_LABEL = b"sealsum/policy/v1\x00"
_READABLE: dict[str, Any] = {
    "apiVersion": "sealsum/v1",
    "kind": "ThreatModel",
    "metadata": {"name": "unread", "version": "1"},
    "spec": {"data_class": "patient", "assume": {}},
}
"""Stands in for required fields that did not parse, so that the others are still judged; rules that read
a field which did not parse are skipped, and a model with stand-ins is never returned."""
_MAY_BE_ABSENT: Path = ("spec", "assume", "share_servers")
"""A group that need not be there but has required fields: taken out whole when part of it did not parse."""


@dataclass(frozen=True)
class LoadedPolicy:
    """A threat model, the words it came from, and their digest."""

    model: ThreatModel
    text: str
    digest: Digest
    parents: tuple[str, ...] = ()
    """Texts of the threat models that it extends, nearest first: whoever is given it needs them too."""


def policy_digest(text: str) -> Digest:
    """SHA-256("sealsum/policy/v1" ‖ 0x00 ‖ UTF-8 text): an auditor needs no YAML parser to recompute it."""
    return sha256_hex(_LABEL + text.encode())


def load_threat_model(text: str, parents: Iterable[str] = ()) -> LoadedPolicy:
    """Read, validate and judge a policy file; with ``metadata.extends`` against its parent, too.

    ``parents`` are texts among which the parent is found by its digest, beside the shipped profiles.

    Raises:
        PolicyInvalid: with every fault of form, schema and meaning that could be found in one pass.
    """
    return _load(text, tuple(parents), MAX_GENERATIONS)


def _load(text: str, parents: tuple[str, ...], generations: int) -> LoadedPolicy:
    tree, faults = read_yaml(text)
    if tree is None and faults:
        raise PolicyInvalid("threat model", faults)
    model, unread = _parse(tree, faults)
    faults.extend(_contradictions(model, unread))
    lineage: tuple[str, ...] = ()
    extends = model.metadata.extends
    if extends is not None and generations <= 1:
        faults.append(too_many_generations())
    elif extends is not None:
        above = _text_of(extends, parents)
        if above is None:
            faults.append(unknown_parent(extends))
        else:
            parent = _load(above, parents, generations - 1)
            lineage = (parent.text, *parent.parents)
            if not unread:
                faults.extend(loosened(parent.model, model))
    if faults:
        raise PolicyInvalid("threat model", faults)
    return LoadedPolicy(model, text, policy_digest(text), lineage)


def _text_of(extends: str, parents: Iterable[str]) -> str | None:
    """The text of that digest, given or shipped."""
    digest = extends.removeprefix("sha256:")
    shipped = (profile_text(name) for name in PROFILES)
    return next((text for text in chain(parents, shipped) if policy_digest(text) == digest), None)


def _parse(tree: object, faults: list[Finding]) -> tuple[ThreatModel, list[Path]]:
    """The model as far as it parses, and the paths that did not; adds a finding for each of those."""
    try:
        return ThreatModel.model_validate(tree), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    faults.extend(as_finding(fault) for fault in errors)
    unread = [tuple(fault["loc"]) for fault in errors]
    pruned = tree if isinstance(tree, dict) else {}
    for path in unread:
        whole = path[: len(_MAY_BE_ABSENT)]
        pruned = _without(pruned, whole if whole == _MAY_BE_ABSENT else path)
    return ThreatModel.model_validate(_over(_READABLE, pruned)), unread


def _without(tree: dict[Any, Any], path: Path) -> dict[Any, Any]:
    """``tree`` less the field at ``path``; a list loses as a whole, a missing field is no change."""
    if not path or path[0] not in tree:
        return tree
    child = tree[path[0]]
    rest = {key: value for key, value in tree.items() if key != path[0]}
    if isinstance(child, dict) and len(path) > 1:
        return {**rest, path[0]: _without(child, path[1:])}
    return rest


def _over(base: Mapping[str, Any], top: Mapping[Any, Any]) -> dict[Any, Any]:
    """``top`` laid over ``base``, mapping by mapping."""
    merged: dict[Any, Any] = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _contradictions(model: ThreatModel, unread: Iterable[Path]) -> list[Finding]:
    """What the rules find among the fields that parsed."""
    faulty = [".".join(str(step) for step in path[1:]) for path in unread if path[:1] in ((), ("spec",))]
    return [
        finding
        for rule in LOADER_RULES
        if not any(_touches(field, path) for field in rule.reads for path in faulty)
        for finding in rule.check(model)
    ]


def _touches(field: str, path: str) -> bool:
    """Whether one of two dotted paths lies within the other; the empty path holds everything."""
    return not path or f"{field}.".startswith(f"{path}.") or f"{path}.".startswith(f"{field}.")
