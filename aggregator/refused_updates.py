"""What a log says of an update that the submission gate refused, as often as the quota allows."""

from __future__ import annotations

from aggregator.store import Store
from policies.findings import PolicyRefusal
from privacy.ids import Context, PartyId


def note_refused_update(store: Store, ctx: Context, silo: PartyId, refusal: PolicyRefusal) -> None:
    """Enter it with the names of the rules that refused it."""
    counted = store.refusals.take(f"update {silo}")
    if counted is None:
        return
    rules = [finding.rule for finding in refusal.findings]
    with store.write() as transaction:
        transaction.record("update_refused", context=ctx, silo=silo, rules=rules, **counted)
