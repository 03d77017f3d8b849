"""How many bytes a hospital sends up in a round, counted from what it signed: request bodies, no headers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from privacy.canonical import canonical_bytes
from privacy.sealing import SEALED_OVERHEAD_BYTES
from privacy.secagg.additive import RING_BYTES
from privacy.secagg.keystream import SEED_BYTES
from privacy.wire.envelope import Envelope
from privacy.wire.messages import ShareManifest


def upload_bytes(manifest: Envelope) -> int:
    """One vector share, its manifest to every share server (with a sealed seed but for the first), and once
    more to the aggregator."""
    claim = ShareManifest.model_validate_json(manifest.body)
    sealed_seed = base64.b64encode(bytes(SEED_BYTES + SEALED_OVERHEAD_BYTES)).decode()
    seeds: list[str | None] = [None, *(sealed_seed for _ in claim.seeds)]
    submissions = [
        canonical_bytes({"manifest": manifest.model_dump(mode="json"), "sealed_seed": seed}) for seed in seeds
    ]
    vector = claim.vector_length * RING_BYTES
    return vector + sum(len(body) for body in submissions) + len(canonical_bytes(manifest))


def bytes_per_silo_round(rounds: Iterable[dict[str, Any]]) -> int:
    """The largest upload of any hospital in any round of an aggregator's evidence."""
    return max(
        (
            upload_bytes(Envelope.model_validate(manifest))
            for each in rounds
            for manifest in each["manifests"].values()
        ),
        default=0,
    )
