"""What the agent asks of a scheme in one round, and what a scheme is given: one silo's seat in that round.

    prepare ─► (RESERVE, BEGIN, train) ─► agree ─► seal each part ─► manifest ─► outbox ─► deliver ─► conclude

``prepare`` runs before anything is charged or read, ``agree`` when the update exists. What must outlive a
crash lies in the seat's directory,
written before it is sent; after a crash a half is made anew for the stored contribution, which it delivers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from policies.loader import LoadedPolicy
from privacy.chain import Head
from privacy.ids import Digest, PartyId, SiloId
from privacy.keystore import Identity
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.secagg.threshold.kept import OpenFhe
from privacy.wire.envelope import Envelope
from silo_agent.delivery import Delivery
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Stored


@dataclass(frozen=True)
class Seat:
    """One silo in one round."""

    plan: RoundPlan
    silo: SiloId
    aggregator: PartyId
    """Who signed the offer."""
    identity: Identity
    charter: Charter
    policies: tuple[LoadedPolicy, ...]
    """The federation's threat model first, then the silo's own."""
    delivery: Delivery
    directory: Path
    """Of this scheme's secrets of this round, mode 0700; the half makes it, the agent removes it."""
    openfhe: OpenFhe = field(default_factory=OpenFhe)
    """The agent's OpenFHE, under the interpreter of this silo's own settings; started where it is used."""


@dataclass(frozen=True)
class Signed:
    """What goes into the outbox beside the parts."""

    manifest: Envelope
    seeds: dict[str, str]
    """Server → sealed seed in base64, where the scheme has any."""


class SchemeHalf(Protocol):
    """One silo's half of one scheme in one round."""

    def prepare(self) -> None:
        """Everything that comes before the update exists: agree on keys, or nothing.

        Raises:
            PeerFault, PolicyRefusal: this round cannot be; the silo takes no part, and nothing is charged.
        """

    def agree(self) -> None:
        """What is agreed on with the others only once the update exists, or nothing.

        Raises:
            PeerFault: this round cannot be; its charge stays.
        """

    def seal(self, update: EncodedUpdate, model: Digest) -> Iterator[bytes]:
        """The parts that leave the silo, in order, each computed when asked for, once.

        ``model`` is the digest that this silo computed of the bytes it received: it binds masks, so that
        silos sent different models add up to noise (Pasquini et al. 2021, arXiv 2111.07380).

        Raises:
            UpdateOutOfRange: a coordinate is not finite or beyond the plan's bound; never clipped to fit.
        """

    def manifest(self, ledger_head: Head) -> Signed:
        """Sign which bytes are this silo's one update, once each part has been drawn once."""

    def deliver(self, stored: Stored) -> None:
        """Send a stored contribution, the same bytes however often.

        Raises:
            PeerFault: a server's refusal.
        """

    def conclude(self, stored: Stored) -> None:
        """What this silo has to do between its upload and the round's result, if anything.

        Raises:
            PeerFault: the round cannot go on for this silo; its result says how it ended.
        """
