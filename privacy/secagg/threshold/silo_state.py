"""What a silo knows and has signed in one round: the value it stores before anything it signed is sent.

    step = reveal(state, key, commits)
    store(step.state.to_bytes())          # first, mode 0600
    send(step.messages)                   # then

Whoever reloads it after a crash gives the same answers, and refuses to sign a second, different message in
a step that it has signed. The secret share leaves the state with the partial decryption, and with it the
ability to make another one; a silo whose round ends without it deletes the state. Knows no disk.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage, OutOfOrder
from privacy.ids import Digest, HexDigest, SiloName
from privacy.secagg.pairwise.faults import Equivocation, StateDamaged
from privacy.secagg.threshold.messages import PolynomialText
from privacy.secagg.threshold.polynomials import Polynomials, from_wire
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.wire.envelope import Envelope

StepName = Literal["commit", "reveal", "manifest", "partial"]
STEPS: tuple[StepName, ...] = ("commit", "reveal", "manifest", "partial")
"""The order of a round: each step is signed after the one before it, and once."""

_MAX_STATE_BYTES = 64 << 20


class Signed(Frozen):
    """One step's answer, and the digest of what it answers."""

    seen: HexDigest
    messages: tuple[Envelope, ...]


class SiloState(Frozen):
    """One silo in one round."""

    terms: ThresholdTerms
    silo: SiloName
    secret: PolynomialText | None = Field(repr=False)
    """s, until the partial decryption is signed."""
    share: PolynomialText
    """b = −a·s + e."""
    commitments: dict[SiloName, HexDigest] = Field(default_factory=dict)
    """Who committed to what, once this silo has shown its own share."""
    joint: PolynomialText | None = None
    """Σ b over ``holders``, once it is known."""
    joint_key: HexDigest | None = None
    holders: tuple[SiloName, ...] = ()
    """Whose shares the joint key is made of, sorted: exactly these are summed, and all must help to open."""
    manifests: dict[SiloName, HexDigest] = Field(default_factory=dict)
    """Digest of each holder's manifest, once all are known: from then on this silo may upload."""
    signed: dict[StepName, Signed] = Field(default_factory=dict)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Names and phases only."""
        return [("silo", self.silo), ("context", self.terms.context), ("signed", tuple(self.signed))]

    def to_bytes(self) -> bytes:
        """Canonical JSON with the secret inside: for a file that only this silo reads (0600)."""
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
            # Without the cause: a validation error quotes what it read, and that holds a secret.
            raise StateDamaged(
                "threshold state: it cannot be read; take no further part in its round"
            ) from None

    def sent(self, step: StepName) -> tuple[Envelope, ...]:
        """The messages of a step that was signed, to send again.

        Raises:
            OutOfOrder: it was not signed.
        """
        if step not in self.signed:
            raise OutOfOrder(f"threshold {step}: this silo has not signed it")
        return self.signed[step].messages

    def secret_share(self) -> Polynomials:
        """s; raises OutOfOrder once the partial decryption is signed: there is no second one."""
        if self.secret is None:
            raise OutOfOrder(
                "threshold partial: this silo has signed its one partial decryption; send that one again"
            )
        return text_to_polynomial("secret", self.terms, self.secret)

    def joint_polynomial(self) -> tuple[Digest, Polynomials]:
        """The joint key's digest and the key; raises OutOfOrder before it is known."""
        if self.joint is None or self.joint_key is None:
            raise OutOfOrder("threshold manifest: the key shares of the others are not known yet")
        return self.joint_key, text_to_polynomial("joint", self.terms, self.joint)

    def assert_may_upload(self) -> None:
        """Raises OutOfOrder until every holder's manifest is known: earlier, a ciphertext could be copied."""
        if not self.manifests:
            raise OutOfOrder("threshold upload: the manifests of the others are not known yet")


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
        raise OutOfOrder(f"threshold {step}: expected {STEPS[place - 1]} to be signed before it")
    earlier = state.signed.get(step)
    if earlier is None:
        return None
    if earlier.seen != seen:
        raise Equivocation(
            f"threshold {step}: this silo has signed another one in this round, and signs no second"
        )
    return Step(state, earlier.messages)


def record(state: SiloState, step: StepName, seen: Digest, messages: Sequence[Envelope]) -> SiloState:
    """The state after ``step`` was answered with ``messages``."""
    signed = {**state.signed, step: Signed(seen=seen, messages=tuple(messages))}
    return state.model_copy(update={"signed": signed})


def to_text(raw: bytes) -> str:
    """Bytes of a polynomial as they stand in a message."""
    return base64.b64encode(raw).decode()


def text_to_bytes(name: str, text: str) -> bytes:
    """The inverse of ``to_text``.

    Raises:
        MalformedMessage: not base64, or not its one spelling.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedMessage(f"{name}: expected base64") from error
    if to_text(raw) != text:
        raise MalformedMessage(f"{name}: expected base64 in its one spelling")
    return raw


def text_to_polynomial(name: str, terms: ThresholdTerms, text: str) -> Polynomials:
    """One polynomial of a message, uint64[1, towers, degree].

    Raises:
        MalformedMessage: it is none of this round's ring.
    """
    return from_wire(name, terms.row, text_to_bytes(name, text), 1)
