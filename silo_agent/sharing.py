"""From an update to what leaves the silo: fixed-point encoding, additive shares, sealed seeds, the manifest.

The vector is [ŵ·Δ, ŵ]; what the first server gets is its encoding minus every mask (docs/architecture.md,
A round, 2; privacy/secagg/additive.py). Part by part, so that memory does not grow with the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import SealsumError
from privacy.ids import Digest, ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import AdditiveSiloHalf, ring_to_bytes
from privacy.secagg.encoding import encode, encode_weight
from privacy.secagg.keystream import Dither
from privacy.secagg.parts import Stretch, part_count, stretches
from privacy.wire.messages import ShareManifest


class Sharing:
    """One sharing of one update. Its seeds live here only and are sealed once."""

    def __init__(
        self,
        plan: RoundPlan,
        silo: SiloId,
        model: Digest,
        sealing_keys: Mapping[ServerId, str],
        update: NDArray[np.float32],
        weight: float,
    ) -> None:
        """
        Args:
            model: digest that this silo computed itself; under any other model the masks do not cancel
                (Pasquini et al. 2021).
            sealing_keys: of every server of the plan but the first, from the charter.
            update: float32[d].
            weight: ŵ in (0, 1].

        Raises:
            SealsumError: the keys or the update are not the plan's: a bug, not a peer's doing.
        """
        if list(sealing_keys) != [slot.server for slot in plan.servers[1:]]:
            raise SealsumError("sharing: expected a sealing key for each server but the first")
        if update.shape != (plan.parameters,):
            raise SealsumError(f"sharing: expected an update of shape ({plan.parameters},)")
        self._plan = plan
        self._silo = silo
        self._model = model
        self._update = update
        self._weight = weight
        self._dither = Dither()
        self._half = AdditiveSiloHalf(plan.context, model, silo, sealing_keys)
        self._digests: list[Digest] = []

    @property
    def sealed_seeds(self) -> dict[ServerId, bytes]:
        """For each server but the first, its seed, sealed."""
        return self._half.sealed_seeds

    def parts(self) -> Iterator[bytes]:
        """The vector share's parts in order, each computed when asked for.

        Raises:
            UpdateOutOfRange: a coordinate is not finite or beyond the plan's bound; never clipped to fit.
        """
        for stretch in stretches(self._plan.vector_length):
            part = ring_to_bytes(self._half.share(stretch.start, self._encoded(stretch)))
            self._digests.append(sha256_hex(part))
            yield part

    def manifest(self, ledger_head: Head) -> ShareManifest:
        """What the silo signs, once each part has been drawn once.

        Raises:
            SealsumError: parts are missing, or were drawn twice: a bug, not a peer's doing.
        """
        if len(self._digests) != part_count(self._plan.vector_length):
            raise SealsumError("sharing: expected each part to be drawn once before the manifest")
        return ShareManifest(
            silo=self._silo,
            model=self._model,
            vector_length=self._plan.vector_length,
            parts=tuple(self._digests),
            seeds={server: sha256_hex(sealed) for server, sealed in self.sealed_seeds.items()},
            ledger_head=ledger_head,
        )

    def _encoded(self, stretch: Stretch) -> NDArray[np.uint32]:
        terms = self._plan.vector
        values = self._update[stretch.start : stretch.start + stretch.length]
        encoded = encode(values, self._weight, terms, self._dither.at(stretch.start, len(values)))
        if len(values) < stretch.length:
            return np.concatenate([encoded, encode_weight(self._weight, terms)])
        return encoded
