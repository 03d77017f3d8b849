"""What a server cannot do at this moment and may the next: callers take it as "ask again"."""

from __future__ import annotations

from privacy.errors import SealsumError


class NotNow(SealsumError):
    """Nothing was decided; the very same call may be made again."""

    status = 503
    kind = "not-now"
    retry_after_s = 0
    """What ``Retry-After`` says; 0 where the caller's own patience is as good."""


class ComingBack(NotNow):
    """The round was open when this server went down, and is being taken up again."""


class DatabaseAway(NotNow):
    """The database does not answer. What was being written is either all there or not at all."""


class BlobsAway(NotNow):
    """The store of parts and models does not answer, or refuses us. Nothing half-written is in it."""

    retry_after_s = 5


class StorageFull(NotNow):
    """There is no room for what was to be stored; nothing of it was kept (RFC 4918, 11.5)."""

    status = 507
    kind = "storage-full"
    retry_after_s = 5


class QuotaReached(StorageFull):
    """There is room, and not for this silo, or not for parts."""

    kind = "quota-reached"
