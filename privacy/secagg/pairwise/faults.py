"""Refusals that only this protocol knows: each ends one message, one silo's part or the round, by name."""

from __future__ import annotations

from privacy.errors import Conflict, SealsumError, Unprocessable


class WeakTerms(Unprocessable):
    """The round's terms do not withstand whom this silo assumes to be hostile; it takes no part."""

    kind = "weak-terms"


class BelowThreshold(Unprocessable):
    """Too few silos are left at this step; the round ends and nothing is opened."""

    kind = "below-threshold"


class BadKey(Unprocessable):
    """A silo advertised a key that cannot be agreed with, or one that somebody else also has."""

    kind = "bad-key"


class BadShare(Unprocessable):
    """A Shamir share, or what was rebuilt from shares, is not what its dealer committed to."""

    kind = "bad-share"


class Equivocation(Conflict):
    """A second, different message where the protocol allows exactly one."""

    kind = "equivocation"


class StateDamaged(SealsumError):
    """A silo's stored state of a round cannot be read; the silo is a dropout of that round."""
