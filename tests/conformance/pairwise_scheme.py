"""``pairwise`` for the suites: its silos store before they send, and are restarted between any two steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import canonical_bytes
from privacy.errors import OutOfOrder, SealsumError
from privacy.ids import SiloId
from privacy.plan import CohortMember
from privacy.secagg.pairwise.collecting import (
    KeysClosed,
    MaskedClosed,
    SharesClosed,
    accept_keys,
    accept_masked,
    accept_shares,
    close_keys,
    close_masked,
    close_shares,
)
from privacy.secagg.pairwise.messages import ShareBundle, open_from_silo
from privacy.secagg.pairwise.opening import Agreed, accept_consistency, accept_unmask, close_consistency
from privacy.secagg.pairwise.silo_state import STEPS, StepName
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms, least_threshold
from privacy.secagg.pairwise.unmasking import SumHalf, check_part
from privacy.secagg.parts import stretches
from privacy.wire.envelope import Envelope
from tests.conformance.scheme import MODEL, Inbox, Opened, Piece, Setting, envelope_of
from tests.pairwise_cohort import SERVER, Member

T = TypeVar("T")
ASSUMED = Assumption("malicious", 0)


class PairwiseRound:
    """One server and its silos."""

    steps: tuple[StepName, ...] = STEPS
    counted = "masked"
    names_model = "masked"

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        silos = len(setting.cohort)
        self.terms = PairwiseTerms(
            context=setting.context,
            model=MODEL,
            server=SERVER,
            cohort=tuple(
                CohortMember(silo=silo, verify_key=setting.keys[silo].verify_key) for silo in setting.cohort
            ),
            vector_length=setting.length,
            threshold=least_threshold(silos, ASSUMED),
            minimum=setting.minimum,
        )
        self.members = {
            silo: Member(
                silo,
                setting.keys[silo],
                np.frombuffer(os.urandom(4 * setting.length), dtype="<u4"),
                ASSUMED,
                setting.models.get(silo, MODEL),
            )
            for silo in setting.cohort
        }
        self._pinned = {silo: key.verify_key for silo, key in setting.keys.items()}
        self._place = 0
        self._inbox = Inbox()
        self.left_out: dict[SiloId, SealsumError] = {}
        self.keys: KeysClosed | None = None
        self.shares: SharesClosed | None = None
        self.masked: MaskedClosed | None = None
        self.agreed: Agreed | None = None
        self.half: SumHalf | None = None

    def needed(self, step: str, counted: int) -> int:
        return self.terms.required if step in ("keys", "shares", "masked") else self.terms.threshold

    @property
    def step(self) -> str:
        return self.steps[self._place] if self._place < len(self.steps) else ""

    # --- silos ---

    def act(self, silo: SiloId) -> tuple[Piece, ...]:
        member, step = self.members[silo], self.steps[self._place]
        if not member.stored or step not in member.state.signed:
            self._answer(member, step)
        messages = member.state.sent(step)
        pieces = [Piece(silo, f"{step}/{m.recipient}", canonical_bytes(m)) for m in messages]
        if step == "masked":
            pieces += [Piece(silo, f"part/{n}", raw) for n, raw in enumerate(member.parts)]
        return tuple(pieces)

    def _answer(self, member: Member, step: StepName) -> None:
        shuffled = self.setting.shuffled
        if step == "keys":
            member.begin(self.terms, self._pinned)
        elif step == "shares":
            member.share_keys(shuffled(known(self.keys).relay))
        elif step == "masked":
            shares = known(self.shares)
            if member.silo not in shares.bundles:
                raise OutOfOrder(f"{member.silo}: the server holds it to have left")
            member.upload(shuffled(shares.inbox(member.silo)))
        elif step == "consistency":
            member.agree(shuffled(known(self.masked).relay))
        else:
            member.unmask(shuffled(known(self.agreed).relay))

    # --- the server ---

    def take(self, piece: Piece) -> None:
        if not self.step:
            raise OutOfOrder(f"{piece.label}: the round is over")
        if piece.label.startswith("part/"):
            if self.step != "masked":
                raise OutOfOrder(f"{piece.label}: no part is due in {self.step}")
        else:
            self._judge(envelope_of(piece))
        self._inbox.put(piece)

    def _judge(self, envelope: Envelope) -> None:
        """Whatever comes now is judged as a message of the step that is open."""
        if self.step == "keys":
            accept_keys(self.terms, envelope)
        elif self.step == "shares":
            open_from_silo(envelope, ShareBundle, self.terms, envelope.recipient)
        elif self.step == "masked":
            accept_masked(known(self.shares), envelope)
        elif self.step == "consistency":
            accept_consistency(known(self.masked), envelope)
        else:
            accept_unmask(known(self.agreed), envelope)

    def close(self) -> None:
        step, inbox = self.steps[self._place], self._inbox
        self._place, self._inbox = len(self.steps), Inbox()  # over, unless the step closes
        senders = sorted({silo for silo, label in inbox.held if not label.startswith("part/")})
        sent = {
            silo: [
                envelope_of(Piece(silo, label, raw))
                for (whose, label), raw in inbox.held.items()
                if whose == silo and not label.startswith("part/")
            ]
            for silo in senders
        }
        if step == "keys":
            self.keys = close_keys(
                self.terms, [accept_keys(self.terms, *messages) for messages in sent.values()]
            )
        elif step == "shares":
            dealt = []
            for silo, messages in sent.items():
                try:
                    dealt.append(accept_shares(known(self.keys), messages))
                except SealsumError as refusal:
                    self.left_out[silo] = refusal
            self.shares = close_shares(known(self.keys), dealt)
        elif step == "masked":
            self._close_masked(inbox, sent)
        elif step == "consistency":
            masked = known(self.masked)
            self.agreed = close_consistency(masked, [accept_consistency(masked, *m) for m in sent.values()])
        else:
            agreed = known(self.agreed)
            self.half = SumHalf(agreed, [accept_unmask(agreed, *messages) for messages in sent.values()])
        self._place = self.steps.index(step) + 1

    def _close_masked(self, inbox: Inbox, sent: Mapping[SiloId, list[Envelope]]) -> None:
        shares, manifests = known(self.shares), []
        self.parts: dict[SiloId, list[bytes]] = {}
        for silo, messages in sent.items():
            try:
                manifest = accept_masked(shares, *messages)
                labels = [f"part/{index}" for index in range(len(manifest.message.parts))]
                self.parts[silo] = inbox.of(silo, labels)
                for index, raw in enumerate(self.parts[silo]):
                    check_part(manifest, index, raw)
                manifests.append(manifest)
            except SealsumError as refusal:
                self.left_out[silo] = refusal
        self.masked = close_masked(shares, manifests)

    def opened(self) -> Opened:
        masked, half = known(self.masked), known(self.half)
        pieces = [
            half.total(
                piece.index,
                (
                    check_part(manifest, piece.index, self.parts[silo][piece.index])
                    for silo, manifest in masked.manifests.items()
                ),
            )
            for piece in stretches(self.setting.length)
        ]
        return Opened(masked.survivors, np.concatenate(pieces))

    def oracle(self, survivors: Iterable[SiloId]) -> NDArray[np.generic]:
        return np.sum([self.members[silo].update for silo in survivors], axis=0, dtype=np.uint32)


def known(value: T | None) -> T:
    """What an earlier step left; raises OutOfOrder where it did not close."""
    if value is None:
        raise OutOfOrder("round: an earlier step did not close")
    return value
