"""The charter a running server lives by, and the one that follows it. Knows no HTTP and no round.

A later charter comes into force between rounds: the open round ends under its own. What cannot wait is
revocation: from the moment a later charter is taken, nobody whose key it revokes is let in.
"""

from __future__ import annotations

from collections.abc import Collection

from aggregator.held_charter import HeldCharter, keep_on_disk, later_charter
from policies.loader import LoadedPolicy
from privacy.canonical import canonical_bytes
from privacy.errors import Unprocessable
from privacy.ids import PartyId, SiloId
from privacy.keystore import Identity
from privacy.plan import RoundPlan
from privacy.roster import Charter


class Succession:
    """One server's charters. Touched on one event loop only."""

    def __init__(self, identity: Identity, held: HeldCharter) -> None:
        self._identity = identity
        self.held = held
        """In force: rounds are planned and judged under it."""
        self.coming: HeldCharter | None = None
        """Taken, and not yet in force."""
        self._at_the_door = held.charter

    @property
    def charter(self) -> Charter:
        """The charter in force."""
        return self.held.charter

    @property
    def policy(self) -> LoadedPolicy:
        """Its threat model."""
        return self.held.policy

    @property
    def newest(self) -> HeldCharter:
        """The one that is coming, or else the one in force."""
        return self.coming or self.held

    @property
    def revoked(self) -> frozenset[str]:
        """Keys that the coming charter revokes."""
        return frozenset() if self.coming is None else frozenset(self.coming.charter.revoked)

    @property
    def at_the_door(self) -> Charter:
        """The roster that callers are looked up in: the one in force without whoever is revoked."""
        return self._at_the_door

    def take(self, raw: bytes) -> bool:
        """Take a later charter; False if it is the newest one already. It is on disk before it counts.

        Raises:
            SignatureRejected, MalformedMessage: not endorsed by enough of the officers. OutOfOrder: an older
            one. Conflict: not the successor of the one held. PolicyInvalid: its threat model does not load.
        """
        if raw == canonical_bytes(self.newest.endorsed):
            return False
        later = later_charter(self._identity, self.newest, raw)
        if later is self.newest:
            return False
        keep_on_disk(self._identity, later)
        self.coming = later
        allowed = tuple(one for one in self.held.charter.members if one.verify_key not in self.revoked)
        self._at_the_door = self.held.charter.model_copy(update={"members": allowed})
        return True

    def enter(self) -> HeldCharter | None:
        """Put the coming charter in force, and return the one before; ``None`` if none is coming."""
        if self.coming is None:
            return None
        before, self.held, self.coming = self.held, self.coming, None
        self._at_the_door = self.held.charter
        return before


def revoked_silos(plan: RoundPlan, revoked: Collection[str]) -> list[SiloId]:
    """Silos of a round's cohort whose keys were revoked since it was planned."""
    return [member.silo for member in plan.cohort if member.verify_key in revoked]


def assert_none_revoked(plan: RoundPlan, survivors: Collection[SiloId], revoked: Collection[str]) -> None:
    """Refuse to open a sum with anybody in it, or through anybody, whose key was revoked meanwhile.

    Raises:
        Unprocessable: names them; the round ends unopened.
    """
    silos: list[PartyId] = [silo for silo in revoked_silos(plan, revoked) if silo in survivors]
    servers = [slot.server for slot in plan.servers if slot.verify_key in revoked]
    if gone := [*silos, *servers]:
        raise Unprocessable(
            f"round: {', '.join(gone)} was revoked while it was open; its sum stays closed, and the next "
            "round goes on without"
        )
