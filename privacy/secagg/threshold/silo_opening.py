"""A silo's step 4: add up the cohort's masks itself, and decrypt its part of that one sum, once.

A silo decrypts whatever c1 it is handed, so it must know what that is. No cheaper check is sound here: a
linear fingerprint of the sum would have to be vouched for by every contributor, and one that colludes
could then vouch for a sum which opens a single update. So each silo downloads the others' c1 (half of each
ciphertext), compares them with the digests that their owners signed before anyone saw a ciphertext, and
adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from privacy.canonical import sha256_hex
from privacy.errors import OutOfOrder
from privacy.identity import SigningKey
from privacy.ids import Digest, SiloId
from privacy.secagg.threshold.faults import BadSum
from privacy.secagg.threshold.messages import (
    CiphertextManifest,
    PartialDecryption,
    open_from_silo,
    open_sum,
    sign_silo,
)
from privacy.secagg.threshold.parts import threshold_part_count, threshold_stretch
from privacy.secagg.threshold.polynomials import Polynomials, added, from_wire, to_wire
from privacy.secagg.threshold.silo_state import SiloState, Step, answered, record
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope


class PartialOpener:
    """Makes this silo's partial decryption of the one admitted sum, part by part, each once."""

    def __init__(
        self, state: SiloState, worker: Worker, summed: Envelope, manifests: Sequence[Envelope]
    ) -> None:
        """Judge what is to be opened before the secret is touched.

        (1) The manifests are the ones that this silo admitted before it uploaded; (2) the sum is signed by
        the server, under this joint key, over exactly those manifests; (3) it has as many parts.

        Raises:
            OutOfOrder: no cohort is admitted, or the partial decryption is signed. SignatureRejected,
            MalformedMessage, NotAllowed: a message. BadSum: (1) to (3).
        """
        state.assert_may_upload()
        self._terms, self._worker, self._secret = state.terms, worker, state.secret_share()
        # (1)
        opened = [open_from_silo(manifest, CiphertextManifest, state.terms) for manifest in manifests]
        by_silo = {SiloId(item.sender): item for item in opened}
        if {silo: item.envelope.body_digest for silo, item in by_silo.items()} != state.manifests:
            raise BadSum("sum: its manifests are not the ones that this silo admitted")
        self._masks = {silo: by_silo[silo].message.masks for silo in sorted(by_silo)}
        # (2)
        claim = open_sum(summed, state.terms)
        expected = (state.joint_key, tuple(self._masks), tuple(state.manifests[silo] for silo in self._masks))
        if (claim.message.joint_key, claim.message.silos, claim.message.manifests) != expected:
            raise BadSum("sum: it is not over exactly the updates that this silo admitted")
        # (3)
        self._count = threshold_part_count(state.terms.row, state.terms.vector_length)
        if len(claim.message.masks) != self._count:
            raise BadSum(f"sum: expected {self._count} parts, got {len(claim.message.masks)}")
        self._claimed = claim.message.masks
        self.sum: Digest = claim.envelope.body_digest
        self._digests: dict[int, Digest] = {}

    def decrypt(self, index: int, masks: Iterable[tuple[SiloId, bytes]]) -> bytes:
        """Part ``index`` of the partial decryption, from every contributor's masks of that part.

        (1) Each is the one its owner signed; (2) all are there, one a silo; (3) this silo's own sum of
        them is the one that the server claims; (4) the part was not decrypted before.

        Raises:
            BadSum: (1) to (3). OutOfOrder: (4). WorkerFailed.
        """
        row = self._terms.row
        stretch = threshold_stretch(row, index, self._terms.vector_length)
        # (4), before anything is computed
        if index in self._digests:
            raise OutOfOrder(f"part {index}: it is decrypted already; send the same bytes")
        seen: set[SiloId] = set()

        def checked() -> Iterable[Polynomials]:
            for silo, raw in masks:
                # (1), (2)
                if silo in seen or silo not in self._masks or sha256_hex(raw) != self._masks[silo][index]:
                    raise BadSum(f"part {index}: the masks of silo {silo} are not the ones it signed, once")
                seen.add(silo)
                yield from_wire(f"masks of silo {silo}", row, raw, stretch.ciphertexts)

        total = added(row, checked())
        if seen != set(self._masks):
            raise BadSum(f"part {index}: expected the masks of {len(self._masks)} silos, got {len(seen)}")
        # (3)
        if sha256_hex(to_wire(row, total)) != self._claimed[index]:
            raise BadSum(f"part {index}: the server's sum is not the sum of the cohort's ciphertexts")
        answer = to_wire(row, self._worker.partial(self._secret, total))
        self._digests[index] = sha256_hex(answer)
        return answer

    @property
    def digests(self) -> tuple[Digest, ...]:
        """Of every part, in order; raises OutOfOrder while some are missing."""
        if len(self._digests) != self._count:
            raise OutOfOrder(f"partial: expected {self._count} decrypted parts, got {len(self._digests)}")
        return tuple(self._digests[index] for index in range(self._count))


def sign_partial(state: SiloState, key: SigningKey, opened: PartialOpener) -> Step:
    """Step 4: sign this silo's one partial decryption, and forget its secret share.

    The parts are stored with ``state`` before any is sent: after this step they cannot be made again.

    Raises:
        OutOfOrder: parts are missing. Equivocation: another one is signed in this round.
    """
    message = PartialDecryption(sum=opened.sum, parts=opened.digests)
    envelope = sign_silo(message, state.terms, state.silo, key)
    if (earlier := answered(state, "partial", envelope.body_digest)) is not None:
        return earlier
    state = state.model_copy(update={"secret": None})
    return Step(record(state, "partial", envelope.body_digest, [envelope]), (envelope,))
