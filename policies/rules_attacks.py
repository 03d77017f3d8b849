"""Before a model goes to a researcher: have attacks on its job been tried, and come out as they must?

``require.attack_suite`` asks for it. Whoever asked for the job does not vouch for it, and a violation that
anybody has found stands until that member has found otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from policies.findings import Finding
from policies.loader import LoadedPolicy
from policies.schema import ThreatModel
from privacy.ids import Digest, PartyId
from privacy.roster import Charter
from privacy.wire.attack_results import AttackResult
from privacy.wire.envelope import Verified

SUITES: Final = ("none", "quick", "full")
"""From the least to the most."""
_CLOCKS_DIFFER: Final = timedelta(hours=1)


@dataclass(frozen=True)
class Attacked:
    """A job whose model somebody asks for, and what members have signed about attacks on it."""

    job: Digest
    requested_by: PartyId
    model: Digest
    results: tuple[Verified[AttackResult], ...]
    now: datetime


def attack_findings(policy: LoadedPolicy, charter: Charter, attacked: Attacked) -> Iterator[Finding]:
    """Whether the model may go out:

    (1) results count if they are of this job and its last model, signed by a silo or by a researcher who did
    not ask for the job; (2) none of these says that an attack came out otherwise than it must; (3) one at
    least is of the suite asked for or more, and no older than ``attack_suite_days``.
    """
    asked = policy.model.spec.require
    if asked.attack_suite == "none":
        return
    # (1)
    ours = [
        one
        for one in attacked.results
        if (one.context, one.message.job_digest, one.message.model)
        == (attacked.job, attacked.job, attacked.model)
        and one.sender != attacked.requested_by
        and charter.member(one.sender).role in ("silo", "researcher")
    ]
    # (2)
    bad = sorted(one.sender for one in ours if not one.message.passed)
    if bad:
        yield Finding(
            "attacks_not_as_claimed",
            "an attack on this job came out otherwise than is claimed, so its model stays where it is",
            "results of attacks in which all came out as they must",
            f"others by {', '.join(bad)}",
            "see what they found; the model goes out once they have found otherwise",
        )
    # (3)
    oldest = attacked.now - timedelta(days=asked.attack_suite_days)
    enough = SUITES[SUITES.index(asked.attack_suite) :]
    fresh = [
        one
        for one in ours
        if one.message.suite in enough and oldest <= one.message.when <= attacked.now + _CLOCKS_DIFFER
    ]
    if not fresh:
        yield Finding(
            "attacks_not_tried",
            "before its model goes to a researcher, somebody who did not ask for the job attacks it",
            f"results of suite {asked.attack_suite} on this job and model, at most {asked.attack_suite_days} "
            "days old, signed by a silo or another researcher",
            f"{len(ours)} results on this job and model, none of them",
            "have one of them run: sealsum audit attack --job NAME --state DIR",
        )


def never_attacked(policy: LoadedPolicy, attacked: Sequence[Attacked]) -> Iterator[Finding]:
    """A model that no finished job ended with, such as one between two rounds, is attacked by nobody."""
    if policy.model.spec.require.attack_suite != "none" and not attacked:
        yield Finding(
            "attacks_of_no_job",
            "attacks are tried on a finished job and the model that it ended with",
            "the last model of a finished job",
            "a model that no finished job ended with",
            "wait for the end of the job, and ask for its last model",
        )


def attacks_released_by(federation: ThreatModel, own: ThreatModel) -> Iterator[Finding]:
    """The aggregator goes by the federation's threat model: a silo that asks for more takes no part."""
    theirs, ours = federation.spec.require, own.spec.require
    if ours.attack_suite == "none":
        return
    fewer = SUITES.index(theirs.attack_suite) < SUITES.index(ours.attack_suite)
    older = theirs.attack_suite_days > ours.attack_suite_days
    if fewer or older:
        yield Finding(
            "attacks_not_asked_for",
            "the model would go out with fewer or older attacks tried on it than this silo asks for",
            f"require.attack_suite: {ours.attack_suite}, within {ours.attack_suite_days} days",
            f"the federation's {theirs.attack_suite}, within {theirs.attack_suite_days} days",
            "have the officers ask for it in the federation's, or ask for less in the silo's own",
        )
