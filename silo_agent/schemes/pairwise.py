"""A silo's half of ``pairwise``: five signed steps, each on disk before it is sent.

docs/protocols.md, pairwise. The first two come before anything is charged or read, the third is the update
itself, the last two open the sum of the survivors. What is signed in a step, and that it is signed once, is
``privacy/secagg/pairwise``'s to judge; here it is stored, sent and waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies.assumption import assumption_of
from privacy.chain import Head
from privacy.errors import OutOfOrder, SealsumError
from privacy.ids import Digest
from privacy.secagg.pairwise.faults import StateDamaged
from privacy.secagg.pairwise.messages import ConsistencySignature
from privacy.secagg.pairwise.silo_keys import begin, share_keys
from privacy.secagg.pairwise.silo_masking import Masker, masker, open_shares, sign_masked
from privacy.secagg.pairwise.silo_opening import agree_survivors, unmask
from privacy.secagg.pairwise.silo_state import SiloState, Step, StepName
from privacy.secagg.pairwise.terms import judge_terms, terms_of
from privacy.secagg.parts import stretches
from privacy.secagg.vectors import vectors_of
from silo_agent.durable import private_directory, write_durably
from silo_agent.encoded import EncodedUpdate
from silo_agent.outbox import Stored
from silo_agent.schemes.half import Seat, Signed
from silo_agent.survivors import judge_survivors

STATE: Final = "pairwise.json"
"""``SiloState`` of the round, with the secrets that its next steps still need."""
PARTS: Final = "parts"


class PairwiseHalf:
    """One silo in one round. Everything it knows between steps is in its state file."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._masker: Masker | None = None

    def prepare(self) -> None:
        """Steps 1 and 2, and what the others dealt: keys and shares exist before an update does.

        (1) The terms withstand whom each threat model assumes hostile, the federation's and this silo's own;
        (2) this silo has not begun this round before: a crash since then makes it a dropout. (3) Advertise
        keys; (4) deal shares of them; (5) open what the others dealt: their dealers are the silos that the
        masks are shared with.

        Raises:
            WeakTerms: (1), before a key is made. OutOfOrder: (2), or the round is over.
            PeerFault: what the aggregator relays does not hold; see ``privacy.secagg.pairwise``.
        """
        seat = self._seat
        terms = terms_of(seat.plan, seat.aggregator)
        pinned = {silo: seat.charter.member(silo).verify_key for silo in seat.charter.silos}
        # (1)
        verify_key = seat.identity.signing.verify_key
        assumed = [assumption_of(policy.model.spec) for policy in seat.policies]
        for one in assumed:
            judge_terms(terms, seat.silo, verify_key, pinned, one)
        # (2)
        private_directory(seat.directory.parent)
        if (private_directory(seat.directory) / STATE).exists():
            raise OutOfOrder("pairwise: this silo began this round before it restarted; it begins none twice")
        # (3)
        self._send("keys", begin(terms, seat.silo, seat.identity.signing, pinned, assumed[-1]))
        # (4)
        adverts = seat.delivery.await_step(terms.context, "shares")
        self._send("shares", share_keys(self._state(), seat.identity.signing, adverts))
        # (5)
        bundles = seat.delivery.await_step(terms.context, "masked")
        self._store(open_shares(self._state(), bundles))

    def agree(self) -> None:
        """Nothing more."""

    def seal(self, update: EncodedUpdate, model: Digest) -> Iterator[bytes]:
        """The masked update's parts."""
        state = self._state()
        self._masker = masker(state, model)
        for part in vectors_of(self._seat.plan).parts(stretches):
            name, piece = part.vector.name, part.piece
            yield self._masker.mask(piece.index, update.elements(piece.start, piece.length, name), name)

    def manifest(self, ledger_head: Head) -> Signed:
        """Step 3: sign the one masked update; from here on the keys of its masks are gone.

        Raises:
            SealsumError: nothing was masked: a bug, not a peer's doing. OutOfOrder: parts are missing.
        """
        if self._masker is None:
            raise SealsumError("pairwise: expected the update to be masked before its manifest")
        step = sign_masked(self._state(), self._seat.identity.signing, self._masker, ledger_head)
        self._store(step.state)
        (manifest,) = step.messages
        return Signed(manifest, {})

    def deliver(self, stored: Stored) -> None:
        """Every part, then the manifest that names them."""
        delivery = self._seat.delivery
        for index, part in stored.parts():
            delivery.put_file(stored.context, PARTS, index, part)
        delivery.send_step(stored.context, "masked", [stored.contribution.manifest])

    def conclude(self, stored: Stored) -> None:
        """Steps 4 and 5: sign the one set of survivors, and hand out what opens their sum alone.

        Raises:
            PeerFault: the aggregator shows another set than before, or too few signatures; it gets nothing.
            PolicyRefusal: nor for a set that a threat model, the federation's or this silo's own, does not
                let be summed.
        """
        key, delivery = self._seat.identity.signing, self._seat.delivery
        manifests = delivery.await_step(stored.context, "consistency")
        agreed = agree_survivors(self._state(), key, manifests)
        named = ConsistencySignature.model_validate_json(agreed.messages[0].body)
        judge_survivors(self._seat, named.survivors, named.inputs)
        self._send("consistency", agreed)
        signatures = delivery.await_step(stored.context, "unmask")
        self._send("unmask", unmask(self._state(), key, signatures))

    def _send(self, step: StepName, signed: Step) -> None:
        """On disk first, then out: whatever crashes in between, no second message is ever signed."""
        self._store(signed.state)
        self._seat.delivery.send_step(signed.state.terms.context, step, signed.messages)

    def _store(self, state: SiloState) -> None:
        write_durably(self._seat.directory / STATE, state.to_bytes())

    def _state(self) -> SiloState:
        """As a restarted process finds it.

        Raises:
            StateDamaged: it is gone or cannot be read; this silo takes no further part in the round.
        """
        path = self._seat.directory / STATE
        try:
            return SiloState.from_bytes(path.read_bytes())
        except FileNotFoundError as error:
            raise StateDamaged(f"{path}: there is no state of this round") from error
