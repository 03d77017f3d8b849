"""The charter's envelope: signed by the federation's officer, believed only under the pinned officer key.

The officer is not a member of the roster, so the roster cannot vouch for its own author. The context
is the federation's name, because every party must be able to check it before it has read any charter.
"""

from __future__ import annotations

from privacy.canonical import digest_of
from privacy.errors import Conflict, OutOfOrder, SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import Digest, PartyId
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, open_envelope, sign_message
from privacy.wire.messages import MAX_BYTES

OFFICER = PartyId("officer")
"""Sender of a charter; no member may have this name."""


def federation_context(federation: str) -> Digest:
    """What the charters of one federation are bound to, whatever their epoch."""
    return digest_of("sealsum/federation-id/v1", {"federation": federation})


def sign_charter(charter: Charter, officer: SigningKey) -> Envelope:
    """Seal a roster and its policy under the officer's key."""
    return sign_message(charter, "charter", federation_context(charter.federation), OFFICER, officer)


def open_charter(envelope: Envelope, officer_key: str, federation: str) -> Charter:
    """Believe a charter, after these checks:

    (1) its sender is the officer; (2) it is a charter for this federation, signed by the pinned officer
    key over exactly these bytes; (3) the body names the same federation as the envelope's context.

    Raises:
        SignatureRejected: (1) to (3). MalformedMessage: the body is not a charter.
    """
    # (1)
    if envelope.sender != OFFICER:
        raise SignatureRejected(f"charter.sender: expected {OFFICER}, got {envelope.sender}")
    # (2)
    charter = open_envelope(
        envelope,
        Charter,
        kind="charter",
        context=federation_context(federation),
        verify_key_of=lambda _officer: officer_key,
        max_bytes=MAX_BYTES["charter"],
    ).message
    # (3)
    if charter.federation != federation:
        raise SignatureRejected(f"charter.federation: expected {federation}, got {charter.federation}")
    return charter


def succeed_charter(held: Charter | None, offered: Charter) -> Charter:
    """The charter to hold from now on: a party never returns to an older roster.

    An old charter, validly signed once, may list a member who has been expelled since.

    Raises:
        OutOfOrder: ``offered`` has a lower epoch than the one held. Conflict: the same epoch, other words.
    """
    if held is None or offered.epoch > held.epoch:
        return offered
    if offered.epoch < held.epoch:
        raise OutOfOrder(
            f"charter.epoch: expected {held.epoch} or later, got {offered.epoch}; "
            "an older charter is never taken back"
        )
    if offered.digest != held.digest:
        raise Conflict(
            f"charter: two different ones are signed for epoch {held.epoch}; ask the officer which one holds"
        )
    return held
