"""A pairwise round in memory: every role of the protocol, whose silos can drop out or misbehave anywhere.

Every message goes through bytes, and every silo's state through its stored form at every step, so that
what a test sees is what a process that is killed and restarted between any two steps would do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.errors import PeerFault, SealsumError
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, PartyId, SiloId
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
from privacy.secagg.pairwise.opening import Agreed, accept_consistency, accept_unmask, close_consistency
from privacy.secagg.pairwise.silo_keys import begin, share_keys
from privacy.secagg.pairwise.silo_masking import masker, open_shares, sign_masked
from privacy.secagg.pairwise.silo_opening import agree_survivors, unmask
from privacy.secagg.pairwise.silo_state import STEPS, SiloState, Step, StepName
from privacy.secagg.pairwise.terms import Assumption, PairwiseTerms, least_threshold
from privacy.secagg.pairwise.unmasking import SumHalf, check_part
from privacy.secagg.parts import stretches
from privacy.wire.envelope import Envelope, parse_envelope

Ring = NDArray[np.uint32]
Tamper = Callable[[tuple[Envelope, ...]], tuple[Envelope, ...]]
SERVER = PartyId("aggregator")
T = TypeVar("T")
MODEL = Digest("22" * 32)
CURIOUS = Assumption("honest_but_curious", 0)
MALICIOUS = Assumption("malicious", 0)


def names(silos: int) -> tuple[SiloId, ...]:
    """Names whose order is not the order in which they were made, as in a real roster."""
    return tuple(sorted(SiloId(f"silo-{sha256_hex(bytes([n]))[:6]}") for n in range(silos)))


@dataclass
class Member:
    """One silo: its key, its update, and what it has stored."""

    silo: SiloId
    key: SigningKey
    update: Ring
    assumed: Assumption
    model: Digest = MODEL
    stored: bytes = b""
    parts: list[bytes] = field(default_factory=list)

    @property
    def state(self) -> SiloState:
        """As a restarted process finds it."""
        return SiloState.from_bytes(self.stored)

    def keep(self, step: Step) -> tuple[Envelope, ...]:
        """Store first, then send."""
        self.stored = step.state.to_bytes()
        return sent(step.messages)

    def begin(self, terms: PairwiseTerms, pinned: Mapping[SiloId, str]) -> tuple[Envelope, ...]:
        return self.keep(begin(terms, self.silo, self.key, pinned, self.assumed))

    def share_keys(self, adverts: Sequence[Envelope]) -> tuple[Envelope, ...]:
        return self.keep(share_keys(self.state, self.key, adverts))

    def upload(self, inbox: Sequence[Envelope]) -> tuple[Envelope, ...]:
        self.stored = open_shares(self.state, inbox).to_bytes()
        masks = masker(self.state, self.model)
        self.parts = [
            masks.mask(piece.index, self.update[piece.start : piece.start + piece.length])
            for piece in stretches(len(self.update))
        ]
        return self.keep(sign_masked(self.state, self.key, masks, EMPTY))

    def agree(self, manifests: Sequence[Envelope]) -> tuple[Envelope, ...]:
        return self.keep(agree_survivors(self.state, self.key, manifests))

    def unmask(self, signatures: Sequence[Envelope]) -> tuple[Envelope, ...]:
        return self.keep(unmask(self.state, self.key, signatures))


def sent(messages: Sequence[Envelope]) -> tuple[Envelope, ...]:
    """What comes out at the other end of a wire."""
    return tuple(parse_envelope(canonical_bytes(message)) for message in messages)


@dataclass
class Cohort:
    """Silos and the server. ``drops``: the first step a silo omits; ``tampers``: what it sends instead."""

    members: dict[SiloId, Member]
    terms: PairwiseTerms
    drops: Mapping[SiloId, StepName] = field(default_factory=dict)
    tampers: Mapping[tuple[SiloId, StepName], Tamper] = field(default_factory=dict)
    refused: dict[tuple[SiloId, StepName], SealsumError] = field(default_factory=dict)
    """Whom the server, or the silo itself, refused in which step, and why."""

    @staticmethod
    def of(
        silos: int,
        length: int = 5,
        assumed: Assumption = CURIOUS,
        minimum: int = 2,
        threshold: int | None = None,
        drops: Mapping[SiloId, StepName] | None = None,
        tampers: Mapping[tuple[SiloId, StepName], Tamper] | None = None,
    ) -> Cohort:
        members = {
            silo: Member(
                silo, SigningKey.generate(), np.frombuffer(os.urandom(4 * length), dtype="<u4"), assumed
            )
            for silo in names(silos)
        }
        terms = PairwiseTerms(
            context=Context(Digest(os.urandom(32).hex())),
            model=MODEL,
            server=SERVER,
            cohort=tuple(
                CohortMember(silo=silo, verify_key=member.key.verify_key) for silo, member in members.items()
            ),
            vector_length=length,
            threshold=least_threshold(silos, assumed) if threshold is None else threshold,
            minimum=minimum,
        )
        return Cohort(members, terms, drops or {}, tampers or {})

    @property
    def pinned(self) -> dict[SiloId, str]:
        return {silo: member.key.verify_key for silo, member in self.members.items()}

    @property
    def silos(self) -> tuple[SiloId, ...]:
        return tuple(self.members)

    def oracle(self, survivors: Sequence[SiloId]) -> Ring:
        """The plain sum."""
        return np.sum(np.stack([self.members[s].update for s in survivors]), axis=0, dtype=np.uint32)

    def step(
        self, step: StepName, silos: Sequence[SiloId], act: Callable[[Member], tuple[Envelope, ...]]
    ) -> dict[SiloId, tuple[Envelope, ...]]:
        """What the silos that are still there send in one step."""
        answers: dict[SiloId, tuple[Envelope, ...]] = {}
        for silo in silos:
            gone = self.drops.get(silo)
            if gone is not None and STEPS.index(gone) <= STEPS.index(step):
                continue
            try:
                answers[silo] = act(self.members[silo])
            except SealsumError as refusal:
                self.refused[silo, step] = refusal
                continue
            if (silo, step) in self.tampers:
                answers[silo] = self.tampers[silo, step](answers[silo])
        return answers

    def accept(
        self,
        step: StepName,
        answers: Mapping[SiloId, tuple[Envelope, ...]],
        judge: Callable[[tuple[Envelope, ...]], T],
    ) -> list[T]:
        accepted: list[T] = []
        for silo, messages in answers.items():
            try:
                accepted.append(judge(messages))
            except PeerFault as refusal:
                self.refused[silo, step] = refusal
        return accepted

    def keys(self) -> KeysClosed:
        answers = self.step("keys", self.silos, lambda member: member.begin(self.terms, self.pinned))
        return close_keys(
            self.terms, self.accept("keys", answers, lambda sent: accept_keys(self.terms, *sent))
        )

    def shares(self, keys: KeysClosed) -> SharesClosed:
        answers = self.step("shares", tuple(keys.adverts), lambda member: member.share_keys(keys.relay))
        return close_shares(keys, self.accept("shares", answers, lambda sent: accept_shares(keys, sent)))

    def masked(self, shares: SharesClosed) -> MaskedClosed:
        answers = self.step("masked", shares.dealers, lambda member: member.upload(shares.inbox(member.silo)))
        return close_masked(shares, self.accept("masked", answers, lambda sent: accept_masked(shares, *sent)))

    def agreed(self, masked: MaskedClosed) -> Agreed:
        answers = self.step("consistency", masked.survivors, lambda member: member.agree(masked.relay))
        return close_consistency(
            masked, self.accept("consistency", answers, lambda sent: accept_consistency(masked, *sent))
        )

    def opened(self, agreed: Agreed) -> SumHalf:
        answers = self.step("unmask", tuple(agreed.signatures), lambda member: member.unmask(agreed.relay))
        return SumHalf(agreed, self.accept("unmask", answers, lambda sent: accept_unmask(agreed, *sent)))

    def total(self, masked: MaskedClosed, half: SumHalf) -> Ring:
        """The opened sum, part by part, from what the survivors uploaded."""
        pieces = [
            half.total(
                piece.index,
                (
                    check_part(manifest, piece.index, self.members[silo].parts[piece.index])
                    for silo, manifest in masked.manifests.items()
                ),
            )
            for piece in stretches(self.terms.vector_length)
        ]
        return np.concatenate(pieces)

    def until_masked(self) -> MaskedClosed:
        return self.masked(self.shares(self.keys()))

    def run(self) -> tuple[tuple[SiloId, ...], Ring]:
        """A whole round: who survived, and the opened sum."""
        masked = self.until_masked()
        return masked.survivors, self.total(masked, self.opened(self.agreed(masked)))
