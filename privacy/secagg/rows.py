"""Which row of encryption parameters follows from scheme, vectors and roster: derived, never chosen."""

from __future__ import annotations

from privacy.plan import HE_SCHEMES, JobSpec, RoundPlan, SchemeName, VectorTerms
from privacy.secagg.he.parameters import largest_element
from privacy.secagg.he.parameters import row_for as one_key_row_for
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES, threshold_row_for


def row_for(scheme: SchemeName, terms: VectorTerms, contributors: int) -> str | None:
    """The name of the row; ``None`` for a scheme that does not encrypt.

    Raises:
        Unprocessable: no row of the scheme carries the worst sum of so many silos.
    """
    if scheme not in HE_SCHEMES:
        return None
    row = threshold_row_for if scheme in JOINT_KEY_SCHEMES else one_key_row_for
    return row(scheme, terms, contributors)


def row_of(signed: JobSpec | RoundPlan, contributors: int) -> str | None:
    """The one row under which all of a round's vectors travel: the one for the largest elements.

    Raises:
        Unprocessable: as ``row_for``.
    """
    vectors = (signed.vector, *(vector.terms for vector in signed.further))
    return row_for(signed.scheme, max(vectors, key=largest_element), contributors)
