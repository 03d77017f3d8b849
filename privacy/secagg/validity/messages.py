"""The messages of a validity round, as bodies of signed envelopes; large vectors travel beside them.

silo → servers   SharesManifest      beside parts (server 0) and sealed seeds (each server)
server → all     CoinCommitment, then CoinReveal          step 1
silo → servers   ProofManifest       beside the witness (server 0)
server → all     CoinCommitment, then CoinReveal          step 2
server → servers CheckManifest       beside ``CheckShare.to_bytes``
server → all     Verdict
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from privacy.canonical import Frozen, digest_of
from privacy.ids import Digest, HexDigest, ServerName, SiloName
from privacy.secagg.validity.server import CheckName


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


class Verdict(Frozen):
    """Server → all: whether this silo is in the sum, and which check says no."""

    server: ServerName
    silo: SiloName
    check: HexDigest
    """Digest over all servers' check manifests about this silo, sorted by server."""
    failed: CheckName | None


def frozen_digest(manifests: dict[SiloName, Digest]) -> Digest:
    """What a toss is bound to: every silo whose manifest is fixed, with the manifest's digest."""
    return digest_of("sealsum/validity/frozen/v1", {str(silo): digest for silo, digest in manifests.items()})
