"""One answer for a silo whose round has ended: its result, and the next one's offer, if that is open by then.

Nothing here is signed as a whole. The envelopes inside are, and are opened as they always are; the model is
hashed by whoever trains from it.
"""

from __future__ import annotations

from typing import Final

from pydantic import Base64Bytes, Field, ValidationError

from privacy.canonical import Frozen
from privacy.errors import MalformedMessage
from privacy.ids import HexDigest
from privacy.wire.envelope import MAX_ENVELOPE_BYTES, Envelope

MODEL_BYTES_MAX: Final = 1 << 18
"""A larger model is fetched by itself."""
NEXT_ROUND_BYTES_MAX: Final = 2 * MAX_ENVELOPE_BYTES + 2 * MODEL_BYTES_MAX


class CarriedModel(Frozen):
    """A small model's raw float32 bytes, under the digest that the sender says they have."""

    digest: HexDigest
    raw: Base64Bytes = Field(repr=False, max_length=4 * ((MODEL_BYTES_MAX + 2) // 3))
    """Base64 as it travels; the longest text is that of the largest model."""


class NextRound(Frozen):
    """What follows a round."""

    result: Envelope
    offer: Envelope | None
    """Of the round that is open now and invites this silo."""
    model: CarriedModel | None
    """What that offer's plan starts from."""


def parse_next_round(raw: bytes) -> NextRound:
    """Decode; nothing in it is believed yet.

    Raises:
        MalformedMessage: it is not of that form.
    """
    try:
        return NextRound.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"next round: {where}: {fault['msg']}") from error
