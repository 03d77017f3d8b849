"""One call in which a silo waits for its round's end, then for the next round: what it needs for both.

A round of one gradient step is over sooner than three more calls are answered, so they are one.
"""

from __future__ import annotations

import base64
from typing import Final

from aggregator.model_intake import Models
from aggregator.state import AggregatorState
from aggregator.submissions import Submissions
from privacy.ids import Context, SiloId
from privacy.roster import Member
from privacy.wire.envelope import Envelope
from privacy.wire.messages import RoundResult
from privacy.wire.next_round import MODEL_BYTES_MAX, CarriedModel, NextRound

OFFER_WAIT_S: Final = 1.0
"""Longest that a result is held back for an offer to go with it: the next round opens far sooner, or it waits
for silos."""


async def next_round(
    state: AggregatorState,
    models: Models,
    submissions: Submissions,
    silo: Member,
    ctx: Context,
    seconds: float,
) -> NextRound | None:
    """A round's result, with the offer of the next round and a small model of it; ``None`` while it is open.

    The offer is what ``GET /v1/offers`` would answer, the model what ``GET /v1/models`` would, by the same
    functions: this call opens no other door to them.

    Raises:
        NotFound: no such round. PolicyRefusal: the model is not for this silo.
    """
    result = await submissions.wait_result(silo.id, ctx, seconds)
    if result is None:
        return None
    if RoundResult.model_validate_json(result.body).job_state != "running":
        return NextRound(result=result, offer=None, model=None)
    offer = await submissions.next_offer(SiloId(silo.id), ctx, min(seconds, OFFER_WAIT_S))
    model = None if offer is None else await _model_of(state, models, silo, offer)
    return NextRound(result=result, offer=offer, model=model)


async def _model_of(
    state: AggregatorState, models: Models, silo: Member, offer: Envelope
) -> CarriedModel | None:
    """The small model that the open round starts from."""
    current = state.current
    if current is None or current.offer is not offer:
        return None  # it closed just now
    digest = current.round.plan.model
    blob, size = models.blob(silo, digest)
    if size > MODEL_BYTES_MAX:
        return None
    raw = await blob.fetch()
    return CarriedModel(digest=digest, raw=base64.b64encode(raw))
