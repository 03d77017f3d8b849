"""What the aggregator asks of a secure-aggregation scheme, and what a scheme hands back: one opened sum.

Planning, the record of the round, the server step and the result are the same for all schemes
(``aggregator/round_flow.py``); what is sent, awaited, frozen and cleared in between is a scheme's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aggregator.blob_store import Blob
from aggregator.ledger_heads import witnessed_head
from aggregator.refused_updates import note_refused_update
from aggregator.round import Event, Round
from aggregator.state import AggregatorState, OpenRound
from aggregator.succession import assert_none_revoked, revoked_silos
from policies.findings import PolicyRefusal
from policies.gates import AdmittedUpdate, ClearedCohort, admit_update
from policies.rules_submission import Manifest
from privacy.errors import Unprocessable
from privacy.ids import Context, SiloId
from privacy.secagg.additive import Ring
from privacy.secagg.parts import Stretch
from privacy.secagg.vectors import MODEL, VectorName
from privacy.wire.envelope import Envelope, Verified


class StretchOfSum(Protocol):
    """The opened sums of a round's vectors."""

    def __call__(self, piece: Stretch, vector: VectorName = MODEL) -> Awaitable[Ring]:
        """One stretch of the sum of one vector, uint32[length]; asked for once each, the last one first."""


class Stopping(Exception):
    """The aggregator drains: the round is given up, and nobody is to blame."""


@dataclass(frozen=True)
class OpenedSum:
    """The evidence that a sum may be opened, and its ring elements, stretch by stretch."""

    cleared: ClearedCohort
    total: StretchOfSum


class SchemeFlow(Protocol):
    """One scheme's rounds at one aggregator."""

    steps: tuple[str, ...]
    """Names of what silos send to the aggregator one after the other (``aggregator.desk``)."""
    unkept: frozenset[str]
    """Those whose messages are in memory only: after a restart the round does not go on from there."""

    def upload_size(self, current: OpenRound, silo: SiloId, name: str, index: int) -> int:
        """Bytes of file ``index`` of a kind that this silo may send to the aggregator now.

        Raises:
            Unprocessable: the scheme knows no such file. OutOfOrder, NotAllowed: not now, or not this silo.
        """

    def download(self, current: OpenRound, silo: SiloId, name: str, index: int) -> Blob:
        """Where file ``index`` of a kind lies that this silo may fetch now.

        Raises:
            NotFound: there is none. OutOfOrder, NotAllowed: not now, or not for this silo.
        """

    async def announce(self, current: OpenRound) -> None:
        """Tell whoever else must admit the round before silos see the offer.

        Raises:
            PeerFault: one of them refuses.
        """

    async def recall(self, current: OpenRound) -> None:
        """After a restart: note what silos have done in this round that others know and we did not store.

        Raises:
            PeerFault, PolicyRefusal: another party shows what does not hold.
        """

    async def open(self, current: OpenRound) -> OpenedSum:
        """Collect, freeze, agree, clear and record the one opening, in the order of ``aggregator.round``.

        Raises:
            PeerFault, PolicyRefusal: what ends the round, by name. Stopping: the process drains.

        In a round that goes on after a restart it is called again, from the start: everything before
        ``record`` follows from the same stored answers to the same end.
        """

    async def resume(self, round_: Round) -> OpenedSum:
        """Open again what may have been opened before a crash: the same survivors, so the same sum.

        Raises:
            PeerFault, PolicyRefusal: it cannot be, by name.
        """

    async def finish(self, ctx: Context, result: Envelope) -> bool:
        """Delete everything of the round that could still open something; whether all of it is gone."""


def admit_submission(
    state: AggregatorState, current: OpenRound, manifest: Verified[Manifest]
) -> AdmittedUpdate:
    """The submission gate; what it refuses is in the log.

    Raises:
        PolicyRefusal: the manifest is not one of this round's, or its silo's ledger went back.
    """
    with state.store.read() as view:
        witnessed = witnessed_head(view, current.admitted, manifest.message.silo)
    try:
        return admit_update(current.admitted, manifest, witnessed)
    except PolicyRefusal as refusal:
        note_refused_update(state.store, current.ctx, manifest.sender, refusal)
        raise


async def keep(
    state: AggregatorState,
    current: OpenRound,
    event: Event,
    envelopes: Sequence[Envelope],
    kind: str,
    cleared: ClearedCohort,
) -> None:
    """Messages, the phase they lead to and its log entry, in one transaction.

    ``record`` is on disk before anything is opened: whatever happens from here on, no second opening. Before
    either event an audit sink has taken all that was logged (``evidence.fail_closed``).

    Raises:
        PolicyRefusal: no sink has. Unprocessable: a survivor was revoked since the round began.
    """
    taken = await state.store.sinks.gate_beside([state.held.policy])
    plan = current.round.plan
    if event == "clear" or not plan.servers:  # what share servers have released is opened
        assert_none_revoked(plan, cleared.survivors, state.charters.revoked)
    phase = current.round.step(event)
    with state.store.write() as transaction:
        current.store_answers(transaction)
        if transaction.phase(current.ctx) == phase:
            return  # an earlier process got as far, with the same messages
        for envelope in envelopes:
            transaction.add_message(current.ctx, envelope.sender, envelope)
        if event == "record":
            transaction.add_opening(current.ctx, cleared.survivors_digest, taken)
        transaction.set_phase(current.ctx, phase)
        transaction.record(
            kind, context=current.ctx, survivors=list(cleared.survivors), digest=cleared.survivors_digest
        )


async def wait_until(state: AggregatorState, current: OpenRound, settled: Callable[[], bool]) -> None:
    """Wait until ``settled``, or for the plan's deadline (monotonic) from now on, or what a restart left.

    Raises:
        Stopping: the process drains. Unprocessable: so many silos refuse that no sum can be opened, or one
            that is in the sum already was revoked.
    """
    round_ = current.round

    def over() -> bool:
        return settled() or round_.hopeless or bool(_revoked_in_it(state, current))

    await state.bell.wait_for(lambda: True if over() else None, current.seconds_left())
    if state.bell.silent:
        raise Stopping
    assert_none_revoked(round_.plan, _revoked_in_it(state, current), state.charters.revoked)
    if round_.hopeless:
        refused = ", ".join(silo for silo, answer in sorted(round_.answers.items()) if answer == "refusal")
        raise Unprocessable(f"cohort: {round_.plan.min_survivors} silos are needed; these refused: {refused}")


def _revoked_in_it(state: AggregatorState, current: OpenRound) -> list[SiloId]:
    """Revoked silos that have a part in the sum by now. Share servers leave theirs out by themselves."""
    plan, revoked = current.round.plan, state.charters.revoked
    if not revoked or plan.servers:
        return []
    answers, desk = current.round.answers, current.desk
    return [
        silo for silo in revoked_silos(plan, revoked) if answers.get(silo) == "manifest" or desk.heard(silo)
    ]
