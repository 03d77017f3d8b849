"""What every scheme looks like to the conformance and attack suites: steps, pieces, and one opened sum.

A round is played step by step: each silo ``act``s; what it sends are bytes, which a network may lose, delay,
double, reorder, alter or carry into another round; the servers ``take`` each piece or refuse it by name;
``close`` ends the step. Silos and servers are the halves of ``privacy.secagg``; only storage is played here.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from privacy.canonical import canonical_bytes
from privacy.errors import Conflict, OutOfOrder, SealsumError
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.wire.envelope import Envelope, parse_envelope, sign_message

MODEL = Digest("22" * 32)
OTHER_MODEL = Digest("33" * 32)
Moment = Literal["before", "during", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "during", "after")


@dataclass(frozen=True)
class Piece:
    """One thing that a silo sends: an envelope, a part or a sealed seed, as it is on the wire."""

    silo: SiloId
    """Whose connection it comes over."""
    label: str
    raw: bytes = field(repr=False)


@dataclass(frozen=True)
class Opened:
    """How a round ended that opened a sum."""

    survivors: tuple[SiloId, ...]
    total: NDArray[np.generic] = field(repr=False)


@dataclass(frozen=True)
class Setting:
    """What a round is about, whatever its scheme; rounds of one roster share its keys."""

    keys: Mapping[SiloId, SigningKey]
    """Of the whole roster."""
    cohort: tuple[SiloId, ...]
    """Sorted; some of the roster."""
    dimension: int
    """d coordinates; the weight follows them."""
    minimum: int = 2
    context: Context = field(default_factory=lambda: Context(Digest(os.urandom(32).hex())))
    models: Mapping[SiloId, Digest] = field(default_factory=dict)
    """Silos that were sent another model than ``MODEL``."""
    order: random.Random = field(default_factory=lambda: random.Random(0))
    """In which order messages come: the one thing here that a seed decides."""

    @property
    def length(self) -> int:
        """Elements of the vector."""
        return self.dimension + 1

    def next_round(self) -> Setting:
        """The same parties and terms under a fresh context."""
        return replace(self, context=Context(Digest(os.urandom(32).hex())))

    def shuffled(self, items: Iterable[Envelope]) -> list[Envelope]:
        """As a network delivers them."""
        out = list(items)
        self.order.shuffle(out)
        return out

    def sign(self, silo: SiloId, message: BaseModel) -> bytes:
        """A silo's signed manifest as bytes."""
        key = self.keys[silo]
        return canonical_bytes(sign_message(message, "manifest", self.context, PartyId(silo), key))


def roster(names: Iterable[str]) -> dict[SiloId, SigningKey]:
    """A signing key for each."""
    return {SiloId(PartyId(name)): SigningKey.generate() for name in names}


def setting(silos: int = 4, dimension: int = 5, seed: int = 0, minimum: int = 2) -> Setting:
    """A cohort of that many silos, all of the roster."""
    keys = roster(f"silo-{number}" for number in range(1, silos + 1))
    return Setting(keys, tuple(sorted(keys)), dimension, minimum, order=random.Random(seed))


class InMemoryScheme(Protocol):
    """A round of one scheme, in memory."""

    setting: Setting

    @property
    def steps(self) -> tuple[str, ...]:
        """What a silo sends, in order."""

    @property
    def counted(self) -> str:
        """The step whose completion puts a silo into the sum."""

    @property
    def names_model(self) -> str:
        """The step in which a silo says which model it was sent."""

    def needed(self, step: str, counted: int) -> int:
        """How many silos must complete a step, or the round ends by name; ``counted`` are in the sum."""

    @property
    def step(self) -> str:
        """The step that is open now; empty when the round is over."""

    def act(self, silo: SiloId) -> tuple[Piece, ...]:
        """What a silo sends in this step; asked again, the same bytes. Raises SealsumError: it refuses."""

    def take(self, piece: Piece) -> None:
        """Believe a piece or refuse it, without effect, by a SealsumError."""

    def close(self) -> None:
        """End the step. Raises SealsumError: the round is over and nothing is opened."""

    def opened(self) -> Opened:
        """The sum, after the last step. Raises SealsumError: nothing is opened."""

    def oracle(self, survivors: Iterable[SiloId]) -> NDArray[np.generic]:
        """The plain sum of what these silos hold."""


Maker = Callable[[Setting], InMemoryScheme]


@dataclass
class Inbox:
    """A server's store: the first bytes under a name stay."""

    held: dict[tuple[SiloId, str], bytes] = field(default_factory=dict)

    def put(self, piece: Piece) -> None:
        """Raises Conflict if other bytes came first; the same bytes again change nothing."""
        if self.held.setdefault((piece.silo, piece.label), piece.raw) != piece.raw:
            raise Conflict(f"{piece.label} of {piece.silo}: other bytes came first")

    def of(self, silo: SiloId, labels: Iterable[str]) -> list[bytes]:
        """All of these; raises OutOfOrder if one is missing."""
        wanted = list(labels)
        missing = [label for label in wanted if (silo, label) not in self.held]
        if missing:
            raise OutOfOrder(f"{silo}: {', '.join(missing)} did not come")
        return [self.held[silo, label] for label in wanted]


def envelope_of(piece: Piece) -> Envelope:
    """The envelope in a piece, which must be signed by the silo whose connection it comes over."""
    envelope = parse_envelope(piece.raw)
    if envelope.sender != piece.silo:
        raise Conflict(f"{piece.label}: signed by {envelope.sender}, sent by {piece.silo}")
    return envelope


@dataclass(frozen=True)
class Leaves:
    """When a silo goes away for good."""

    step: str
    moment: Moment


@dataclass
class Network:
    """What happens between silos and servers in one round. The default delivers everything once, in order."""

    leaves: Mapping[SiloId, Leaves] = field(default_factory=dict)
    doubles: bool = False
    """Each piece comes twice, and all of them again at the end of the step."""
    shuffles: random.Random | None = None
    """Pieces of all silos come in any order."""
    late: dict[SiloId, str] = field(default_factory=dict)
    """Silo → step whose pieces come after it was closed."""
    alters: Callable[[str, Piece], Piece] = field(default=lambda _, piece: piece)
    refused: list[SealsumError] = field(default_factory=list)
    """Why pieces or silos were refused."""

    def play(self, scheme: InMemoryScheme) -> Opened | SealsumError:
        """A whole round: how it ended."""
        delayed: list[Piece] = []
        for step in scheme.steps:
            on_the_wire: list[Piece] = []
            for silo in scheme.setting.cohort:
                sent = self._sent(scheme, silo, step)
                (delayed if self.late.get(silo) == step else on_the_wire).extend(sent)
            self._deliver(scheme, on_the_wire)
            try:
                scheme.close()
                self._offer(scheme, delayed)
            except SealsumError as ended:
                return ended
        try:
            return scheme.opened()
        except SealsumError as ended:
            return ended

    def _sent(self, scheme: InMemoryScheme, silo: SiloId, step: str) -> list[Piece]:
        leaves = self.leaves.get(silo)
        late = self.late.get(silo)
        steps = scheme.steps
        if late is not None and steps.index(late) < steps.index(step):
            return []
        if leaves is not None:
            gone, now = steps.index(leaves.step), steps.index(step)
            if gone < now or (gone == now and leaves.moment == "before"):
                return []
        try:
            pieces = scheme.act(silo)
        except SealsumError as refusal:
            self.refused.append(refusal)
            return []
        if leaves is not None and leaves.step == step and leaves.moment == "during":
            pieces = first_half(pieces)
        return [self.alters(step, piece) for piece in pieces]

    def _deliver(self, scheme: InMemoryScheme, pieces: list[Piece]) -> None:
        if self.doubles:
            pieces = [piece for piece in pieces for _ in range(2)] + pieces
        if self.shuffles is not None:
            self.shuffles.shuffle(pieces)
        self._offer(scheme, pieces)

    def _offer(self, scheme: InMemoryScheme, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            try:
                scheme.take(piece)
            except SealsumError as refusal:
                self.refused.append(refusal)


def play_step(scheme: InMemoryScheme) -> None:
    """All silos act, everything comes, and the step closes."""
    for silo in scheme.setting.cohort:
        for piece in scheme.act(silo):
            scheme.take(piece)
    scheme.close()


def first_half(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Half of the pieces; of a single piece, half of its bytes."""
    if len(pieces) > 1:
        return pieces[: len(pieces) // 2]
    return tuple(replace(piece, raw=piece.raw[: len(piece.raw) // 2]) for piece in pieces)


def completed(scheme: InMemoryScheme, step: str, leaves: Mapping[SiloId, Leaves]) -> tuple[SiloId, ...]:
    """Who must be held to have completed a step, given when silos went away."""
    place = scheme.steps.index(step)
    return tuple(
        silo
        for silo in scheme.setting.cohort
        if silo not in leaves
        or scheme.steps.index(leaves[silo].step) > place
        or (leaves[silo].step == step and leaves[silo].moment == "after")
    )


def assert_sum(scheme: InMemoryScheme, ending: Opened | SealsumError, survivors: Iterable[SiloId]) -> None:
    """The round opened exactly the sum of exactly these silos."""
    assert isinstance(ending, Opened), repr(ending)
    assert ending.survivors == tuple(survivors)
    assert np.array_equal(ending.total, scheme.oracle(ending.survivors))


def assert_as_predicted(
    scheme: InMemoryScheme, ending: Opened | SealsumError, leaves: Mapping[SiloId, Leaves]
) -> None:
    """What must come of a round from which these silos went away: survivors and all, or a named end."""
    survivors = completed(scheme, scheme.counted, leaves)
    enough = (
        len(completed(scheme, step, leaves)) >= scheme.needed(step, len(survivors)) for step in scheme.steps
    )
    if all(enough):
        assert_sum(scheme, ending, survivors)
    else:
        assert isinstance(ending, SealsumError)
        assert_honest(scheme, ending)


def assert_honest(scheme: InMemoryScheme, ending: Opened | SealsumError) -> None:
    """Whatever happened: a sum of whom the round names, and enough of them, or a named end."""
    if isinstance(ending, Opened):
        assert len(ending.survivors) >= scheme.setting.minimum
        assert set(ending.survivors) <= set(scheme.setting.cohort)
        assert_sum(scheme, ending, ending.survivors)
    else:
        assert str(ending)
        assert type(ending) is not SealsumError, "a reason without a name"
