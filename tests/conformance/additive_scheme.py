"""``additive`` for the suites: silos, and three share servers that follow the real ones' table of phases."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from aggregator.share_server.phases import follow
from privacy.canonical import sha256_hex
from privacy.chain import EMPTY
from privacy.errors import NotAllowed, SealsumError, Unprocessable
from privacy.identity import SealingKey
from privacy.ids import ServerId, SiloId
from privacy.secagg.additive import (
    AdditiveSiloHalf,
    SeedSumHalf,
    VectorSumHalf,
    combine,
    ring_to_bytes,
    unseal_seed,
)
from privacy.secagg.parts import part_count, stretches
from privacy.wire.envelope import Verified, open_envelope
from privacy.wire.messages import ShareManifest
from tests.conformance.scheme import MODEL, Inbox, Opened, Piece, Setting, envelope_of

MAX_BYTES = 1 << 20
SERVERS = tuple(ServerId(f"server-{number}") for number in range(3))
SEALING = {server: SealingKey.generate() for server in SERVERS[1:]}


class AdditiveRound:
    """Three servers and their silos. A piece's label begins with the server that it goes to."""

    steps = ("upload",)
    counted = "upload"
    names_model = "upload"

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.updates = {
            silo: np.frombuffer(os.urandom(4 * setting.length), dtype="<u4") for silo in setting.cohort
        }
        self.left_out: dict[SiloId, SealsumError] = {}
        self._outbox: dict[SiloId, tuple[Piece, ...]] = {}
        self._inbox = Inbox()
        self._phase: str = "open"
        self._survivors: tuple[SiloId, ...] = ()

    def needed(self, step: str, counted: int) -> int:
        return self.setting.minimum

    @property
    def step(self) -> str:
        return "upload" if self._phase == "open" else ""

    # --- silos ---

    def act(self, silo: SiloId) -> tuple[Piece, ...]:
        if silo not in self._outbox:
            self._outbox[silo] = self._share(silo)
        return self._outbox[silo]

    def _share(self, silo: SiloId) -> tuple[Piece, ...]:
        model = self.setting.models.get(silo, MODEL)
        half = AdditiveSiloHalf(
            self.setting.context, model, silo, {server: key.public_hex for server, key in SEALING.items()}
        )
        update = self.updates[silo]
        parts = [
            ring_to_bytes(half.share(piece.start, update[piece.start : piece.start + piece.length]))
            for piece in stretches(self.setting.length)
        ]
        manifest = ShareManifest(
            silo=silo,
            model=model,
            vector_length=self.setting.length,
            parts=tuple(map(sha256_hex, parts)),
            seeds={server: sha256_hex(sealed) for server, sealed in half.sealed_seeds.items()},
            ledger_head=EMPTY,
        )
        signed = self.setting.sign(silo, manifest)
        return (
            *(Piece(silo, f"{server}/manifest", signed) for server in SERVERS),
            *(Piece(silo, f"{SERVERS[0]}/part/{index}", raw) for index, raw in enumerate(parts)),
            *(Piece(silo, f"{server}/seed", sealed) for server, sealed in half.sealed_seeds.items()),
        )

    # --- servers ---

    def take(self, piece: Piece) -> None:
        is_manifest = piece.label.endswith("/manifest")
        follow(self._phase, "manifest" if is_manifest else "part")
        if is_manifest:
            self._read(piece)
        self._inbox.put(piece)

    def _read(self, piece: Piece) -> Verified[ShareManifest]:
        def verify_key_of(party: str) -> str:
            if party not in self.setting.cohort:
                raise NotAllowed(f"{party}: it is not in this round's cohort")
            return self.setting.keys[SiloId(party)].verify_key

        manifest = open_envelope(
            envelope_of(piece),
            ShareManifest,
            kind="manifest",
            context=self.setting.context,
            verify_key_of=verify_key_of,
            max_bytes=MAX_BYTES,
        )
        body = manifest.message
        if (body.silo, body.model) != (manifest.sender, MODEL):
            raise Unprocessable(f"manifest of {manifest.sender}: another silo or model than the plan's")
        if len(body.parts) != part_count(self.setting.length) or set(body.seeds) != set(SERVERS[1:]):
            raise Unprocessable(f"manifest of {manifest.sender}: another length or other servers")
        return manifest

    def close(self) -> None:
        self._phase = follow(self._phase, "close")
        accepted = [set(self._accepted(server)) for server in SERVERS]
        survivors = set.intersection(*accepted)
        self._survivors = tuple(sorted(silo for silo, _ in survivors))
        if len(self._survivors) < self.setting.minimum:
            raise NotAllowed(
                f"survivors: expected at least {self.setting.minimum}, got {len(self._survivors)}"
            )
        self._phase = follow(self._phase, "agree")

    def _accepted(self, server: ServerId) -> Iterable[tuple[SiloId, str]]:
        """Whose complete share this server holds, and under which manifest."""
        for silo in self.setting.cohort:
            try:
                (signed,) = self._inbox.of(silo, [f"{server}/manifest"])
                manifest = self._read(Piece(silo, "manifest", signed))
                body = manifest.message
                if server == SERVERS[0]:
                    parts = self._inbox.of(silo, [f"{server}/part/{n}" for n in range(len(body.parts))])
                    fits = tuple(map(sha256_hex, parts)) == body.parts
                else:
                    (sealed,) = self._inbox.of(silo, [f"{server}/seed"])
                    fits = sha256_hex(sealed) == body.seeds[server]
                    self._seed(server, silo)
                if not fits:
                    raise Unprocessable(f"share of {silo} at {server}: it is not what the silo signed")
            except SealsumError as refusal:
                self.left_out[silo] = refusal
                continue
            yield silo, manifest.envelope.body_digest

    def _seed(self, server: ServerId, silo: SiloId) -> bytes:
        (sealed,) = self._inbox.of(silo, [f"{server}/seed"])
        return unseal_seed(sealed, SEALING[server], self.setting.context, MODEL, silo, server)

    def opened(self) -> Opened:
        self._phase = follow(self._phase, "release")
        halves = [
            SeedSumHalf(
                [(silo, self._seed(server, silo)) for silo in self._survivors],
                self.setting.context,
                MODEL,
                server,
            )
            for server in SERVERS[1:]
        ]
        pieces = []
        for piece in stretches(self.setting.length):
            label = f"{SERVERS[0]}/part/{piece.index}"
            held = (self._inbox.held[silo, label] for silo in self._survivors)
            shares = [VectorSumHalf.total(held, piece.length)]
            shares += [half.total(piece.start, piece.length) for half in halves]
            pieces.append(combine(map(ring_to_bytes, shares), piece.length))
        return Opened(self._survivors, np.concatenate(pieces))

    def oracle(self, survivors: Iterable[SiloId]) -> NDArray[np.generic]:
        return np.sum([self.updates[silo] for silo in survivors], axis=0, dtype=np.uint32)
