"""A later charter at a running aggregator: taken when a member brings it, in force before the next round.

It is carried to the share servers at once, because revocation does not wait for the open round. Jobs that
were signed under an earlier charter end with it.
"""

from __future__ import annotations

import asyncio
import logging

from aggregator.ending import fail_job
from aggregator.job_rows import keep_charter, open_jobs
from aggregator.peers import ShareServers
from aggregator.state import AggregatorState
from aggregator.succession import revoked_silos
from privacy.canonical import canonical_bytes
from privacy.errors import PeerFault
from privacy.ids import PartyId, ServerId

_log = logging.getLogger("sealsum.aggregator")


class CharterChange:
    """Takes later charters for one aggregator."""

    def __init__(self, state: AggregatorState, servers: ShareServers) -> None:
        self._state = state
        self._servers = servers

    async def take(self, bearer: PartyId, raw: bytes) -> bool:
        """Take a later charter, whoever of the members brings it; False if it is here already. In this order:

        (1) it is the endorsed successor of the newest one here; (2) it is on disk and in the log; (3) nobody
        whom it revokes is let in, or waited for, any more; (4) the share servers are told.

        Raises:
            As ``Succession.take``.
        """
        state = self._state
        # (1), (2)
        if not state.charters.take(raw):
            return False
        taken = state.charters.newest.charter
        with state.store.write() as transaction:
            keep_charter(transaction, taken.digest, state.charters.newest.endorsed)
            transaction.record(
                "charter_taken",
                charter=taken.digest,
                epoch=taken.epoch,
                bearer=bearer,
                revoked=sorted(state.charters.revoked),
            )
        state.brought.clear()
        # (3)
        leave_out_revoked(state)
        state.bell.ring()
        # (4)
        await asyncio.gather(*(self._tell(server) for server in state.held.charter.share_servers))
        return True

    async def _tell(self, server: ServerId) -> None:
        try:
            await bring_charter(self._state, self._servers, server)
        except PeerFault as fault:
            # It is told again before the next round, which it would refuse otherwise.
            _log.warning("charter_not_brought", extra={"server": server, "reason": str(fault)})


async def bring_charter(state: AggregatorState, servers: ShareServers, server: ServerId) -> None:
    """Have a share server hold the newest charter, unless this process has brought it there before.

    Raises:
        PeerFault: it does not answer, or refuses it.
    """
    if server not in state.brought:
        newest = state.charters.newest
        await servers.bring_charter(server, canonical_bytes(newest.endorsed))
        if newest is state.charters.newest:
            state.brought.add(server)


def leave_out_revoked(state: AggregatorState) -> None:
    """Stop waiting for silos of the open round whose keys were revoked; what they sent is not summed."""
    current = state.current
    if current is None:
        return
    for silo in revoked_silos(current.round.plan, state.charters.revoked):
        with state.store.write() as transaction:
            transaction.record("silo_revoked", context=current.ctx, silo=silo)
        if current.round.phase == "collecting" and silo not in current.round.answers:
            current.round.answered(silo, "refusal")


def enter_charter(state: AggregatorState) -> None:
    """Put the coming charter in force, between rounds; jobs of earlier charters end, with their reason."""
    before = state.charters.enter()
    if before is None:
        return
    charter = state.held.charter
    with state.store.write() as transaction:
        transaction.record("charter_in_force", charter=charter.digest, epoch=charter.epoch)
    _log.info("charter", extra={"epoch": charter.epoch, "digest": charter.digest})
    with state.store.read() as view:
        ending = [job for _, job in open_jobs(view) if job.spec.charter != charter.digest]
    for job in ending:
        fail_job(
            state,
            job,
            f"charter epoch {charter.epoch} is in force, and the job was signed under an earlier one; "
            "sign it again under the new charter",
        )
