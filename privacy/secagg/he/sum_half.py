"""The aggregator's half of ``bfv`` and ``ckks``: it adds ciphertexts that it has no key to.

It takes a row's name and silos' ciphertexts; no context, no key and no plaintext ever enters it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from privacy.errors import Unprocessable
from privacy.ids import Digest, SiloId
from privacy.secagg.he.door import Adder
from privacy.secagg.he.framing import Form, HeStretch, join_part, split_part
from privacy.secagg.he.messages import CiphertextManifest
from privacy.secagg.he.parameters import parameters_named


class HeSumHalf:
    """Sums one stretch after the other; memory holds one part of one silo and one part of the sum."""

    def __init__(self, parameters: str, cohort: int) -> None:
        """``cohort`` is the number of *invited* silos: CKKS's scale follows from it.

        Raises:
            Unprocessable: a row that is not allow-listed, or too large a cohort.
        """
        self._parameters = parameters_named(parameters)
        self._parameters.largest_sum(cohort)
        self._cohort = cohort

    def total(self, parts: Iterable[bytes], stretch: HeStretch) -> bytes:
        """The encrypted sum of the same stretch of every survivor, as a part.

        Raises:
            MalformedMessage: a part is not what this stretch is made of.
            Unprocessable: no part, more parts than invited silos, or they add up to an unencrypted sum.
        """
        adder = Adder(self._parameters, self._cohort)
        count = 0
        for part in parts:
            count += 1
            if count > self._cohort:
                raise Unprocessable(f"parts: expected at most one of each of {self._cohort} silos")
            adder.add(split_part(self._parameters, stretch, Form.UPDATE, part))
        if not count:
            raise Unprocessable("parts: expected at least one silo's")
        return join_part(adder.totals())


def assert_one_key(manifests: Mapping[SiloId, CiphertextManifest], parameters: str, length: int) -> Digest:
    """The id of the one key that all updates are encrypted under; sums across keys are noise.

    Raises:
        Unprocessable: a manifest names another key than the first, other parameters or another length.
    """
    keys = {manifest.key for manifest in manifests.values()}
    if len(keys) != 1:
        raise Unprocessable(f"manifests: expected one key, got {len(keys)}; wrap the epoch's key again")
    for silo, manifest in manifests.items():
        if (manifest.parameters, manifest.vector_length) != (parameters, length):
            raise Unprocessable(
                f"manifest of {silo}: expected {length} elements under {parameters}, got "
                f"{manifest.vector_length} under {manifest.parameters}"
            )
    return keys.pop()
