"""May this threat model call itself a child of that one? Field by field, a child loosens nothing."""

from __future__ import annotations

from collections.abc import Iterator

from policies.fields import spoken_value
from policies.findings import Finding
from policies.schema import ThreatModel
from policies.strictness import changes

MAX_GENERATIONS = 4
"""A threat model, its parent, that one's, and one more: people read all of them before they sign."""


def loosened(parent: ThreatModel, child: ThreatModel) -> Iterator[Finding]:
    """One finding for each field in which ``child`` is looser than ``parent``, written or left out."""
    named = parent.metadata
    for change in changes(parent, child):
        if change.verdict == "loosened":
            yield Finding(
                "extends_loosens",
                f"{change.path}: a child threat model may only tighten {named.name} v{named.version}",
                change.allowed,
                spoken_value(change.after),
                f"write {change.path}: {spoken_value(change.before)}, or a stricter value, or remove "
                "metadata.extends; what a child leaves out has the default, not its parent's value",
            )


def unknown_parent(extends: str) -> Finding:
    """Whoever cannot read the parent cannot tell whether the child keeps to it."""
    return Finding(
        "extends_unknown",
        "the threat model that this one extends is not at hand, so nobody can tell whether it only tightens",
        f"the text of {extends}",
        "neither a shipped profile nor a text given along",
        "give the parent along (sealsum policy … --parent FILE), or correct metadata.extends",
    )


def too_many_generations() -> Finding:
    """Bounds the reading."""
    return Finding(
        "extends_too_deep",
        "so many threat models upon one another are read by nobody",
        f"at most {MAX_GENERATIONS} generations",
        "more",
        "extend an earlier one",
    )
