"""What a server cannot do at this moment and may the next: a 503, which callers take as "ask again"."""

from __future__ import annotations

from privacy.errors import SealsumError


class NotNow(SealsumError):
    """Nothing was decided; the very same call may be made again."""


class ComingBack(NotNow):
    """The round was open when this server went down, and is being taken up again."""


class DatabaseAway(NotNow):
    """The database does not answer. What was being written is either all there or not at all."""
