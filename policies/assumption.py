"""Whom a threat model assumes hostile, in the words of the protocols with a threshold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from policies.schema import Spec
from privacy.secagg.pairwise.terms import Assumption, least_threshold

if TYPE_CHECKING:  # the loader's own rules ask this module
    from policies.loader import LoadedPolicy


def colluding_silos(spec: Spec) -> int:
    """c: the larger of both kinds of collusion, with the aggregator and among silos."""
    return max(spec.assume.aggregator.colludes_with_silos, spec.assume.silos.max_colluding)


def assumption_of(spec: Spec) -> Assumption:
    """An aggregator that is trusted not to look is still curious."""
    malicious = spec.assume.aggregator.behaviour == "malicious"
    return Assumption("malicious" if malicious else "honest_but_curious", colluding_silos(spec))


def threshold_for(silos: int, policies: Iterable[LoadedPolicy]) -> int:
    """The smallest t that withstands what every one of the threat models assumes."""
    return max(least_threshold(silos, assumption_of(policy.model.spec)) for policy in policies)


def largest_witnessed(spec: Spec) -> int:
    """The most silos of a federation in which two histories of a log cannot both find enough witnesses.

    Each history needs w of n; c colluders cosign both. Two sets of w share more than c silos, so an honest
    one, only if 2w > n + c: a quorum as in Byzantine agreement.
    """
    return 2 * spec.witnesses_needed - colluding_silos(spec) - 1
