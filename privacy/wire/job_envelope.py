"""Opening a job's envelope: every offer of the job carries it again, and its bytes are judged once."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from privacy.ids import Digest
from privacy.plan import JobSpec
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, Verified, open_envelope
from privacy.wire.messages import MAX_BYTES

JOBS_REMEMBERED: Final = 16


def open_job(envelope: Envelope, charter: Charter) -> Verified[JobSpec]:
    """A job that a member of the roster signed under this charter; that it may, others judge.

    The very same envelope under the same key and charter opens to the same job, so it is looked up: equality
    is that of every field, signature and body included, and the sender's key is the charter's each time. What
    does not open is never remembered.

    Raises:
        NotAllowed: the sender is not enrolled. SignatureRejected, MalformedMessage: see ``open_envelope``.
    """
    return _opened(envelope, charter.digest, charter.member(envelope.sender).verify_key)


@lru_cache(maxsize=JOBS_REMEMBERED)
def _opened(envelope: Envelope, charter: Digest, verify_key: str) -> Verified[JobSpec]:
    return open_envelope(
        envelope,
        JobSpec,
        kind="job",
        context=charter,
        verify_key_of=lambda _sender: verify_key,
        max_bytes=MAX_BYTES["job"],
    )
