"""A round of norm proofs in memory, with a silo that shares one vector and proves another.

The servers hold shares and seeds as in a round of ``additive`` with validity; none sees a silo's vector.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from privacy.identity import SealingKey
from privacy.ids import Digest, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.coins import Coin, CoinHalf, Reveals, Step, Toss, settle
from privacy.secagg.validity.field import add, from_signed, to_bytes
from privacy.secagg.validity.server import UpdateRejected, ValidityServerHalf, judge
from privacy.secagg.validity.sharing import Binding, unseal_seed
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import ValidityTerms

Encoded = NDArray[np.int64]
"""int64[d + 1]: coordinates in steps of the grid and, last, the weight."""


def passes(plan: RoundPlan, terms: ValidityTerms, silo: SiloId, shared: Encoded, proven: Encoded) -> bool:
    """Whether all servers' verdict on a silo is to leave it in the sum.

    Args:
        shared: what the silo really puts at the servers. proven: what it proves; the same for an honest one.

    Raises:
        UpdateOutOfRange: ``proven`` is beyond the bound: the proof's own code refuses it before it leaves.
    """
    servers = tuple(slot.server for slot in plan.servers)
    keys = {server: SealingKey.generate() for server in servers}
    binding = Binding(plan.context, terms.digest, plan.model, silo)
    half = ValiditySiloHalf(terms, binding, {server: key.public_hex for server, key in keys.items()})
    # The vector fits in one part.
    share = add(half.share(0, proven), from_signed(shared - proven))
    half.commit()
    first = _toss(plan, 1, to_bytes(share), servers)
    half.open_coin(first)
    half.project(0, proven)
    witness = half.prove()
    coins = (first, _toss(plan, 2, to_bytes(witness), servers))
    messages = {}
    for place, server in enumerate(servers):
        seed = unseal_seed(half.sealed_seeds[server], keys[server], binding, server)
        check = ValidityServerHalf(terms, seed, coins, first=place == 0)
        check.absorb(0, share if place == 0 else None)
        messages[server] = check.message(witness if place == 0 else None)
    try:
        judge(terms, coins[1], silo, messages)
    except UpdateRejected:
        return False
    return True


def _toss(plan: RoundPlan, step: Step, frozen: bytes, servers: tuple[ServerId, ...]) -> Coin:
    """A coin of honest servers over what is frozen by then."""
    toss = Toss(plan.context, step, Digest(hashlib.sha256(frozen).hexdigest()), servers)
    halves = {server: CoinHalf(toss, server) for server in servers}
    commitments = {server: half.commitment for server, half in halves.items()}
    values = {server: half.reveal(commitments) for server, half in halves.items()}
    return settle(toss, Reveals(commitments, values))
