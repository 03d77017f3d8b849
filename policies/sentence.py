"""One claim about a threat model, with what it rests on, and the words that claims share."""

from __future__ import annotations

from dataclasses import dataclass

from policies.schema import ThreatModel


@dataclass(frozen=True)
class Sentence:
    """One claim, and the assumption or mechanism without which it does not hold."""

    text: str
    rests_on: str


def spoken(word: str) -> str:
    """A field's value as people say it."""
    return word.replace("_", " ")


def counted(model: ThreatModel) -> str:
    """What a minimum cohort counts."""
    return "institutions" if model.spec.assume.silos.distinct_legal_entities else "silos"
