"""What a silo knows and has signed in one round: the value it stores before anything it signed is sent.

    step = share_keys(state, key, adverts)
    store(step.state.to_bytes())          # first, mode 0600
    send(step.messages)                   # then

Whoever reloads it after a crash gives the same answers, and refuses to sign a second, different message
in a step that it has signed. A secret leaves the state with the last step that needs it. Knows no disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from privacy.canonical import Frozen, canonical_bytes, digest_of, parse_canonical
from privacy.errors import MalformedMessage, OutOfOrder
from privacy.ids import Digest, HexDigest, HexKey, SiloName
from privacy.secagg.pairwise.faults import Equivocation, StateDamaged
from privacy.secagg.pairwise.messages import ShareHex
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.wire.envelope import Envelope

StepName = Literal["keys", "shares", "masked", "consistency", "unmask"]
STEPS: tuple[StepName, ...] = ("keys", "shares", "masked", "consistency", "unmask")
"""The order of a round: each step is signed after the one before it, and once."""

_MAX_STATE_BYTES = 32 << 20


class RoundSecrets(Frozen):
    """This silo's own secrets of one round; gone from the state once its masked update is signed."""

    seed: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(repr=False)
    """b: keys this silo's own mask."""
    mask_key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(repr=False)
    """X25519 private key."""
    sealing_key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{192}$")] = Field(repr=False)
    """ML-KEM-768 seed ‖ X25519 private key."""


class HeldShares(Frozen):
    """What a dealer gave this silo for safe keeping: at most one of the two is ever handed out."""

    key: ShareHex = Field(repr=False)
    seed: ShareHex = Field(repr=False)


class Signed(Frozen):
    """One step's answer, and the digest of what it answers."""

    seen: HexDigest
    messages: tuple[Envelope, ...]


class SiloState(Frozen):
    """One silo in one round."""

    terms: PairwiseTerms
    silo: SiloName
    secrets: RoundSecrets | None
    key_set: HexDigest | None = None
    """K, once the keys of all are known."""
    mask_keys: dict[SiloName, HexKey] = Field(default_factory=dict)
    """U1, and each one's public mask key."""
    inbox: HexDigest | None = None
    """Digest of the bundles that were opened; no second inbox is."""
    dealers: tuple[SiloName, ...] = ()
    """U2, sorted: whose bundles were opened."""
    held: dict[SiloName, HeldShares] = Field(default_factory=dict)
    """What they dealt, less the ``unusable``; gone once step 5 is signed."""
    unusable: tuple[SiloName, ...] = ()
    signed: dict[StepName, Signed] = Field(default_factory=dict)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Names and phases only: all else is secret, or carries what is."""
        return [("silo", self.silo), ("context", self.terms.context), ("signed", tuple(self.signed))]

    def to_bytes(self) -> bytes:
        """Canonical JSON with all secrets inside: for a file that only this silo reads (0600)."""
        return canonical_bytes(self)

    @staticmethod
    def from_bytes(raw: bytes) -> SiloState:
        """Read what ``to_bytes`` wrote.

        Raises:
            StateDamaged: it is something else; the silo sits this round out.
        """
        try:
            return SiloState.model_validate(parse_canonical(raw, _MAX_STATE_BYTES))
        except (MalformedMessage, ValidationError):
            # Without the cause: a validation error quotes what it read, and that holds secrets.
            raise StateDamaged(
                "pairwise state: it cannot be read; take no further part in its round"
            ) from None

    def sent(self, step: StepName) -> tuple[Envelope, ...]:
        """The messages of a step that was signed, to send again.

        Raises:
            OutOfOrder: it was not signed.
        """
        if step not in self.signed:
            raise OutOfOrder(f"pairwise {step}: this silo has not signed it")
        return self.signed[step].messages

    def own_secrets(self) -> RoundSecrets:
        """Raises OutOfOrder once the masked update is signed: nothing may be masked a second time."""
        if self.secrets is None:
            raise OutOfOrder("pairwise masked: this silo has signed its masked update; send that one again")
        return self.secrets

    def the_key_set(self) -> Digest:
        """K; raises OutOfOrder before it is known."""
        if self.key_set is None:
            raise OutOfOrder("pairwise shares: the keys of the others are not known yet")
        return self.key_set


@dataclass(frozen=True)
class Step:
    """What a step comes to. ``state`` is stored before a byte of ``messages`` is sent."""

    state: SiloState
    messages: tuple[Envelope, ...]


def answered(state: SiloState, step: StepName, seen: Digest) -> Step | None:
    """The answer given before, if this step was signed before.

    Raises:
        Equivocation: it was signed in answer to something else. OutOfOrder: the one before it was not.
    """
    place = STEPS.index(step)
    if place and STEPS[place - 1] not in state.signed:
        raise OutOfOrder(f"pairwise {step}: expected {STEPS[place - 1]} to be signed before it")
    earlier = state.signed.get(step)
    if earlier is None:
        return None
    if earlier.seen != seen:
        raise Equivocation(
            f"pairwise {step}: this silo has signed another one in this round, and signs no second"
        )
    return Step(state, earlier.messages)


def record(state: SiloState, step: StepName, seen: Digest, messages: Sequence[Envelope]) -> SiloState:
    """The state after ``step`` was answered with ``messages``."""
    signed = {**state.signed, step: Signed(seen=seen, messages=tuple(messages))}
    return state.model_copy(update={"signed": signed})


def digest_of_bodies(label: str, envelopes: Sequence[Envelope]) -> Digest:
    """What a set of messages says and who says it, in whatever order they came."""
    return digest_of(label, sorted([envelope.sender, envelope.body_digest] for envelope in envelopes))
