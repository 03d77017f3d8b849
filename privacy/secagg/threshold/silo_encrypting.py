"""A silo's step 3: encrypt the one update part by part, sign what it is, and upload only when all have
signed.

BFV and CKKS are malleable: a silo that saw the others' ciphertexts before it made its own could send one
that cancels all but one of them, and "the sum" would be that silo's update. So everybody is bound by
digests first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import sha256_hex
from privacy.chain import Head
from privacy.errors import OutOfOrder, SignatureRejected, Unprocessable
from privacy.identity import SigningKey
from privacy.ids import Digest, SiloId
from privacy.secagg.additive import Ring
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.he.parameters import largest_element
from privacy.secagg.pairwise.faults import Equivocation
from privacy.secagg.threshold.cohort_manifests import check_cohort
from privacy.secagg.threshold.messages import CiphertextManifest, open_from_silo, sign_silo
from privacy.secagg.threshold.parts import ThresholdStretch, threshold_part_count, threshold_stretch
from privacy.secagg.threshold.polynomials import common_polynomial, to_wire
from privacy.secagg.threshold.silo_state import SiloState, Step, answered, record
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope


class Encrypter:
    """Encrypts each part of one update once, under the joint key; keeps the digests, not the bytes."""

    def __init__(self, state: SiloState, worker: Worker, model: Digest) -> None:
        """``model`` is the digest of the model bytes that this silo itself received.

        Raises:
            Equivocation: the terms name another model. OutOfOrder: no joint key yet, or all is signed.
        """
        if model != state.terms.model:
            raise Equivocation("model: this silo received another model than the terms name; take no part")
        if "manifest" in state.signed:
            raise OutOfOrder("threshold manifest: this silo has signed its update; upload those bytes again")
        self._terms, self._worker, self.model = state.terms, worker, model
        self.joint_key, self._joint = state.joint_polynomial()
        self._common = common_polynomial(state.terms.row, state.terms.context)
        self._largest = largest_element(state.terms.vector)
        self._digests: dict[int, tuple[Digest, Digest]] = {}

    def encrypt(self, index: int, encoded: Ring) -> tuple[bytes, bytes]:
        """(bodies, masks) of part ``index``: fresh ciphertexts of encoded elements, uint32[length].

        Raises:
            OutOfOrder: this part is encrypted already. Unprocessable: not the length of this stretch.
            UpdateOutOfRange: an element is larger than the terms allow. WorkerFailed.
        """
        row = self._terms.row
        stretch = threshold_stretch(row, index, self._terms.vector_length)
        if index in self._digests:
            raise OutOfOrder(f"part {index}: it is encrypted already; upload the same bytes")
        if encoded.shape != (stretch.length,):
            raise Unprocessable(f"part {index}: expected {stretch.length} elements, got {encoded.shape}")
        signed = encoded.view(np.int32)
        if np.any(signed > self._largest) or np.any(signed < -self._largest):
            raise UpdateOutOfRange(f"update: part {index} has an element beyond the plan's coordinate_bound")
        sealed = self._worker.encrypt(self._joint, self._common, self._blocks(stretch, signed))
        bodies, masks = to_wire(row, sealed[0::2]), to_wire(row, sealed[1::2])
        self._digests[index] = (sha256_hex(bodies), sha256_hex(masks))
        return bodies, masks

    @property
    def digests(self) -> tuple[tuple[Digest, Digest], ...]:
        """Of the bodies and the masks of every part, in order; raises OutOfOrder while some are missing."""
        count = threshold_part_count(self._terms.row, self._terms.vector_length)
        if len(self._digests) != count:
            raise OutOfOrder(f"manifest: expected {count} encrypted parts, got {len(self._digests)}")
        return tuple(self._digests[index] for index in range(count))

    def _blocks(self, stretch: ThresholdStretch, signed: NDArray[np.int32]) -> NDArray[np.int64]:
        """int64[ciphertexts, degree]: 1, then ``payload`` elements; zeros after the last."""
        row = self._terms.row
        blocks = np.zeros((stretch.ciphertexts, row.degree), dtype=np.int64)
        padded = np.zeros(stretch.ciphertexts * row.payload, dtype=np.int64)
        padded[: stretch.length] = signed
        blocks[:, 0] = 1
        blocks[:, 1:] = padded.reshape(stretch.ciphertexts, row.payload)
        return blocks


def sign_manifest(state: SiloState, key: SigningKey, encrypted: Encrypter, ledger_head: Head) -> Step:
    """Step 3: sign which bytes are this silo's one update. They are not shown to anybody yet.

    Raises:
        OutOfOrder: parts are missing, or step 2 was not signed. Equivocation: another update is signed.
    """
    message = CiphertextManifest(
        silo=state.silo,
        model=encrypted.model,
        parameters=state.terms.parameters,
        joint_key=encrypted.joint_key,
        vector_length=state.terms.vector_length,
        bodies=tuple(body for body, _ in encrypted.digests),
        masks=tuple(mask for _, mask in encrypted.digests),
        ledger_head=ledger_head,
    )
    envelope = sign_silo(message, state.terms, state.silo, key)
    if (earlier := answered(state, "manifest", envelope.body_digest)) is not None:
        return earlier
    return Step(record(state, "manifest", envelope.body_digest, [envelope]), (envelope,))


def admit_cohort(state: SiloState, manifests: Sequence[Envelope]) -> SiloState:
    """Fix the one set of updates that this silo will ever help to open; only then may it upload its own.

    (1) Each manifest is signed by a member of the cohort, one a silo; (2) this silo's own is among them,
    unaltered; (3) they are exactly those of the joint key's holders, under that key, from one model, and
    none repeats another's digests; (4) this silo has admitted no other set.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed, Equivocation: (1), (2), (4). KeyholderMissing,
        BadJointKey, BadSum, Equivocation: (3).
    """
    own = state.sent("manifest")[0].body_digest
    # (1)
    opened = [open_from_silo(manifest, CiphertextManifest, state.terms) for manifest in manifests]
    by_silo = {SiloId(item.sender): item for item in opened}
    if len(by_silo) != len(opened):
        raise Equivocation("manifest: expected one of each silo")
    # (2)
    if state.silo not in by_silo or by_silo[state.silo].envelope.body_digest != own:
        raise SignatureRejected(f"manifest: expected silo {state.silo}'s own among them, as it was sent")
    # (3)
    joint, _ = state.joint_polynomial()
    check_cohort(state.terms, joint, tuple(state.holders), by_silo)
    admitted = {silo: by_silo[silo].envelope.body_digest for silo in sorted(by_silo)}
    # (4)
    if state.manifests and state.manifests != admitted:
        raise Equivocation("manifest: this silo has admitted another set of updates in this round")
    return state.model_copy(update={"manifests": admitted})
