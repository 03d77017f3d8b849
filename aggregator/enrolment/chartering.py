"""Which rosters a federation's policy can be kept with, and the members that the register makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import ValidationError

from aggregator.enrolment.register import RegisteredParty
from policies.findings import Finding
from policies.schema import ThreatModel
from privacy.errors import ConfigurationError
from privacy.roster import Member
from privacy.secagg.pairwise.terms import MAX_SILOS


def roster_findings(policy: ThreatModel, members: Sequence[Member]) -> Iterator[Finding]:
    """Why this roster can never run a round under this policy; empty if it can."""
    by_role = {
        role: [member for member in members if member.role == role]
        for role in ("silo", "aggregator", "share_server", "researcher")
    }
    servers, silos = by_role["share_server"], by_role["silo"]
    assumed, minimum = policy.spec.assume.share_servers, policy.spec.limits.min_silos_open
    count, scheme = (0 if assumed is None else assumed.count), policy.spec.require.secagg.scheme
    if len(by_role["aggregator"]) != 1:
        yield Finding(
            "roster.aggregator",
            "A federation has one aggregator.",
            "1 party with role aggregator",
            str(len(by_role["aggregator"])),
            "invite and enrol the aggregator",
        )
    if not by_role["researcher"]:
        yield Finding(
            "roster.researcher",
            "Without a researcher nobody may sign a job.",
            "at least 1 party with role researcher",
            "0",
            "invite and enrol a researcher",
        )
    if len(servers) != count:
        yield Finding(
            "roster.share_servers",
            "The policy's collusion bound is stated for a number of share servers."
            if count
            else f"With {scheme} the aggregator is the one server; a share server would hold nothing.",
            f"{count} share servers (assume.share_servers.count)" if count else f"none with {scheme}",
            str(len(servers)),
            f"{'enrol that many' if count else 'leave them out'}, or change the policy",
        )
    if (
        assumed is not None
        and assumed.distinct_operators
        and len({server.operator for server in servers}) != len(servers)
    ):
        yield Finding(
            "roster.operators",
            "Two share servers of one operator are one: together they open each update.",
            "a different operator for each share server",
            ", ".join(f"{server.id}: {server.operator}" for server in servers),
            "let another institution run one of them",
        )
    if scheme == "pairwise" and len(silos) > MAX_SILOS:
        yield Finding(
            "roster.silos_beyond_scheme",
            "With pairwise every silo agrees on a mask with every other.",
            f"at most {MAX_SILOS} silos",
            str(len(silos)),
            "enrol fewer silos, or choose another scheme",
        )
    entities = (
        {silo.legal_entity for silo in silos}
        if policy.spec.assume.silos.distinct_legal_entities
        else {silo.id for silo in silos}
    )
    if len(entities) < minimum:
        yield Finding(
            "roster.silos",
            "Too few institutions for the smallest sum that may be opened.",
            f"at least {minimum} (limits.min_silos_open)",
            str(len(entities)),
            "enrol more silos of other institutions",
        )


def members_of(parties: Iterable[RegisteredParty]) -> tuple[Member, ...]:
    """The enrolled among them as a charter lists them.

    Raises:
        ConfigurationError: one that no charter can hold.
    """
    try:
        return tuple(
            Member(
                id=party.party,
                role=party.role,
                legal_entity=party.legal_entity,
                operator=party.operator,
                verify_key=party.verify_key,
                sealing_key=party.sealing_key,
                url=party.url,
            )
            for party in parties
            if party.verify_key is not None
        )
    except ValidationError as error:
        raise ConfigurationError(f"register: {error.errors(include_url=False)[0]['msg']}") from error
