"""What the parties of ``bfv`` and ``ckks`` sign: wrapped keys, manifests of ciphertexts, manifests of sums.

SEAL ciphertexts authenticate nothing. A digest of each part in a signed manifest, under the context of the
round, does. Knows no TenSEAL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen
from privacy.chain import Head
from privacy.ids import HexDigest, Name, SiloId, SiloName

_Parts = Annotated[tuple[HexDigest, ...], Field(min_length=1, max_length=100_000)]
_Length = Annotated[int, Field(ge=2)]


class WrappedKey(Frozen):
    """Silo → one silo: the key of a job. The envelope's context is the job's digest."""

    federation: Name
    epoch: Annotated[int, Field(ge=1)]
    job: HexDigest
    parameters: Name
    key: HexDigest
    """Id of the key: a hash of it."""
    maker: SiloName
    silo: SiloName
    sealed: Annotated[str, StringConstraints(max_length=1 << 18)]
    """HPKE of the packed secret key, base64."""


class CiphertextManifest(Frozen):
    """Silo → aggregator: this is my one update of this round, and the key it is encrypted under."""

    silo: SiloName
    model: HexDigest
    """Digest of the model bytes the silo itself received and trained from."""
    parameters: Name
    key: HexDigest
    vector_length: _Length
    parts: _Parts
    """SHA-256 of each part, in order."""
    ledger_head: Head


class OpenedSum(Frozen):
    """Survivor → aggregator: what the one sum decrypts to, by the digests of its parts as ring elements.

    A function of the inputs alone (integers, exactly rounded): a raw decryption never leaves a silo.
    """

    silo: SiloName
    sum: HexDigest
    """Digest of the sum manifest's body."""
    parts: _Parts
    """SHA-256 of each part of the opened sum, little-endian uint32, cut as in ``privacy.secagg.parts``."""


class SumManifest(Frozen):
    """Aggregator → silos: the one sum of this round, over these manifests."""

    parameters: Name
    key: HexDigest
    vector_length: _Length
    survivors: Annotated[tuple[SiloName, ...], Field(min_length=1)]
    manifests: Annotated[tuple[HexDigest, ...], Field(min_length=1)]
    """Digest of each survivor's manifest envelope's body, in the order of ``survivors``."""
    parts: _Parts
    """SHA-256 of each part of the sum, in order."""


def parts_to_send(survivors: Sequence[SiloId], silo: SiloId, parts: int) -> range:
    """Which parts of the opened sum a survivor sends: they take turns, so that each part travels once."""
    return range(tuple(survivors).index(silo), parts, len(survivors))
