"""Which silos may be summed, from the signed words of all share servers: this server reads them itself."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.received import open_of_servers
from aggregator.share_server.fixed import candidates_of
from aggregator.share_server.state import ShareServerState
from aggregator.store import Reader
from privacy.errors import OutOfOrder, Unprocessable
from privacy.ids import Digest, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.validity.agreement import passed_everywhere
from privacy.secagg.validity.messages import Verdicts
from privacy.wire.envelope import Envelope
from privacy.wire.messages import AcceptedSet, accepted_by_all


def accepted_everywhere(
    state: ShareServerState, view: Reader, plan: RoundPlan, said: Sequence[Envelope]
) -> dict[SiloId, Digest]:
    """Silos that all servers accepted, with the same manifest: silo → digest, sorted.

    Raises:
        OutOfOrder: nothing is frozen here. Unprocessable: a set is missing, or ours is not the frozen one.
        NotAllowed, SignatureRejected, MalformedMessage: see ``open_of_servers``.
    """
    sets = open_of_servers(state.charter, plan, said, AcceptedSet, "accepted")
    ours = view.message(plan.context, "accepted", state.me)
    if ours is None:
        raise OutOfOrder("round: agree comes after close")
    if not any(verified.envelope == ours for verified in sets):
        raise Unprocessable(f"accepted of {state.me}: expected the set that was frozen here")
    return accepted_by_all([verified.message for verified in sets])


def valid_everywhere(
    state: ShareServerState, view: Reader, plan: RoundPlan, said: Sequence[Envelope]
) -> dict[SiloId, Digest]:
    """Silos whose proof holds by the verdict of every server: silo → digest of its manifest, sorted.

    Raises:
        OutOfOrder: nothing is judged here. Unprocessable: verdicts are missing, are about other checks,
            or ours are not the ones we signed.
        NotAllowed, SignatureRejected, MalformedMessage: see ``open_of_servers``.
    """
    verdicts = open_of_servers(state.charter, plan, said, Verdicts, "validity_verdict")
    ours = view.message(plan.context, "validity_verdict", state.me)
    if ours is None:
        raise OutOfOrder("round: agree comes after verdicts on every proof")
    if not any(verified.envelope == ours for verified in verdicts):
        raise Unprocessable(f"verdicts of {state.me}: expected the ones that were signed here")
    return passed_everywhere([one.message for one in verdicts], candidates_of(view, plan))
