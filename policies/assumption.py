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
