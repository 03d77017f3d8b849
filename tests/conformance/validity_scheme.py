"""``additive`` with validity for the suites: shares, a coin, proofs, a second coin, each server's verdict."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import sha256_hex
from privacy.chain import EMPTY
from privacy.errors import NotAllowed, OutOfOrder, SealsumError, Unprocessable
from privacy.ids import Digest, SiloId
from privacy.secagg.validity.coins import Coin, CoinHalf, Reveals, Step, Toss, settle
from privacy.secagg.validity.field import Field, add, centred, from_bytes, to_bytes
from privacy.secagg.validity.messages import ProofManifest, SharesManifest, frozen_digest
from privacy.secagg.validity.server import ValidityServerHalf, judge
from privacy.secagg.validity.sharing import PART_ELEMENTS, Binding, SeedShares, accumulate, unseal_seed
from privacy.secagg.validity.silo import ValiditySiloHalf
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import witness_length
from privacy.wire.envelope import Verified, open_envelope
from tests.conformance.scheme import MODEL, Inbox, Opened, Piece, Setting, envelope_of
from tests.validity_cohort import SEALING, parts

MAX_BYTES = 1 << 20
SERVERS = dict(list(SEALING.items())[:2])


class ValidityRound:
    """Two servers and their silos."""

    steps = ("shares", "proof")
    counted = "proof"
    names_model = "shares"

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.terms = ValidityTerms(dimension=setting.dimension, norm_bound=4.0, scale_bits=16)
        generator = np.random.default_rng()
        largest = int(self.terms.encoded_bound / np.sqrt(setting.dimension) / 2)
        self.updates = {
            silo: np.append(
                generator.integers(-largest, largest + 1, setting.dimension, dtype=np.int64),
                self.terms.weight_scale,
            )
            for silo in setting.cohort
        }
        self.halves: dict[SiloId, ValiditySiloHalf] = {}
        self.left_out: dict[SiloId, SealsumError] = {}
        self._outbox: dict[tuple[SiloId, str], tuple[Piece, ...]] = {}
        self._inbox = Inbox()
        self._place = 0
        self._seeds: dict[SiloId, list[SeedShares]] = {}
        self._shares: dict[SiloId, list[Field]] = {}
        self._manifests: dict[SiloId, Verified[SharesManifest]] = {}
        self._first: Coin | None = None
        self._survivors: tuple[SiloId, ...] = ()

    def needed(self, step: str, counted: int) -> int:
        return self.setting.minimum

    @property
    def step(self) -> str:
        return self.steps[self._place] if self._place < len(self.steps) else ""

    def binding(self, silo: SiloId, model: Digest = MODEL) -> Binding:
        return Binding(self.setting.context, self.terms.digest, model, silo)

    # --- silos ---

    def act(self, silo: SiloId) -> tuple[Piece, ...]:
        if (silo, self.step) not in self._outbox:
            self._outbox[silo, self.step] = self._share(silo) if self.step == "shares" else self._prove(silo)
        return self._outbox[silo, self.step]

    def _share(self, silo: SiloId) -> tuple[Piece, ...]:
        model = self.setting.models.get(silo, MODEL)
        half = ValiditySiloHalf(
            self.terms,
            self.binding(silo, model),
            {server: key.public_hex for server, key in SERVERS.items()},
        )
        raw = [to_bytes(half.share(start, part)) for start, part in parts(self.updates[silo])]
        half.commit()
        self.halves[silo] = half
        manifest = SharesManifest(
            silo=silo,
            terms=self.terms.digest,
            model=model,
            vector_length=self.setting.length,
            parts=tuple(map(sha256_hex, raw)),
            seeds={server: sha256_hex(sealed) for server, sealed in half.sealed_seeds.items()},
            ledger_head=EMPTY,
        )
        return (
            Piece(silo, "shares", self.setting.sign(silo, manifest)),
            *(Piece(silo, f"part/{index}", part) for index, part in enumerate(raw)),
            *(Piece(silo, f"seed/{server}", sealed) for server, sealed in half.sealed_seeds.items()),
        )

    def _prove(self, silo: SiloId) -> tuple[Piece, ...]:
        half, coin = self.halves[silo], self._coin()
        half.open_coin(coin)
        for start, part in parts(self.updates[silo]):
            half.project(start, part)
        witness = to_bytes(half.prove())
        shares = self._read(self._outbox[silo, "shares"][0], SharesManifest)
        manifest = ProofManifest(
            silo=silo, shares=shares.envelope.body_digest, coin=coin.digest, witness=sha256_hex(witness)
        )
        return Piece(silo, "proof", self.setting.sign(silo, manifest)), Piece(silo, "witness", witness)

    # --- servers ---

    def _coin(self) -> Coin:
        if self._first is None:
            raise OutOfOrder("coin: it is not tossed yet")
        return self._first

    def take(self, piece: Piece) -> None:
        due = {"shares": ("shares", "part", "seed"), "proof": ("proof", "witness"), "": ()}[self.step]
        if piece.label.split("/")[0] not in due:
            raise OutOfOrder(f"{piece.label}: none is due in step {self.step or 'none'}")
        if piece.label == "shares":
            self._read(piece, SharesManifest)
        elif piece.label == "proof":
            self._check_proof(self._read(piece, ProofManifest))
        self._inbox.put(piece)

    def _read(self, piece: Piece, model: type) -> Verified:
        def verify_key_of(party: str) -> str:
            if party not in self.setting.cohort:
                raise NotAllowed(f"{party}: it is not in this round's cohort")
            return self.setting.keys[SiloId(party)].verify_key

        opened = open_envelope(
            envelope_of(piece),
            model,
            kind="manifest",
            context=self.setting.context,
            verify_key_of=verify_key_of,
            max_bytes=MAX_BYTES,
        )
        if opened.message.silo != opened.sender:
            raise Unprocessable(f"{piece.label} of {opened.sender}: it names {opened.message.silo}")
        return opened

    def _check_proof(self, proof: Verified[ProofManifest]) -> None:
        silo = proof.message.silo
        if silo not in self._manifests:
            raise OutOfOrder(f"proof of {silo}: its shares are not in this round")
        expected = (self._manifests[silo].envelope.body_digest, self._coin().digest)
        if (proof.message.shares, proof.message.coin) != expected:
            raise Unprocessable(f"proof of {silo}: it answers another coin, or about other shares")

    def close(self) -> None:
        step, inbox = self.step, self._inbox
        self._place, self._inbox = len(self.steps), Inbox()  # over, unless the step closes
        if step == "shares":
            self._close_shares(inbox)
        else:
            self._close_proofs(inbox)
        self._place = self.steps.index(step) + 1

    def _close_shares(self, inbox: Inbox) -> None:
        for silo in self.setting.cohort:
            try:
                (signed,) = inbox.of(silo, ["shares"])
                manifest = self._read(Piece(silo, "shares", signed), SharesManifest)
                body = manifest.message
                raw = inbox.of(silo, [f"part/{index}" for index in range(len(body.parts))])
                sealed = inbox.of(silo, [f"seed/{server}" for server in SERVERS])
                fits = (tuple(map(sha256_hex, raw)), dict(zip(SERVERS, map(sha256_hex, sealed), strict=True)))
                if fits != (body.parts, body.seeds):
                    raise Unprocessable(f"shares of {silo}: they are not what the silo signed")
                if (body.model, body.terms, body.vector_length) != (
                    MODEL,
                    self.terms.digest,
                    self.setting.length,
                ):
                    raise Unprocessable(f"shares of {silo}: another model, terms or length than the plan's")
                seeds = [
                    unseal_seed(each, key, self.binding(silo), server)
                    for each, (server, key) in zip(sealed, SERVERS.items(), strict=True)
                ]
                lengths = [
                    min(PART_ELEMENTS, self.setting.length - start)
                    for start in range(0, self.setting.length, PART_ELEMENTS)
                ]
                shares = [from_bytes(part, length) for part, length in zip(raw, lengths, strict=True)]
            except SealsumError as refusal:
                self.left_out[silo] = refusal
                continue
            self._manifests[silo], self._seeds[silo], self._shares[silo] = manifest, seeds, shares
        self._enough(self._manifests)
        frozen = {silo: manifest.envelope.body_digest for silo, manifest in self._manifests.items()}
        self._first = self._toss(1, frozen_digest(frozen))

    def _close_proofs(self, inbox: Inbox) -> None:
        proofs: dict[SiloId, bytes] = {}
        frozen = {}
        for silo in self._manifests:
            try:
                signed, witness = inbox.of(silo, ["proof", "witness"])
                proof = self._read(Piece(silo, "proof", signed), ProofManifest)
                if sha256_hex(witness) != proof.message.witness:
                    raise Unprocessable(f"witness of {silo}: it is not what the silo signed")
            except SealsumError as refusal:
                self.left_out[silo] = refusal
                continue
            proofs[silo], frozen[silo] = witness, proof.envelope.body_digest
        coins = (self._coin(), self._toss(2, frozen_digest(frozen)))
        survivors = []
        for silo, witness in proofs.items():
            try:
                self._check(silo, witness, coins)
                survivors.append(silo)
            except SealsumError as refusal:
                self.left_out[silo] = refusal
        self._enough(survivors)
        self._survivors = tuple(survivors)

    def _check(self, silo: SiloId, witness: bytes, coins: tuple[Coin, Coin]) -> None:
        messages = {}
        for place, seed in enumerate(self._seeds[silo]):
            half = ValidityServerHalf(self.terms, seed, coins, first=place == 0)
            for index, share in enumerate(self._shares[silo]):
                half.absorb(index * PART_ELEMENTS, share if place == 0 else None)
            mine = from_bytes(witness, witness_length(self.terms)) if place == 0 else None
            messages[seed.server] = half.message(mine)
        judge(self.terms, coins[1], silo, messages)

    def _toss(self, step: Step, frozen: Digest) -> Coin:
        what = Toss(self.setting.context, step, frozen, tuple(SERVERS))
        halves = {server: CoinHalf(what, server) for server in SERVERS}
        commitments = {server: half.commitment for server, half in halves.items()}
        values = {server: half.reveal(commitments) for server, half in halves.items()}
        return settle(what, Reveals(commitments, values))

    def _enough(self, silos: Iterable[SiloId]) -> None:
        if (left := len(tuple(silos))) < self.setting.minimum:
            raise NotAllowed(f"survivors: expected at least {self.setting.minimum}, got {left}")

    def opened(self) -> Opened:
        if not self._survivors:
            raise OutOfOrder("sum: no survivors are agreed on")
        pieces = []
        for index, share in enumerate(next(iter(self._shares.values()))):
            length = len(share)
            total = accumulate((self._shares[silo][index] for silo in self._survivors), length)
            for place in range(1, len(SERVERS)):
                masks = (
                    self._seeds[silo][place].vector(index * PART_ELEMENTS, length) for silo in self._survivors
                )
                total = add(total, accumulate(masks, length))
            pieces.append(centred(total))
        return Opened(self._survivors, np.concatenate(pieces))

    def oracle(self, survivors: Iterable[SiloId]) -> NDArray[np.generic]:
        return np.sum([self.updates[silo] for silo in survivors], axis=0, dtype=np.int64)
