"""``threshold_bfv`` and ``threshold_ckks`` for the suites: all silos hold the key; OpenFHE in its worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import canonical_bytes
from privacy.errors import OutOfOrder, Unprocessable
from privacy.identity import SigningKey
from privacy.ids import Digest, SiloId
from privacy.plan import CohortMember, VectorTerms
from privacy.secagg.he.parameters import largest_element
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
from privacy.secagg.threshold.parameters import PARAMETERS, assert_fits
from privacy.secagg.threshold.parts import threshold_stretches
from privacy.secagg.threshold.silo_encrypting import Encrypter, sign_manifest
from privacy.secagg.threshold.silo_keys import join
from privacy.secagg.threshold.silo_state import StepName
from privacy.secagg.threshold.summing import Adder, Fuser, PartialsClosed, accept_partial, close_partials
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope
from tests.conformance.pairwise_scheme import known
from tests.conformance.scheme import MODEL, Inbox, Opened, Piece, Setting, envelope_of
from tests.threshold_cohort import LEDGER, SCALE_BITS, SERVER, Member, openfhe_python, sent

SERVER_KEY = SigningKey.generate()
WORKERS: dict[str, Worker] = {}
"""One process a row; ``conftest`` ends them."""


def worker_for(row: str) -> Worker:
    """The row's worker; skips the test where no interpreter has OpenFHE."""
    if row not in WORKERS:
        WORKERS[row] = Worker(PARAMETERS[row], openfhe_python())
    return WORKERS[row]


def terms_for(row: str, silos: int) -> VectorTerms:
    """The finest terms of a row that a cohort fits into."""
    for bits in range(SCALE_BITS[row], 0, -1):
        terms = VectorTerms(coordinate_bound=1.0, scale_bits=bits)
        try:
            assert_fits(PARAMETERS[row], terms, silos)
        except Unprocessable:
            continue
        return terms
    raise AssertionError(f"{row} carries no {silos} silos")


@dataclass
class Silo(Member):
    """A silo that may have been sent another model."""

    model: Digest = MODEL

    def encrypt(self, reveals: Sequence[Envelope]) -> tuple[Envelope, ...]:
        self.stored = join(self.state, reveals).to_bytes()
        encrypter = Encrypter(self.state, self.worker, self.model)
        self.parts = [
            encrypter.encrypt(piece.index, self.update[piece.start : piece.start + piece.length])
            for piece in threshold_stretches(self.state.terms.row, len(self.update))
        ]
        return self.keep(sign_manifest(self.state, self.key, encrypter, LEDGER))


class ThresholdRound:
    """One server and its silos. Who shows a share of the key must stay to the end."""

    steps = ("commit", "reveal", "manifest", "upload", "partial")
    counted = "reveal"
    names_model = "manifest"

    def __init__(self, row: str, setting: Setting) -> None:
        self.setting = setting
        vector = terms_for(row, len(setting.cohort))
        self.terms = ThresholdTerms(
            context=setting.context,
            scheme="threshold_bfv" if PARAMETERS[row].scheme == "bfv" else "threshold_ckks",
            parameters=row,
            model=MODEL,
            server=SERVER,
            server_key=SERVER_KEY.verify_key,
            cohort=tuple(
                CohortMember(silo=silo, verify_key=setting.keys[silo].verify_key) for silo in setting.cohort
            ),
            vector_length=setting.length,
            vector=vector,
            minimum=setting.minimum,
        )
        generator, most = np.random.default_rng(), largest_element(vector)
        self.updates = {
            silo: generator.integers(-most, most + 1, setting.length, dtype=np.int32).view(np.uint32)
            for silo in setting.cohort
        }
        self.row = row
        self.members: dict[SiloId, Silo] = {}
        self._pinned = {silo: key.verify_key for silo, key in setting.keys.items()}
        self._inbox = Inbox()
        self._place = 0
        self.commits: CommitsClosed | None = None
        self.reveals: RevealsClosed | None = None
        self.manifests: ManifestsClosed | None = None
        self.partials: PartialsClosed | None = None
        self.uploads: dict[SiloId, list[tuple[bytes, bytes]]] = {}
        self.partial_parts: dict[SiloId, list[bytes]] = {}

    def needed(self, step: str, counted: int) -> int:
        return self.setting.minimum if step in ("commit", "reveal") else counted

    @property
    def step(self) -> str:
        return self.steps[self._place] if self._place < len(self.steps) else ""

    @property
    def pieces(self) -> range:
        return range(len(list(threshold_stretches(self.terms.row, self.setting.length))))

    # --- silos ---

    def member(self, silo: SiloId) -> Silo:
        if silo not in self.members:
            self.members[silo] = Silo(
                silo,
                self.setting.keys[silo],
                self.updates[silo],
                worker_for(self.row),
                model=self.setting.models.get(silo, MODEL),
            )
        return self.members[silo]

    def act(self, silo: SiloId) -> tuple[Piece, ...]:
        member, step = self.member(silo), self.step
        if step == "upload":
            parts = member.upload(self.setting.shuffled(known(self.manifests).relay))
            return tuple(
                Piece(silo, f"{half}/{index}", raw)
                for index, both in enumerate(parts)
                for half, raw in zip(("bodies", "masks"), both, strict=True)
            )
        signed: StepName = step  # type: ignore[assignment]  # every other step is one that silos sign
        if not member.stored or signed not in member.state.signed:
            self._answer(member, step)
        (message,) = member.state.sent(signed)
        pieces = [Piece(silo, step, canonical_bytes(message))]
        if step == "partial":
            pieces += [Piece(silo, f"opening/{index}", raw) for index, raw in enumerate(member.partials)]
        return tuple(pieces)

    def _answer(self, member: Silo, step: str) -> None:
        shuffled = self.setting.shuffled
        if step == "commit":
            member.begin(self.terms, self._pinned)
        elif step == "reveal":
            member.reveal(shuffled(known(self.commits).relay))
        elif step == "manifest":
            member.encrypt(shuffled(known(self.reveals).relay))
        else:
            member.open(self.summed, shuffled(known(self.manifests).relay), self.masks)

    # --- the server ---

    def take(self, piece: Piece) -> None:
        kind = piece.label.split("/")[0]
        raw = {"upload": ("bodies", "masks"), "partial": ("opening",)}.get(self.step, ())
        if not self.step or (kind in ("bodies", "masks", "opening")) != (kind in raw):
            raise OutOfOrder(f"{piece.label}: none is due in step {self.step or 'none'}")
        if kind not in raw:
            self._judge(envelope_of(piece))
        self._inbox.put(piece)

    def _judge(self, envelope: Envelope) -> None:
        """Whatever comes now is judged as a message of the step that is open."""
        if self.step == "commit":
            accept_commit(self.terms, envelope)
        elif self.step == "reveal":
            accept_reveal(known(self.commits), envelope)
        elif self.step == "manifest":
            accept_manifest(known(self.reveals), envelope)
        elif self.step == "partial":
            accept_partial(known(self.manifests), self.summed, envelope)
        else:
            raise OutOfOrder(f"{envelope.kind}: none is due in step {self.step}")

    def close(self) -> None:
        step, inbox = self.step, self._inbox
        self._place, self._inbox = len(self.steps), Inbox()  # over, unless the step closes
        sent = [
            envelope_of(Piece(silo, label, raw))
            for (silo, label), raw in sorted(inbox.held.items())
            if label == step
        ]
        if step == "commit":
            self.commits = close_commits(self.terms, [accept_commit(self.terms, each) for each in sent])
        elif step == "reveal":
            commits = known(self.commits)
            self.reveals = close_reveals(commits, [accept_reveal(commits, each) for each in sent])
        elif step == "manifest":
            reveals = known(self.reveals)
            self.manifests = close_manifests(reveals, [accept_manifest(reveals, each) for each in sent])
        elif step == "upload":
            self._close_upload(inbox)
        else:
            self._close_partial(inbox, sent)
        self._place = self.steps.index(step) + 1

    def _close_upload(self, inbox: Inbox) -> None:
        manifests = known(self.manifests)
        for silo, manifest in manifests.manifests.items():
            self.uploads[silo] = []
            for index in self.pieces:
                bodies, masks = inbox.of(silo, [f"bodies/{index}", f"masks/{index}"])
                check_upload(manifest, self.terms, index, bodies, masks)
                self.uploads[silo].append((bodies, masks))
        adder = Adder(manifests)
        self.sums = [
            adder.total(
                index,
                [(silo, parts[index][0]) for silo, parts in self.uploads.items()],
                self.masks(index),
            )[0]
            for index in self.pieces
        ]
        (self.summed,) = sent([adder.sign(SERVER_KEY)])

    def _close_partial(self, inbox: Inbox, messages: list[Envelope]) -> None:
        manifests = known(self.manifests)
        accepted = [accept_partial(manifests, self.summed, each) for each in messages]
        self.partials = close_partials(manifests, self.summed, accepted)
        for silo in self.partials.partials:
            self.partial_parts[silo] = inbox.of(silo, [f"opening/{index}" for index in self.pieces])

    def masks(self, index: int) -> list[tuple[SiloId, bytes]]:
        """One half of every silo's ciphertexts, as the server holds them."""
        return [(silo, parts[index][1]) for silo, parts in self.uploads.items()]

    def opened(self) -> Opened:
        partials = known(self.partials)
        fuser = Fuser(partials, worker_for(self.row))
        opened = [
            fuser.open(index, body, [(silo, parts[index]) for silo, parts in self.partial_parts.items()])
            for index, body in enumerate(self.sums)
        ]
        return Opened(tuple(partials.partials), np.concatenate(opened))

    def oracle(self, survivors: Iterable[SiloId]) -> NDArray[np.generic]:
        return np.sum([self.updates[silo] for silo in survivors], axis=0, dtype=np.uint32)
