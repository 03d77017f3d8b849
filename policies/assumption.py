"""Whom a threat model assumes hostile, in the words of the protocols with a threshold."""

from __future__ import annotations

from collections.abc import Iterable

from policies.loader import LoadedPolicy
from policies.schema import Spec
from privacy.secagg.pairwise.terms import Assumption, least_threshold


def assumption_of(spec: Spec) -> Assumption:
    """c is the larger of both kinds of collusion; an aggregator trusted not to look is still curious."""
    assumed = spec.assume
    malicious = assumed.aggregator.behaviour == "malicious"
    return Assumption(
        aggregator="malicious" if malicious else "honest_but_curious",
        colluding_silos=max(assumed.aggregator.colludes_with_silos, assumed.silos.max_colluding),
    )


def threshold_for(silos: int, policies: Iterable[LoadedPolicy]) -> int:
    """The smallest t that withstands what every one of the threat models assumes."""
    return max(least_threshold(silos, assumption_of(policy.model.spec)) for policy in policies)
