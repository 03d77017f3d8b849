"""How a share server takes a later charter while it runs, and when it goes over to it.

It goes over as soon as no round is open, or with the first offer under the later charter. A round that was
left open under the earlier one passes no gate from then on: its shares are never summed.
"""

from __future__ import annotations

import json

from aggregator.share_server.rounds import unfinished
from aggregator.share_server.state import ShareServerState
from privacy.ids import PartyId
from privacy.wire.envelope import Envelope


class CharterIntake:
    """One share server's."""

    def __init__(self, state: ShareServerState) -> None:
        self._state = state

    def take(self, bearer: PartyId, raw: bytes) -> bool:
        """Take a later charter, whoever of the members brings it; False if it is here already.

        Raises:
            As ``Succession.take``.
        """
        charters = self._state.charters
        if not charters.take(raw):
            return False
        taken = charters.newest.charter
        with self._state.store.write() as transaction:
            transaction.record(
                "charter_taken",
                charter=taken.digest,
                epoch=taken.epoch,
                bearer=bearer,
                revoked=sorted(charters.revoked),
            )
        self.enter_if_idle()
        return True

    def enter_if_idle(self) -> None:
        """Go over to the later charter if no round is open under the earlier one."""
        if self._state.charters.coming is None:
            return
        with self._state.store.read() as view:
            idle = not unfinished(view)
        if idle:
            self._enter()

    def enter_for(self, offer: Envelope) -> None:
        """Go over to the later charter if this offer says that it rests on it. That is not believed: it makes
        the offer, which passes the gates next, be judged under the later charter."""
        coming = self._state.charters.coming
        if coming is not None and _charter_named(offer) == coming.charter.digest:
            self._enter()

    def _enter(self) -> None:
        before = self._state.charters.enter()
        if before is None:
            return
        self._state.rounds.judge_again()
        with self._state.store.write() as transaction:
            transaction.record(
                "charter_in_force", charter=self._state.charter.digest, epoch=self._state.charter.epoch
            )


def _charter_named(offer: Envelope) -> object:
    try:
        document = json.loads(offer.body)
    except ValueError:
        return None  # the gate says what is wrong with it
    plan = document.get("plan") if isinstance(document, dict) else None
    return plan.get("charter") if isinstance(plan, dict) else None
