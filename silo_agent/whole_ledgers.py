"""Before a silo spends: ask every server of the charter whether our ledgers hold what it has seen."""

from __future__ import annotations

from datetime import UTC, datetime

from privacy.ids import SiloId
from privacy.keystore import Identity
from silo_agent.delivery import Delivery
from silo_agent.ledger.books import Books
from silo_agent.ledger.witnessed import open_witnessed


class WholeLedgers:
    """Asks once for each set of servers: at start, and after each change of the charter."""

    def __init__(self, books: Books, identity: Identity) -> None:
        self._books = books
        self._identity = identity
        self._asked: Delivery | None = None

    def check(self, delivery: Delivery) -> None:
        """Go on only from ledgers that are whole.

        Raises:
            LedgerDamaged: an entry is missing. PeerFault: a server does not answer, or shows no proof; then
                the next call asks again.
        """
        if self._asked is delivery:
            return
        silo, key = SiloId(self._identity.pin.party), self._identity.signing.verify_key
        seen = open_witnessed(delivery.witnessed_heads(), silo, key)
        self._books.assert_whole(seen, datetime.now(UTC))
        self._asked = delivery
