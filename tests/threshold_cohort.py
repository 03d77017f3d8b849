"""A round of threshold encryption in memory, whose silos can drop out or misbehave at any step.

Every message goes through bytes, and every silo's state through its stored form at every step, so that what a
test sees is what a process that is killed and restarted between any two steps would do. Where no interpreter
has OpenFHE, a test that needs one skips by name.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import Head
from privacy.errors import PeerFault, SealsumError
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, PartyId, SiloId
from privacy.plan import CohortMember, VectorTerms
from privacy.secagg.threshold.collecting import (
    CommitsClosed,
    ManifestsClosed,
    RevealsClosed,
    accept_commit,
    accept_manifest,
    accept_reveal,
    check_upload,
    close_commits,
    close_manifests,
    close_reveals,
)
from privacy.secagg.threshold.parameters import PARAMETERS
from privacy.secagg.threshold.parts import threshold_stretches
from privacy.secagg.threshold.silo_encrypting import Encrypter, admit_cohort, sign_manifest
from privacy.secagg.threshold.silo_keys import begin, join, reveal
from privacy.secagg.threshold.silo_opening import PartialOpener, sign_partial
from privacy.secagg.threshold.silo_state import STEPS, SiloState, Step, StepName
from privacy.secagg.threshold.summing import Adder, Fuser, PartialsClosed, accept_partial, close_partials
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope, parse_envelope

Ring = NDArray[np.uint32]
V = TypeVar("V")
Tamper = Callable[[Envelope], Envelope]
Act = Callable[["Member"], tuple[Envelope, ...]]
SERVER = PartyId("aggregator")
MODEL = Digest("22" * 32)
LEDGER = Head(seq=3, hash=Digest("33" * 32))
REPOSITORY = Path(__file__).resolve().parent.parent
SCALE_BITS = {"tbfv-8192-168": 15, "tbfv-8192-200": 20, "tckks-4096-60": 17}
"""What each row carries for a dozen silos at bound 1."""


def openfhe_python() -> Path | None:
    """An interpreter with OpenFHE, ``None`` for this one; skips the test where there is none."""
    if importlib.util.find_spec("openfhe") is not None:
        return None
    named = os.environ.get("SEALSUM_TEST_OPENFHE_PYTHON")
    for python in (Path(named) if named else None, REPOSITORY / ".venv-openfhe" / "bin" / "python"):
        if python is not None and python.exists():
            return python
    pytest.skip("openfhe: no interpreter has it; make threshold-he, or set SEALSUM_TEST_OPENFHE_PYTHON")


def workers() -> Iterator[Callable[[str], Worker]]:
    """One worker process for each row asked for; body of a module's fixture."""
    python = openfhe_python()
    running: dict[str, Worker] = {}

    def worker(row: str) -> Worker:
        if row not in running:
            running[row] = Worker(PARAMETERS[row], python)
        return running[row]

    yield worker
    for each in running.values():
        each.close()


def names(silos: int) -> tuple[SiloId, ...]:
    """Names whose order is not the order in which they were made, as in a real roster."""
    return tuple(sorted(SiloId(f"silo-{sha256_hex(bytes([n]))[:6]}") for n in range(silos)))


def random_update(row: str, length: int) -> Ring:
    """uint32[length], signed elements uniform over what the terms allow."""
    bound = 1 << SCALE_BITS[row]
    words = np.frombuffer(os.urandom(8 * length), dtype=np.uint64) % (2 * bound + 1)
    return (words.astype(np.int64) - bound).astype(np.int32).view(np.uint32)


def terms_for(
    row: str,
    keys: Mapping[SiloId, SigningKey],
    server_key: SigningKey,
    length: int,
    minimum: int = 2,
) -> ThresholdTerms:
    """Terms of a fresh round."""
    return ThresholdTerms.model_validate(
        {
            "context": Context(Digest(os.urandom(32).hex())),
            "scheme": f"threshold_{row[1:].split('-')[0]}",
            "parameters": row,
            "model": MODEL,
            "server": SERVER,
            "server_key": server_key.verify_key,
            "cohort": tuple(CohortMember(silo=s, verify_key=k.verify_key) for s, k in keys.items()),
            "vector_length": length,
            "vector": VectorTerms(coordinate_bound=1.0, scale_bits=SCALE_BITS.get(row, 15)),
            "minimum": minimum,
        }
    )


def sent(messages: Sequence[Envelope]) -> tuple[Envelope, ...]:
    """What comes out at the other end of a wire."""
    return tuple(parse_envelope(canonical_bytes(message)) for message in messages)


@dataclass
class Member:
    """One silo: its key, its update, what it has stored, and what it would upload."""

    silo: SiloId
    key: SigningKey
    update: Ring
    worker: Worker
    stored: bytes = b""
    parts: list[tuple[bytes, bytes]] = field(default_factory=list)
    partials: list[bytes] = field(default_factory=list)

    @property
    def state(self) -> SiloState:
        """As a restarted process finds it."""
        return SiloState.from_bytes(self.stored)

    def keep(self, step: Step) -> tuple[Envelope, ...]:
        """Store first, then send."""
        self.stored = step.state.to_bytes()
        return sent(step.messages)

    def begin(self, terms: ThresholdTerms, pinned: Mapping[SiloId, str]) -> tuple[Envelope, ...]:
        step = begin(
            terms,
            self.silo,
            self.key,
            self.worker,
            pinned=pinned,
            pinned_server=terms.server_key,
            colluding_silos=0,
        )
        return self.keep(step)

    def reveal(self, commits: Sequence[Envelope]) -> tuple[Envelope, ...]:
        return self.keep(reveal(self.state, self.key, commits))

    def encrypt(self, reveals: Sequence[Envelope]) -> tuple[Envelope, ...]:
        self.stored = join(self.state, reveals).to_bytes()
        encrypter = Encrypter(self.state, self.worker, MODEL)
        self.parts = [
            encrypter.encrypt(piece.index, self.update[piece.start : piece.start + piece.length])
            for piece in threshold_stretches(self.state.terms.row, len(self.update))
        ]
        return self.keep(sign_manifest(self.state, self.key, encrypter, LEDGER))

    def upload(self, manifests: Sequence[Envelope]) -> list[tuple[bytes, bytes]]:
        self.stored = admit_cohort(self.state, manifests).to_bytes()
        self.state.assert_may_upload()
        return self.parts

    def open(
        self,
        summed: Envelope,
        manifests: Sequence[Envelope],
        masks: Callable[[int], list[tuple[SiloId, bytes]]],
    ) -> tuple[Envelope, ...]:
        opener = PartialOpener(self.state, self.worker, summed, manifests)
        pieces = threshold_stretches(self.state.terms.row, len(self.update))
        self.partials = [opener.decrypt(piece.index, masks(piece.index)) for piece in pieces]
        return self.keep(sign_partial(self.state, self.key, opener))


@dataclass
class Cohort:
    """Silos and the server. ``drops``: the first step a silo omits; ``tampers``: what it sends instead."""

    members: dict[SiloId, Member]
    terms: ThresholdTerms
    worker: Worker
    server_key: SigningKey
    drops: Mapping[SiloId, StepName] = field(default_factory=dict)
    tampers: Mapping[tuple[SiloId, StepName], Tamper] = field(default_factory=dict)
    refused: dict[tuple[SiloId, StepName], SealsumError] = field(default_factory=dict)
    """Whom the server, or the silo itself, refused in which step, and why."""

    @staticmethod
    def of(
        row: str,
        worker: Worker,
        silos: int = 3,
        length: int = 5,
        minimum: int = 2,
        drops: Mapping[SiloId, StepName] | None = None,
        tampers: Mapping[tuple[SiloId, StepName], Tamper] | None = None,
    ) -> Cohort:
        keys = {silo: SigningKey.generate() for silo in names(silos)}
        server_key = SigningKey.generate()
        members = {silo: Member(silo, key, random_update(row, length), worker) for silo, key in keys.items()}
        terms = terms_for(row, keys, server_key, length, minimum)
        return Cohort(members, terms, worker, server_key, drops or {}, tampers or {})

    @property
    def silos(self) -> tuple[SiloId, ...]:
        return tuple(self.members)

    @property
    def pinned(self) -> dict[SiloId, str]:
        return {silo: member.key.verify_key for silo, member in self.members.items()}

    def oracle(self, silos: Sequence[SiloId]) -> Ring:
        """The plain sum."""
        return np.sum(np.stack([self.members[s].update for s in silos]), axis=0, dtype=np.uint32)

    def step(self, step: StepName, silos: Sequence[SiloId], act: Act) -> list[Envelope]:
        """What the silos that are still there send in one step."""
        answers: list[Envelope] = []
        for silo in silos:
            gone = self.drops.get(silo)
            if gone is not None and STEPS.index(gone) <= STEPS.index(step):
                continue
            try:
                (answer,) = act(self.members[silo])
            except SealsumError as refusal:
                self.refused[silo, step] = refusal
                continue
            tamper = self.tampers.get((silo, step))
            answers.append(tamper(answer) if tamper else answer)
        return answers

    def accept(self, step: StepName, answers: Sequence[Envelope], judge: Callable[[Envelope], V]) -> list[V]:
        accepted: list[V] = []
        for answer in answers:
            try:
                accepted.append(judge(answer))
            except PeerFault as refusal:
                self.refused[SiloId(answer.sender), step] = refusal
        return accepted

    def commits(self) -> CommitsClosed:
        answers = self.step("commit", self.silos, lambda member: member.begin(self.terms, self.pinned))
        return close_commits(
            self.terms, self.accept("commit", answers, lambda sent: accept_commit(self.terms, sent))
        )

    def reveals(self, commits: CommitsClosed) -> RevealsClosed:
        answers = self.step("reveal", tuple(commits.commits), lambda member: member.reveal(commits.relay))
        return close_reveals(
            commits, self.accept("reveal", answers, lambda sent: accept_reveal(commits, sent))
        )

    def manifests(self, reveals: RevealsClosed) -> ManifestsClosed:
        answers = self.step("manifest", reveals.key.holders, lambda member: member.encrypt(reveals.relay))
        return close_manifests(
            reveals, self.accept("manifest", answers, lambda sent: accept_manifest(reveals, sent))
        )

    def until_uploaded(self) -> ManifestsClosed:
        closed = self.manifests(self.reveals(self.commits()))
        for silo, manifest in closed.manifests.items():
            for index, (bodies, masks) in enumerate(self.members[silo].upload(closed.relay)):
                check_upload(manifest, self.terms, index, bodies, masks)
        return closed

    def bodies(self, index: int) -> list[tuple[SiloId, bytes]]:
        return [(silo, m.parts[index][0]) for silo, m in self.members.items() if m.parts]

    def masks(self, index: int) -> list[tuple[SiloId, bytes]]:
        return [(silo, m.parts[index][1]) for silo, m in self.members.items() if m.parts]

    def add(self, closed: ManifestsClosed) -> tuple[Envelope, list[bytes]]:
        """The server's manifest of the sum, and the bodies of the sum."""
        adder = Adder(closed)
        pieces = threshold_stretches(self.terms.row, self.terms.vector_length)
        bodies = [adder.total(p.index, self.bodies(p.index), self.masks(p.index))[0] for p in pieces]
        return sent([adder.sign(self.server_key)])[0], bodies

    def partials(self, closed: ManifestsClosed, summed: Envelope) -> PartialsClosed:
        answers = self.step(
            "partial", closed.key.holders, lambda member: member.open(summed, closed.relay, self.masks)
        )
        accepted = self.accept("partial", answers, lambda sent: accept_partial(closed, summed, sent))
        return close_partials(closed, summed, accepted)

    def fuse(self, partials: PartialsClosed, bodies: list[bytes]) -> Ring:
        """The opened sum."""
        fuser = Fuser(partials, self.worker)
        pieces = []
        for index, body in enumerate(bodies):
            each = [(silo, self.members[silo].partials[index]) for silo in partials.partials]
            pieces.append(fuser.open(index, body, each))
        return np.concatenate(pieces)

    def run(self) -> tuple[tuple[SiloId, ...], Ring]:
        """A whole round: whose updates were summed, and the opened sum."""
        closed = self.until_uploaded()
        summed, bodies = self.add(closed)
        return closed.key.holders, self.fuse(self.partials(closed, summed), bodies)
