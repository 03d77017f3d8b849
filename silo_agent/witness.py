"""This silo as a witness of the servers' logs: what it believes of an offered view."""

from __future__ import annotations

from privacy.roster import Charter
from privacy.transparency.checkpoint import LogHead, log_origin, open_checkpoint
from privacy.wire.envelope import Verified
from privacy.wire.messages import RoundOffer


def offered_head(offer: Verified[RoundOffer], charter: Charter) -> LogHead:
    """The head of its log that the aggregator signed.

    Raises:
        MalformedMessage, SignatureRejected: it is not a checkpoint of the offer's sender.
    """
    origin = log_origin(charter.federation, offer.sender)
    key = charter.member(offer.sender).verify_key
    return open_checkpoint(offer.message.log.checkpoint, origin, key).head
