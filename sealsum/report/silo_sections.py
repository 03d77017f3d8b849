"""Sections of a report on what holds at one silo: what its data may be used for, and its own threat model."""

from __future__ import annotations

from collections.abc import Mapping

from policies.fields import spoken_value
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model
from policies.strictness import changes
from sealsum.report.document import Block, Paragraph, Section, Table
from sealsum.report.facts import Facts


def dataset_card(facts: Facts) -> Section:
    """What the job reads, and what each silo says that it may be read for."""
    card = facts.card
    read = f"Dataset {card['dataset']}, {len(card['columns'])} columns: {', '.join(card['columns'])}."
    rows = tuple(
        (silo, ", ".join(one["purposes"]), one["legal_basis"] or "–", str(one["min_records"]))
        for silo, one in sorted(card.get("registered", {}).items())
    )
    if not rows:
        told: Block = Paragraph("No silo has handed over what it registered the dataset for.", quiet=True)
        return Section("The data", (Paragraph(read), told))
    table = Table(
        "As silos registered it; each signed its line",
        ("silo", "purposes", "legal basis", "least records"),
        rows,
        (18, 34, 34, 14),
        frozenset((3,)),
    )
    return Section("The data", (Paragraph(read), table))


def policy_change(facts: Facts) -> tuple[Section, ...]:
    """What the charter's threat model changed of the one before, if that one is in the pack."""
    before = facts.previous
    if before is None:
        return ()
    blocks = _compared(
        "before",
        (before.text, before.parents),
        (facts.policy_text, facts.policy_parents),
        {"tightened": "stricter", "loosened": "looser"},
        ("before", "now", "so it is"),
    )
    return (Section("What changed since the charter before", blocks),)


def effective_policies(facts: Facts) -> Section:
    """Where a silo's own threat model differs from the federation's, and which of the two values holds."""
    intro = Paragraph(
        "At a silo two threat models hold: the federation's and its own. A round runs there only if both "
        "admit it, so of two values the stricter one is in force."
    )
    if not facts.own_policies:
        told = Paragraph("No silo has handed over its own threat model (sealsum silo export).", quiet=True)
        return Section("The policy in force at each silo", (intro, told))
    blocks = [
        block
        for own in facts.own_policies
        for block in _compared(
            own.silo,
            (facts.policy_text, facts.policy_parents),
            (own.text, own.parents),
            {"tightened": "the silo's", "loosened": "the federation's"},
            ("federation", "silo's own", "in force"),
        )
    ]
    return Section("The policy in force at each silo", (intro, *blocks))


_Text = tuple[str, tuple[str, ...]]
"""Of a threat model and those it extends."""


def _compared(
    title: str, first: _Text, second: _Text, verdicts: Mapping[str, str], headings: tuple[str, str, str]
) -> tuple[Block, ...]:
    try:
        one, other = load_threat_model(*first), load_threat_model(*second)
    except PolicyInvalid:
        return (Paragraph(f"{title}: this version of Sealsum cannot read one of the two."),)
    shown = one if title == "before" else other
    named = f"{title}: {shown.model.metadata.name}, digest {shown.digest}"
    rows = tuple(
        (
            change.path,
            spoken_value(change.before),
            spoken_value(change.after),
            verdicts.get(change.verdict, "both" if title != "before" else "other"),
        )
        for change in changes(one.model, other.model)
    )
    if not rows:
        return (Paragraph(f"{named}; the same as the federation's in every field."),)
    return (Table(named, ("field", *headings), rows, (34, 25, 25, 16)),)
