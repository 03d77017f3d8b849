"""Adding up survivors' ciphertexts, part by part, on disk: all that a server needs TenSEAL for. No key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from aggregator.blob_store import Blobs
from aggregator.parts import part_name
from privacy.canonical import sha256_hex
from privacy.errors import MalformedMessage, SealsumError, Unprocessable
from privacy.ids import Digest, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.he.framing import HeStretch, he_stretches
from privacy.secagg.he.messages import CiphertextManifest
from privacy.secagg.he.parameters import parameters_named
from privacy.secagg.he.sum_half import HeSumHalf, assert_one_key
from privacy.secagg.vectors import vectors_of

UPDATE, SUM = "parts", "sum"
"""Names of files: a silo's encrypted update, and the encrypted sum."""


class AddingUp:
    """One round's encrypted sum; memory holds one part of one silo and one part of the sum."""

    def __init__(
        self,
        updates: Blobs,
        sums: Blobs,
        plan: RoundPlan,
        survivors: Mapping[SiloId, CiphertextManifest],
    ) -> None:
        """Nothing is read yet.

        Raises:
            Unprocessable: the survivors' manifests name more keys than one; their sum would be noise.
        """
        if plan.he is None:
            raise SealsumError("adding: expected a plan with a row of parameters")
        self.key = assert_one_key(survivors, plan.he, plan.vector_length)
        self._updates = updates
        self._sums = sums
        self._ctx = plan.context
        self._survivors = tuple(survivors)
        self._parts_of_sum = vectors_of(plan).parts(partial(he_stretches, parameters_named(plan.he)))
        self._half = HeSumHalf(plan.he, len(plan.cohort))
        self._reading = self._survivors[0]

    def run(self) -> tuple[Digest, ...]:
        """Write every part of the sum; their digests, in order. Takes seconds: run it in a thread.

        Raises:
            Unprocessable: a silo's part holds no ciphertexts; the round ends with its name.
        """
        return tuple(self._add(part.place, part.piece) for part in self._parts_of_sum)

    def _add(self, place: int, piece: HeStretch) -> Digest:
        try:
            total = self._half.total(self._parts(place), piece)
        except MalformedMessage as error:
            # Ciphertexts are looked at once, while they are added: to look on arrival would double the work.
            raise Unprocessable(f"part {place} of silo {self._reading}: {error}") from error
        with self._sums.draft() as draft:
            draft.write(total)
            draft.commit(self._ctx, part_name(place, SUM))
        return sha256_hex(total)

    def _parts(self, place: int) -> Iterator[bytes]:
        for silo in self._survivors:
            self._reading = silo
            yield self._updates.read(self._ctx, silo, part_name(place, UPDATE))
