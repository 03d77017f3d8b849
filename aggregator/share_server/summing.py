"""A share server's half of the arithmetic: its aggregate share, stretch by stretch, written as parts.

Runs in a worker thread: AES, NumPy and SHA-256 release the interpreter, so the server stays responsive.
Memory is bounded by one part, whatever the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aggregator.blobs import Directory, checked
from aggregator.parts import part_name
from privacy.canonical import sha256_hex
from privacy.identity import SealingKey
from privacy.ids import Digest, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import Ring, SeedSumHalf, VectorSumHalf, ring_to_bytes, unseal_seed
from privacy.secagg.parts import Stretch, stretches
from privacy.wire.messages import ShareManifest


def sum_vectors(
    plan: RoundPlan, manifests: Sequence[ShareManifest], parts: Directory, openings: Directory
) -> tuple[Digest, ...]:
    """The first server's share: the sum of the survivors' masked vectors.

    Raises:
        Unprocessable: a stored part is no longer the one its manifest was signed for.
    """

    def total(piece: Stretch) -> Ring:
        stored = (
            checked(
                parts.read(plan.context, manifest.silo, part_name(piece.index)),
                manifest.parts[piece.index],
                f"part {piece.index} of {manifest.silo}",
            )
            for manifest in manifests
        )
        return VectorSumHalf.total(stored, piece.length)

    return _write(plan, total, openings)


def sum_masks(
    plan: RoundPlan,
    sealed_seeds: Mapping[SiloId, bytes],
    server: ServerId,
    key: SealingKey,
    openings: Directory,
) -> tuple[Digest, ...]:
    """Another server's share: the sum of the survivors' keystreams. Seeds are unsealed here and dropped.

    Raises:
        MalformedMessage: a seed does not open for this server, silo, round and model.
    """
    seeds = [
        (silo, unseal_seed(sealed, key, plan.context, plan.model, silo, server))
        for silo, sealed in sealed_seeds.items()
    ]
    half = SeedSumHalf(seeds, plan.context, plan.model, server)
    return _write(plan, lambda piece: half.total(piece.start, piece.length), openings)


def _write(plan: RoundPlan, total: Callable[[Stretch], Ring], openings: Directory) -> tuple[Digest, ...]:
    digests = []
    for piece in stretches(plan.vector_length):
        raw = ring_to_bytes(total(piece))
        with openings.draft() as draft:
            draft.write(raw)
            draft.place(plan.context, part_name(piece.index))
        digests.append(sha256_hex(raw))
    return tuple(digests)
