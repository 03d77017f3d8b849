"""A share server's half of the arithmetic: its aggregate share, stretch by stretch, written as parts.

Runs in a worker thread: AES, NumPy and SHA-256 release the interpreter, so the server stays responsive.
Memory is bounded by one part, whatever the cohort.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aggregator.blob_store import Blobs
from aggregator.blobs import checked
from aggregator.parts import part_name
from aggregator.received import manifest_kind
from aggregator.share_server.rounds import seeds_of
from aggregator.share_server.state import ShareServerState
from policies.gates import ClearedCohort
from privacy.canonical import sha256_hex
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import SeedSumHalf, VectorSumHalf, ring_to_bytes, unseal_seed
from privacy.secagg.parts import Stretch, stretches
from privacy.secagg.validity import sharing as validity
from privacy.secagg.validity.cut import FieldStretch, field_stretches
from privacy.secagg.validity.field import from_bytes, to_bytes
from privacy.secagg.validity.messages import SharesManifest
from privacy.secagg.validity.sharing import Binding, accumulate
from privacy.secagg.validity.terms import terms_of
from privacy.secagg.vectors import Part, vectors_of
from privacy.wire.messages import ShareManifest


def sum_share(state: ShareServerState, cleared: ClearedCohort) -> tuple[Digest, ...]:
    """This server's share of the sum over the cleared survivors; digests of its parts, in order.

    Raises:
        Unprocessable, MalformedMessage: what a survivor sent is no longer what was accepted.
    """
    plan = cleared.admitted.plan
    with state.store.read() as view:
        manifests = view.messages(plan.context, manifest_kind(plan))
        stored = seeds_of(view, plan.context)
    if not state.is_first(plan):
        sealed = {silo: stored[silo] for silo in cleared.survivors}
        masks = sum_masks if plan.validity is None else sum_field_masks
        return masks(plan, sealed, state.me, state.sealing_key, state.openings)
    bodies = [manifests[silo].body for silo in cleared.survivors]
    if plan.validity is None:
        chosen = [ShareManifest.model_validate_json(body) for body in bodies]
        return sum_vectors(plan, chosen, state.parts, state.openings)
    proven = [SharesManifest.model_validate_json(body) for body in bodies]
    return sum_field_vectors(plan, proven, state.parts, state.openings)


def sum_vectors(
    plan: RoundPlan, manifests: Sequence[ShareManifest], parts: Blobs, openings: Blobs
) -> tuple[Digest, ...]:
    """The first server's share: the sum of the survivors' masked vectors, those of each name by itself.

    Raises:
        Unprocessable: a stored part is no longer the one its manifest was signed for.
    """

    def total(part: Part[Stretch]) -> bytes:
        stored = (
            checked(
                parts.read(plan.context, manifest.silo, part_name(part.place)),
                manifest.parts[part.place],
                f"part {part.place} of {manifest.silo}",
            )
            for manifest in manifests
        )
        return ring_to_bytes(VectorSumHalf.total(stored, part.piece.length))

    return _write(plan.context, map(total, vectors_of(plan).parts(stretches)), openings)


def sum_masks(
    plan: RoundPlan,
    sealed_seeds: Mapping[SiloId, bytes],
    server: ServerId,
    key: SealingKey,
    openings: Blobs,
) -> tuple[Digest, ...]:
    """Another server's share: the sum of the survivors' keystreams. Seeds are unsealed here and dropped.

    Raises:
        MalformedMessage: a seed does not open for this server, silo, round and model.
    """
    seeds = [
        (silo, unseal_seed(sealed, key, plan.context, plan.model, silo, server))
        for silo, sealed in sealed_seeds.items()
    ]
    vectors = vectors_of(plan)
    halves = {name: SeedSumHalf(seeds, plan.context, plan.model, server, name) for name in vectors.lengths}

    def total(part: Part[Stretch]) -> bytes:
        return ring_to_bytes(halves[part.vector.name].total(part.piece.start, part.piece.length))

    return _write(plan.context, map(total, vectors.parts(stretches)), openings)


def sum_field_vectors(
    plan: RoundPlan, manifests: Sequence[SharesManifest], parts: Blobs, openings: Blobs
) -> tuple[Digest, ...]:
    """``sum_vectors`` mod p, where what was shared has been proven valid.

    Raises:
        Unprocessable: a stored part is no longer the one its manifest was signed for.
    """

    def total(piece: FieldStretch) -> bytes:
        stored = (
            from_bytes(
                checked(
                    parts.read(plan.context, manifest.silo, part_name(piece.index)),
                    manifest.parts[piece.index],
                    f"part {piece.index} of {manifest.silo}",
                ),
                piece.length,
            )
            for manifest in manifests
        )
        return to_bytes(accumulate(stored, piece.length))

    return _write(plan.context, map(total, field_stretches(plan.vector_length)), openings)


def sum_field_masks(
    plan: RoundPlan,
    sealed_seeds: Mapping[SiloId, bytes],
    server: ServerId,
    key: SealingKey,
    openings: Blobs,
) -> tuple[Digest, ...]:
    """``sum_masks`` mod p.

    Raises:
        MalformedMessage: a seed does not open for this server, silo, round, model and terms.
    """
    terms = terms_of(plan)
    seeds = [
        validity.unseal_seed(sealed, key, Binding(plan.context, terms.digest, plan.model, silo), server)
        for silo, sealed in sealed_seeds.items()
    ]

    def total(piece: FieldStretch) -> bytes:
        masks = (seed.vector(piece.start, piece.length) for seed in seeds)
        return to_bytes(accumulate(masks, piece.length))

    return _write(plan.context, map(total, field_stretches(plan.vector_length)), openings)


def _write(context: Context, totals: Iterable[bytes], openings: Blobs) -> tuple[Digest, ...]:
    digests = []
    for index, raw in enumerate(totals):
        with openings.draft() as draft:
            draft.write(raw)
            draft.place(context, part_name(index))
        digests.append(sha256_hex(raw))
    return tuple(digests)
