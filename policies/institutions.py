"""How many institutions stand behind a list of parties: minimum cohorts count these, not processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from privacy.ids import PartyId
from privacy.roster import Charter


class Reader(Protocol):
    """Who asks for a model: a member of the charter, or a person with a role at a server."""

    @property
    def id(self) -> str:
        """What refusals call the reader."""

    @property
    def role(self) -> str:
        """``researcher`` is judged; other roles run the job."""

    @property
    def legal_entity(self) -> str:
        """The institution that the reader belongs to; "" for none that is known."""


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
