"""How many bytes of vectors one silo uploads in a round, by a plan's scheme and terms."""

from __future__ import annotations

from privacy.errors import Unprocessable
from privacy.plan import RoundPlan
from privacy.secagg.additive import RING_BYTES
from privacy.secagg.he.framing import Form
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.threshold.parameters import PARAMETERS as JOINT_KEY_PARAMETERS
from privacy.secagg.validity.cut import upload_bytes as share_and_witness_bytes
from privacy.secagg.validity.field import FIELD_BYTES
from privacy.secagg.validity.terms import terms_of
from privacy.secagg.vectors import vectors_of


def upload_bytes(plan: RoundPlan) -> int:
    """The most that a silo uploads of vectors; keys, seeds and manifests are a few kilobytes beside them.

    Ciphertexts are of exact size. A silo that opened their sum may have to upload that too.
    """
    if plan.validity is not None:
        try:
            return share_and_witness_bytes(terms_of(plan))
        except Unprocessable:  # no proof of such terms exists; the rule on them refuses the plan
            return plan.vector_length * FIELD_BYTES
    joint = JOINT_KEY_PARAMETERS.get(plan.he or "")
    if joint is not None:  # two polynomials a ciphertext, and one of the partial decryption
        return -(-plan.vector_length // joint.payload) * 3 * joint.polynomial_bytes
    lengths = vectors_of(plan).lengths.values()
    ring = sum(lengths) * RING_BYTES
    row = PARAMETERS.get(plan.he or "")
    if row is None:
        return ring
    ciphertexts = sum(-(-length // row.payload) for length in lengths)
    return ciphertexts * Form.UPDATE.size(row) + ring
