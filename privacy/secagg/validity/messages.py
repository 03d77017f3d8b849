"""The messages of a validity round, as bodies of signed envelopes; large vectors travel beside them.

silo → servers   SharesManifest      beside parts (server 0) and sealed seeds (each server)
server → all     CoinCommitment, then CoinReveal          step 1
silo → servers   ProofManifest       beside the witness (server 0)
server → all     CoinCommitment, then CoinReveal          step 2
server → servers CheckManifest       beside ``CheckShare.to_bytes``
server → all     Verdicts

The two tosses are messages of different kinds (``COIN_KINDS``): one of each a server and round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from privacy.canonical import Frozen, digest_of
from privacy.chain import Head
from privacy.ids import Digest, HexDigest, ServerId, ServerName, SiloId, SiloName
from privacy.secagg.validity.coins import Step
from privacy.secagg.validity.server import CheckName
from privacy.wire.envelope import MessageKind


class SharesManifest(Frozen):
    """Silo → every server: these bytes, and no others, are my update of this round."""

    silo: SiloName
    terms: HexDigest
    """Digest of the validity terms."""
    model: HexDigest
    """Digest of the model that the silo hashed itself."""
    vector_length: Annotated[int, Field(ge=2)]
    parts: Annotated[tuple[HexDigest, ...], Field(min_length=1, max_length=100_000)]
    """SHA-256 of each part of server 0's share, in order."""
    seeds: dict[ServerName, HexDigest]
    """SHA-256 of the sealed seed for each server, the first included."""
    ledger_head: Head
    """Head of the silo's privacy ledger after reserving for this round: others witness it."""


class CoinCommitment(Frozen):
    """Server → all: I am bound to a value for this toss."""

    server: ServerName
    step: Literal[1, 2]
    frozen: HexDigest
    """``frozen_digest`` of the manifests fixed before this toss."""
    commitment: HexDigest


class CoinReveal(Frozen):
    """Server → all: my value, after I have seen every commitment."""

    server: ServerName
    step: Literal[1, 2]
    frozen: HexDigest
    value: HexDigest
    """32 bytes as hex."""


class ProofManifest(Frozen):
    """Silo → every server: this witness answers that coin about those shares."""

    silo: SiloName
    shares: HexDigest
    """Digest of this silo's shares manifest."""
    coin: HexDigest
    """``Coin.digest`` of step 1."""
    witness: HexDigest
    """SHA-256 of server 0's share of the witness."""


class CheckManifest(Frozen):
    """Server → the other servers: my one message about this silo, by the digest of its bytes."""

    server: ServerName
    silo: SiloName
    proof: HexDigest
    """Digest of the proof manifest it is about."""
    coin: HexDigest
    """``Coin.digest`` of step 2."""
    check: HexDigest


class SiloVerdict(Frozen):
    """Whether one silo is in the sum, and which check says no."""

    silo: SiloName
    check: HexDigest
    """``checks_digest`` of what was judged."""
    failed: CheckName | None


class Verdicts(Frozen):
    """Server → all: what I found about every silo that has proven, each judged by myself."""

    server: ServerName
    coin: HexDigest
    """``Coin.digest`` of step 2."""
    verdicts: Annotated[tuple[SiloVerdict, ...], Field(max_length=1000)]
    """Sorted by silo."""


COIN_KINDS: dict[Step, tuple[MessageKind, MessageKind]] = {
    1: ("coin1_commitment", "coin1_reveal"),
    2: ("coin2_commitment", "coin2_reveal"),
}
"""Kinds of the commitment and of the reveal of each toss."""


def frozen_digest(manifests: Mapping[SiloId, Digest]) -> Digest:
    """What a toss is bound to: every silo whose manifest is fixed, with the manifest's digest."""
    return digest_of("sealsum/validity/frozen/v1", {str(silo): digest for silo, digest in manifests.items()})


def checks_digest(checks: Mapping[ServerId, Digest]) -> Digest:
    """All servers' check manifests about one silo, by the digest of each one's body."""
    return digest_of("sealsum/validity/checks/v1", {str(server): body for server, body in checks.items()})
