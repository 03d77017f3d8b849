"""A silo's half of ``bfv`` and ``ckks``: it encrypts its update and opens the sum, part by part.

Element 0 of every ciphertext is the number 1, so that it sums to the number of contributors. That exposes
another key, a lost or doubled ciphertext, and an aggregator that hands out one silo's update as "the sum".
It is no proof against malice: whoever scales one ciphertext by n passes it. Hence "honest but curious".
"""

from __future__ import annotations

from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Conflict, NotAllowed, OutOfOrder, Unprocessable
from privacy.ids import Digest, SiloId
from privacy.plan import VectorTerms
from privacy.secagg.additive import Ring
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.he.framing import Form, HeStretch, he_stretch, join_part, split_part
from privacy.secagg.he.keys import HeKey, KeyUse
from privacy.secagg.he.messages import CiphertextManifest, SumManifest
from privacy.secagg.he.parameters import assert_fits, largest_element
from privacy.secagg.he.workers import BlockCipher


class HeSiloHalf:
    """One silo's part in one round: encrypts each stretch once, opens each stretch of the sum once.

    Use it as a context manager when ``workers`` > 1: it ends their processes.
    """

    def __init__(
        self,
        key: HeKey,
        use: KeyUse,
        terms: VectorTerms,
        vector_length: int,
        cohort: int,
        workers: int = 1,
    ) -> None:
        """``use`` is what the round's plan asks for; ``cohort`` is the number of invited silos.

        Raises:
            OutOfOrder: the key is of another federation, epoch or row: make and wrap a new one.
            Unprocessable: the worst sum of the cohort would not decrypt.
        """
        if key.use != use:
            raise OutOfOrder(
                f"key: expected one for {use.federation} epoch {use.epoch} under {use.parameters.name}, got "
                f"{key.use.federation} epoch {key.use.epoch} under {key.use.parameters.name}"
            )
        assert_fits(use.parameters, terms, cohort)
        self._parameters = use.parameters
        self._largest = largest_element(terms)
        self._vector_length = vector_length
        self._cohort = cohort
        self._cipher = BlockCipher(key, cohort, workers)
        self._encrypted: set[int] = set()
        self._opened: set[int] = set()

    def __enter__(self) -> HeSiloHalf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cipher.close()

    def stretch(self, index: int) -> HeStretch:
        """Part ``index`` of this round's vector."""
        return he_stretch(self._parameters, index, self._vector_length)

    def encrypt(self, index: int, encoded: Ring) -> bytes:
        """Part ``index`` of this silo's upload: fresh ciphertexts of encoded elements (uint32[length]).

        Raises:
            UpdateOutOfRange: an element is larger than the terms allow.
            Unprocessable: not the length of this stretch.
            OutOfOrder: this part is encrypted already: resend those bytes.
        """
        stretch = self.stretch(index)
        if index in self._encrypted:
            raise OutOfOrder(f"part {index}: it is encrypted already; resend the same bytes")
        if encoded.shape != (stretch.length,):
            raise Unprocessable(f"part {index}: expected {stretch.length} elements, got {encoded.shape}")
        signed = encoded.view(np.int32)
        if np.any(signed > self._largest) or np.any(signed < -self._largest):
            raise UpdateOutOfRange(f"update: part {index} has an element beyond the plan's coordinate_bound")
        self._encrypted.add(index)
        return join_part(self._cipher.encrypt(self._blocks(stretch, signed)))

    def open(self, index: int, part: bytes, contributors: int) -> Ring:
        """Part ``index`` of the sum, uint32[length] mod 2^32, to be decoded like any other scheme's.

        Checks, in this order: (1) this part was not opened before; (2) the form of the bytes;
        (3) each ciphertext decrypts to integers (CKKS); (4) element 0 of each says ``contributors``;
        (5) no element exceeds what that many honest updates reach; (6) what pads the last one is zero.

        ``contributors`` comes from an ``admit_sum`` that passed.

        Raises:
            OutOfOrder: (1). MalformedMessage: (2). Unprocessable: (3) to (6).
        """
        stretch = self.stretch(index)
        # (1)
        if index in self._opened:
            raise OutOfOrder(f"sum, part {index}: it is open already; a round opens one sum")
        self._opened.add(index)
        # (2)
        ciphertexts = split_part(self._parameters, stretch, Form.SUM, part)
        # (3)
        blocks = self._cipher.decrypt(ciphertexts)
        # (4)
        if np.any(blocks[:, 0] != contributors):
            raise Unprocessable(
                f"sum, part {index}: it is not the sum of {contributors} updates under this key; "
                "abort the round and ask the aggregator which ciphertexts it added"
            )
        elements = blocks[:, 1:].reshape(-1)
        # (5)
        if np.any(np.abs(elements) > contributors * self._largest):
            raise Unprocessable(f"sum, part {index}: an element is beyond {contributors} times the bound")
        # (6)
        if np.any(elements[stretch.length :]):
            raise Unprocessable(f"sum, part {index}: expected zeros after the last element")
        return elements[: stretch.length].astype(np.int32).view(np.uint32)

    def _blocks(self, stretch: HeStretch, signed: NDArray[np.int32]) -> NDArray[np.int64]:
        """int64[ciphertexts, degree]: 1, then ``payload`` elements; zeros after the last."""
        blocks = np.zeros((stretch.ciphertexts, self._parameters.degree), dtype=np.int64)
        padded = np.zeros(stretch.ciphertexts * self._parameters.payload, dtype=np.int64)
        padded[: stretch.length] = signed
        blocks[:, 0] = 1
        blocks[:, 1:] = padded.reshape(stretch.ciphertexts, self._parameters.payload)
        return blocks


def admit_sum(
    summed: SumManifest,
    own: CiphertextManifest,
    own_digest: Digest,
    cohort: tuple[SiloId, ...],
    min_survivors: int,
) -> int:
    """Decide *at the silo* whether a sum may be opened; returns the number of its contributors.

    (1) Survivors are distinct invited silos, each with a manifest; (2) they reach the minimum; (3) this
    silo is one of them, with the manifest that it signed; (4) the key, the parameters, the length and
    the number of parts are its own.

    Raises:
        NotAllowed: (1) or (2). Conflict: (3) or (4).
    """
    # (1)
    survivors = summed.survivors
    if list(survivors) != sorted(set(survivors) & set(cohort)) or len(survivors) != len(summed.manifests):
        raise NotAllowed("sum.survivors: expected distinct invited silos, sorted, each with its manifest")
    # (2)
    if len(survivors) < min_survivors:
        raise NotAllowed(f"sum.survivors: expected at least {min_survivors}, got {len(survivors)}")
    # (3)
    if (own.silo, own_digest) not in zip(survivors, summed.manifests, strict=True):
        raise Conflict(f"sum.manifests: the manifest that {own.silo} signed is not among them")
    # (4)
    theirs = (summed.key, summed.parameters, summed.vector_length, len(summed.parts))
    if theirs != (own.key, own.parameters, own.vector_length, len(own.parts)):
        raise Conflict("sum: expected the key, parameters, length and number of parts of our own manifest")
    return len(survivors)
