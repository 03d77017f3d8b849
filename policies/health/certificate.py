"""One renewal of the own certificate, and when it is due. Knows no network: ``post`` carries the request."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from privacy.errors import MalformedMessage
from privacy.keystore import Identity
from privacy.renewal import Renewed, SignedRenewal, ask_renewal, believe_renewed, keep_renewed

Post = Callable[[SignedRenewal], bytes]
"""Sends a signed renewal to the registrar; returns its answer. Raises ``SealsumError``."""

_RETRY_MIN: Final = timedelta(minutes=1)
_RETRY_MAX: Final = timedelta(hours=1)
_JITTER: Final = 0.05
"""Of the life: parties enrolled in one hour do not all come back in one minute."""


def due_at(begin: datetime, end: datetime, jitter: float) -> datetime:
    """Two thirds of a certificate's life after its begin, or up to a twentieth later (``jitter``: 0 to 1)."""
    life = end - begin
    return begin + life * (2 / 3) + life * _JITTER * jitter


def retry_after(left: timedelta, jitter: float) -> timedelta:
    """When to try again: a tenth of what is left, within bounds, so that a short life is not slept away."""
    wait = min(max(left / 10, _RETRY_MIN), _RETRY_MAX)
    return wait * (0.5 + jitter / 2)


def renew(identity: Identity, post: Post, now: datetime) -> datetime:
    """Ask, judge, store; every TLS context in use follows. Returns the new certificate's end.

    Raises:
        SealsumError: the registrar refuses or does not answer, or its answer is not believed.
    """
    raw = post(ask_renewal(identity, now))
    try:
        answer = Renewed.model_validate_json(raw)
    except ValidationError as error:
        raise MalformedMessage("renewal: expected a certificate in the registrar's answer") from error
    believed = believe_renewed(identity, answer)
    keep_renewed(identity, believed)
    identity.reload()
    return believed.until
