"""How a round ended, believed only if it is the aggregator's word on this very plan. Knows no network."""

from __future__ import annotations

from privacy.errors import Unprocessable
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, open_envelope
from privacy.wire.messages import MAX_BYTES, RoundResult


def open_result(envelope: Envelope, plan: RoundPlan, charter: Charter) -> RoundResult:
    """Check a round's result, in this order:

    (1) an enrolled aggregator signed it under the plan's context; (2) it starts from the plan's model;
    (3) its survivors were invited; (4) a model came out exactly if the one sum was opened, and then over
    at least the plan's minimum of survivors. A round that was aborted after its opening was recorded has
    used it up, without a model; (5) with a model come the plan's further vectors, each whole, and no others.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: (1). Unprocessable: (2) to (5).
    """
    # (1)
    aggregators = {member.id: member.verify_key for member in charter.with_role("aggregator")}
    result = open_envelope(
        envelope,
        RoundResult,
        kind="result",
        context=plan.context,
        verify_key_of=lambda sender: aggregators.get(sender, ""),
        max_bytes=MAX_BYTES["result"],
    ).message
    # (2)
    if result.model_in != plan.model:
        raise Unprocessable(f"result.model_in: expected {plan.model[:16]}…, got {result.model_in[:16]}…")
    # (3)
    strangers = set(result.survivors) - set(plan.silos)
    if strangers:
        raise Unprocessable(f"result.survivors: expected invited silos, got {', '.join(sorted(strangers))}")
    # (4)
    opened = result.outcome == "opened"
    if opened != (result.model_out is not None) or (opened and result.openings != 1):
        raise Unprocessable("result: expected a model, of one opening, exactly if the outcome is opened")
    if opened and len(set(result.survivors)) < plan.min_survivors:
        raise Unprocessable(
            f"result.survivors: expected at least {plan.min_survivors}, got {len(set(result.survivors))}"
        )
    # (5)
    asked = {vector.name: vector.coordinates for vector in plan.further} if opened else {}
    if {name: len(values) for name, values in result.further.items()} != asked:
        raise Unprocessable(
            f"result.further: expected {', '.join(asked) or 'no vectors'}, each whole, got "
            f"{', '.join(result.further) or 'none'}"
        )
    return result
