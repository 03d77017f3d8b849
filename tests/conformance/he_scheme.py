"""``bfv`` and ``ckks`` for the suites: silos that hold one key, a server that adds what it cannot read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY
from privacy.errors import Conflict, NotAllowed, OutOfOrder, SealsumError, Unprocessable
from privacy.ids import SiloId
from privacy.plan import VectorTerms
from privacy.secagg.additive import ring_from_bytes, ring_to_bytes
from privacy.secagg.he.framing import he_part_count, he_stretches
from privacy.secagg.he.messages import CiphertextManifest, OpenedSum, SumManifest
from privacy.secagg.he.parameters import PARAMETERS, assert_fits, largest_element
from privacy.secagg.he.silo_half import HeSiloHalf, admit_sum
from privacy.secagg.he.sum_half import HeSumHalf, assert_one_key
from privacy.wire.envelope import Envelope, Verified, open_envelope
from tests.conformance.scheme import MODEL, Inbox, Opened, Piece, Setting, envelope_of
from tests.he_cohort import KEYS, SCALE_BITS, USES

MAX_BYTES = 1 << 20


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


class HeRound:
    """One server and its silos."""

    steps = ("upload", "open")
    counted = "upload"
    names_model = "upload"

    def __init__(self, row: str, setting: Setting) -> None:
        self.setting = setting
        self.row, self.parameters = row, PARAMETERS[row]
        self.terms = terms_for(row, len(setting.cohort))
        generator = np.random.default_rng()
        most = largest_element(self.terms)
        self.updates = {
            silo: generator.integers(-most, most + 1, setting.length, dtype=np.int32).view(np.uint32)
            for silo in setting.cohort
        }
        self.halves = {
            silo: HeSiloHalf(KEYS[row], USES[row], self.terms, setting.length, len(setting.cohort))
            for silo in setting.cohort
        }
        self.left_out: dict[SiloId, SealsumError] = {}
        self.manifests: dict[SiloId, Verified[CiphertextManifest]] = {}
        self._outbox: dict[tuple[SiloId, str], tuple[Piece, ...]] = {}
        self._inbox = Inbox()
        self._place = 0
        self._total: NDArray[np.uint32] | None = None

    def needed(self, step: str, counted: int) -> int:
        return self.setting.minimum if step == "upload" else 1

    @property
    def step(self) -> str:
        return self.steps[self._place] if self._place < len(self.steps) else ""

    # --- silos ---

    def act(self, silo: SiloId) -> tuple[Piece, ...]:
        if (silo, self.step) not in self._outbox:
            self._outbox[silo, self.step] = self._upload(silo) if self.step == "upload" else self._open(silo)
        return self._outbox[silo, self.step]

    def _upload(self, silo: SiloId) -> tuple[Piece, ...]:
        update = self.updates[silo]
        parts = [
            self.halves[silo].encrypt(piece.index, update[piece.start : piece.start + piece.length])
            for piece in he_stretches(self.parameters, self.setting.length)
        ]
        manifest = CiphertextManifest(
            silo=silo,
            model=self.setting.models.get(silo, MODEL),
            parameters=self.row,
            key=KEYS[self.row].id,
            vector_length=self.setting.length,
            parts=tuple(map(sha256_hex, parts)),
            ledger_head=EMPTY,
        )
        return (
            Piece(silo, "manifest", self.setting.sign(silo, manifest)),
            *(Piece(silo, f"part/{index}", raw) for index, raw in enumerate(parts)),
        )

    def _open(self, silo: SiloId) -> tuple[Piece, ...]:
        own = self._outbox[silo, "upload"][0]
        verified = self._read(own, CiphertextManifest)
        contributors = admit_sum(
            self.sum,
            verified.message,
            verified.envelope.body_digest,
            self.setting.cohort,
            self.setting.minimum,
        )
        opened = []
        for index, part in enumerate(self.summed):
            if sha256_hex(part) != self.sum.parts[index]:
                raise Unprocessable(f"sum, part {index}: it is not what the server signed")
            opened.append(self.halves[silo].open(index, part, contributors))
        raw = ring_to_bytes(np.concatenate(opened))
        message = OpenedSum(silo=silo, sum=self._sum_digest, parts=(sha256_hex(raw),))
        return Piece(silo, "opened", self.setting.sign(silo, message)), Piece(silo, "sum", raw)

    # --- the server ---

    def take(self, piece: Piece) -> None:
        if not self.step:
            raise OutOfOrder(f"{piece.label}: the round is over")
        if piece.label.startswith("part/") or piece.label == "sum":
            if (piece.label == "sum") != (self.step == "open"):
                raise OutOfOrder(f"{piece.label}: none is due in {self.step}")
        elif self.step == "upload":
            self._admit(self._read(piece, CiphertextManifest))
        elif self._read(piece, OpenedSum).message.sum != self._sum_digest:
            raise Conflict(f"{piece.label}: it opens another sum")
        self._inbox.put(piece)

    def _read(self, piece: Piece, model: type) -> Verified:
        envelope: Envelope = envelope_of(piece)

        def verify_key_of(party: str) -> str:
            if party not in self.setting.cohort:
                raise NotAllowed(f"{party}: it is not in this round's cohort")
            return self.setting.keys[SiloId(party)].verify_key

        return open_envelope(
            envelope,
            model,
            kind="manifest",
            context=self.setting.context,
            verify_key_of=verify_key_of,
            max_bytes=MAX_BYTES,
        )

    def _admit(self, manifest: Verified[CiphertextManifest]) -> None:
        body = manifest.message
        parts = he_part_count(self.parameters, self.setting.length)
        if (body.silo, body.model, len(body.parts)) != (manifest.sender, MODEL, parts):
            raise Unprocessable(f"manifest of {manifest.sender}: another silo, model or length")
        assert_one_key({body.silo: body}, self.row, self.setting.length)

    def close(self) -> None:
        step, inbox = self.step, self._inbox
        self._place, self._inbox = len(self.steps), Inbox()  # over, unless the step closes
        if step == "upload":
            self._close_upload(inbox)
        else:
            self._close_open(inbox)
        self._place = self.steps.index(step) + 1

    def _close_upload(self, inbox: Inbox) -> None:
        uploads: dict[SiloId, list[bytes]] = {}
        for silo in self.setting.cohort:
            try:
                (raw,) = inbox.of(silo, ["manifest"])
                manifest = self._read(Piece(silo, "manifest", raw), CiphertextManifest)
                digests = manifest.message.parts
                parts = inbox.of(silo, [f"part/{index}" for index in range(len(digests))])
                if tuple(map(sha256_hex, parts)) != digests:
                    raise Unprocessable(f"parts of {silo}: they are not what the silo signed")
                self.manifests[silo], uploads[silo] = manifest, parts
            except SealsumError as refusal:
                self.left_out[silo] = refusal
        if len(uploads) < self.setting.minimum:
            raise NotAllowed(f"survivors: expected at least {self.setting.minimum}, got {len(uploads)}")
        key = assert_one_key(
            {silo: manifest.message for silo, manifest in self.manifests.items()},
            self.row,
            self.setting.length,
        )
        half = HeSumHalf(self.row, len(self.setting.cohort))
        self.summed = [
            half.total((parts[piece.index] for parts in uploads.values()), piece)
            for piece in he_stretches(self.parameters, self.setting.length)
        ]
        self.sum = SumManifest(
            parameters=self.row,
            key=key,
            vector_length=self.setting.length,
            survivors=tuple(self.manifests),
            manifests=tuple(manifest.envelope.body_digest for manifest in self.manifests.values()),
            parts=tuple(map(sha256_hex, self.summed)),
        )
        self._sum_digest = sha256_hex(canonical_bytes(self.sum))

    def _close_open(self, inbox: Inbox) -> None:
        openings = set()
        for silo in self.manifests:
            try:
                signed, raw = inbox.of(silo, ["opened", "sum"])
                message = self._read(Piece(silo, "opened", signed), OpenedSum).message
                if message.parts != (sha256_hex(raw),):
                    raise Unprocessable(f"sum of {silo}: it is not what the silo signed")
                openings.add(raw)
            except SealsumError as refusal:
                self.left_out[silo] = refusal
        if len(openings) != 1:
            raise Conflict(f"sum: expected one opened by every survivor, got {len(openings)}")
        self._total = ring_from_bytes(openings.pop(), self.setting.length)

    def opened(self) -> Opened:
        if self._total is None:
            raise OutOfOrder("sum: no survivor has opened it")
        return Opened(tuple(self.manifests), self._total)

    def oracle(self, survivors: Iterable[SiloId]) -> NDArray[np.generic]:
        return np.sum([self.updates[silo] for silo in survivors], axis=0, dtype=np.uint32)
