"""What the parts of a share server share: keys, charter, store, directories, and the rounds it admitted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from pydantic import BaseModel

from aggregator.blob_store import Blobs
from aggregator.share_server.rounds import AdmittedRounds
from aggregator.store import Store
from aggregator.succession import Succession
from policies.loader import LoadedPolicy
from privacy.errors import Unprocessable
from privacy.identity import SealingKey
from privacy.ids import Context, ServerId
from privacy.keystore import Identity
from privacy.plan import RoundPlan
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, MessageKind, sign_message


@dataclass(frozen=True)
class ShareServerState:
    """One share server's."""

    identity: Identity
    charters: Succession
    store: Store
    parts: Blobs
    """What silos send: <ctx>/<silo>/<part>; in rounds with validity also witnesses and checks."""
    openings: Blobs
    rounds: AdmittedRounds
    locks: defaultdict[Context, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    @property
    def charter(self) -> Charter:
        """The charter in force."""
        return self.charters.charter

    @property
    def policy(self) -> LoadedPolicy:
        """Its threat model."""
        return self.charters.policy

    @property
    def me(self) -> ServerId:
        """This server's name in the roster."""
        return ServerId(self.identity.pin.party)

    @property
    def sealing_key(self) -> SealingKey:
        """What seeds are sealed to."""
        key = self.identity.sealing
        assert key is not None  # noqa: S101 - the keystore loads one for every share server
        return key

    def plan_with_validity(self, ctx: Context) -> RoundPlan:
        """The plan of an admitted round whose silos prove what they share.

        Raises:
            NotFound: no such round. Unprocessable: its plan claims no validity.
        """
        plan = self.rounds.of(ctx).plan
        if plan.validity is None:
            raise Unprocessable("round: its plan claims no validity, so nothing is tossed or proven in it")
        return plan

    def is_first(self, plan: RoundPlan) -> bool:
        """Whether vectors come here; the others expand seeds."""
        return plan.servers[0].server == self.me

    def sign(self, message: BaseModel, kind: MessageKind, ctx: Context) -> Envelope:
        """Sign a message to all."""
        return sign_message(message, kind, ctx, self.me, self.identity.signing)
