"""What a threat model may ask of evidence and approvals: what can be met, and proves something."""

from __future__ import annotations

from collections.abc import Iterator

from policies.assumption import colluding_silos
from policies.findings import Finding
from policies.schema import ThreatModel


def witnesses_outnumber_colluders(model: ThreatModel) -> Iterator[Finding]:
    """Silos that collude with a server cosign whatever it shows, so at least one more has to."""
    asked, colluding = model.spec.evidence.witnesses_min, colluding_silos(model.spec)
    if asked is not None and asked <= colluding:
        yield Finding(
            "witnesses_may_all_collude",
            "silos that collude with the aggregator cosign the history that it shows them alone",
            f"evidence.witnesses_min of at least {colluding + 1} (colluding silos + 1)",
            str(asked),
            f"raise evidence.witnesses_min to {colluding + 1}, or leave it out",
        )


def witnesses_reachable(model: ThreatModel) -> Iterator[Finding]:
    """The smallest cohort that may be opened must be able to witness its own round."""
    asked, minimum = model.spec.evidence.witnesses_min, model.spec.limits.min_silos_open
    if asked is not None and asked > minimum:
        yield Finding(
            "witnesses_beyond_cohort",
            "the smallest cohort allowed has fewer silos than must witness, so its rounds would never go on",
            f"evidence.witnesses_min of at most {minimum} (limits.min_silos_open)",
            str(asked),
            "lower evidence.witnesses_min, or raise limits.min_silos_open",
        )


def open_failure_only_for_synthetic(model: ThreatModel) -> Iterator[Finding]:
    """A party that goes on while nobody else has its log may lose with one disk what it did."""
    if not model.spec.evidence.fail_closed and model.spec.data_class != "synthetic":
        yield Finding(
            "uncopied_on_real_data",
            "with fail_closed: false a party trains and opens while no audit sink has what it logged",
            "evidence.fail_closed: true, or data_class: synthetic",
            f"fail_closed: false, data_class: {model.spec.data_class}",
            "remove the line fail_closed: false",
        )


def several_approvers_are_people(model: ThreatModel) -> Iterator[Finding]:
    """Two approvers are asked for so that two people look; a rule that answers for them is none."""
    approvals = model.spec.require.approvals
    if approvals.n > 1 and approvals.automatic == "allowed":
        yield Finding(
            "approvers_replaced_by_rule",
            "several people are to look at a job, and a silo's rule may stand in for all of them",
            "require.approvals: n: 1 with automatic: allowed, or automatic: refused",
            f"n: {approvals.n}, automatic: allowed",
            "write automatic: refused",
        )


def approvers_have_roles(model: ThreatModel) -> Iterator[Finding]:
    """Approvals count by role: the same office twice is one pair of eyes (``silo_agent.approvals``)."""
    approvals = model.spec.require.approvals
    if approvals.n > len(approvals.roles):
        yield Finding(
            "approvers_beyond_roles",
            "each approval of a job comes from another role, so no job could ever be approved",
            f"at least {approvals.n} roles in require.approvals.roles, or a smaller n",
            f"n: {approvals.n}, roles: [{', '.join(approvals.roles)}]",
            "name further roles, or lower require.approvals.n",
        )
