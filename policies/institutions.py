"""How many institutions stand behind a list of parties: minimum cohorts count these, not processes."""

from __future__ import annotations

from collections.abc import Iterable

from privacy.ids import PartyId
from privacy.roster import Charter


def distinct_entities(charter: Charter, parties: Iterable[PartyId]) -> int:
    """Legal entities behind ``parties``; strangers to the roster count for nothing."""
    named = set(parties)
    return len({_spelling(member.legal_entity) for member in charter.members if member.id in named})


def distinct_operators(charter: Charter, parties: Iterable[PartyId]) -> int:
    """Operators behind ``parties``; strangers to the roster count for nothing."""
    named = set(parties)
    return len({_spelling(member.operator) for member in charter.members if member.id in named})


def same_institution(one: str, other: str) -> bool:
    """Whether two names of legal entities differ in letter case and spaces only."""
    return _spelling(one) == _spelling(other)


def _spelling(name: str) -> str:
    # "St. Mary" and "st.  mary" are one institution: a space must not make a second one.
    return " ".join(name.casefold().split())
