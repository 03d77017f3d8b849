"""Sections of a report on what holds at one silo: what its data may be used for, and its own threat model."""

from __future__ import annotations

from policies.fields import spoken_value
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model
from policies.strictness import changes
from sealsum.report.document import Block, Paragraph, Section, Table
from sealsum.report.facts import Facts, OwnPolicy


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


def effective_policies(facts: Facts) -> Section:
    """Where a silo's own threat model differs from the federation's, and which of the two values holds."""
    intro = Paragraph(
        "At a silo two threat models hold: the federation's and its own. A round runs there only if both "
        "admit it, so of two values the stricter one is in force."
    )
    if not facts.own_policies:
        told = Paragraph("No silo has handed over its own threat model (sealsum silo export).", quiet=True)
        return Section("The policy in force at each silo", (intro, told))
    blocks = [block for own in facts.own_policies for block in _own(facts, own)]
    return Section("The policy in force at each silo", (intro, *blocks))


def _own(facts: Facts, own: OwnPolicy) -> tuple[Block, ...]:
    try:
        of_all = load_threat_model(facts.policy_text, facts.policy_parents)
        theirs = load_threat_model(own.text, own.parents)
    except PolicyInvalid:
        return (Paragraph(f"{own.silo}: this version of Sealsum cannot read one of the two."),)
    named = f"{own.silo}: {theirs.model.metadata.name}, digest {theirs.digest}"
    rows = tuple(
        (
            one.path,
            spoken_value(one.before),
            spoken_value(one.after),
            {"tightened": "the silo's", "loosened": "the federation's"}.get(one.verdict, "both"),
        )
        for one in changes(of_all.model, theirs.model)
    )
    if not rows:
        return (Paragraph(f"{named}; the same as the federation's in every field."),)
    widths = (34, 25, 25, 16)
    return (Table(named, ("field", "federation", "silo's own", "in force"), rows, widths),)
