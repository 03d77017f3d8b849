"""What a server answers to a silo that asks for the last heads of its own ledgers: proofs, no claims.

Each head is in a manifest that the silo signed; the round's offer says of which dataset, because a manifest's
context is the digest of the offer's plan, and the plan names its job by digest. So a server can leave a head
out and cannot make one up, nor move one from dataset to dataset.
"""

from __future__ import annotations

from pydantic import ValidationError

from privacy.canonical import Frozen, parse_canonical
from privacy.errors import MalformedMessage
from privacy.wire.envelope import Envelope

LEDGER_HEADS_BYTES_MAX = 64 << 20


class WitnessedHead(Frozen):
    """One ledger's furthest head that a server was shown."""

    offer: Envelope
    manifest: Envelope


class WitnessedHeads(Frozen):
    """One of each dataset with which the asking silo has taken part."""

    heads: tuple[WitnessedHead, ...]


def parse_witnessed_heads(raw: bytes) -> WitnessedHeads:
    """Decode the answer; nothing in it is believed yet.

    Raises:
        MalformedMessage: too large, not canonical JSON, or of another form.
    """
    try:
        return WitnessedHeads.model_validate(parse_canonical(raw, LEDGER_HEADS_BYTES_MAX))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"ledger heads: {where}: {fault['msg']}") from error
