"""What a threat model says of people and proof: who agrees to a job, who vouches for logs, what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from policies.assumption import colluding_silos, largest_witnessed
from policies.schema import ThreatModel
from policies.sentence import Sentence, spoken


def agreed_and_proven(model: ThreatModel) -> Iterator[Sentence]:
    """Approvals, witnesses, logs and their life."""
    spec = model.spec
    approvals, evidence = spec.require.approvals, spec.evidence
    roles = " or ".join(spoken(role) for role in approvals.roles)
    people = "one of its people has"
    if approvals.n > 1:
        people = f"{approvals.n} of its people, each in another role, have"
    if approvals.automatic == "refused":
        yield Sentence(
            f"A silo takes part in a job only when {people} signed exactly this job, as {roles}; whoever "
            "asked for it does not count.",
            "each silo's agent checks their signatures, under keys that the silo itself has registered",
        )
    witnesses, most = spec.witnesses_needed, largest_witnessed(spec)
    yield Sentence(
        f"In a federation of up to {most} silos, a server that shows two histories of its log is found out: "
        f"{witnesses} silos must have cosigned one before others go on.",
        f"any two sets of {witnesses} then share a silo that does not collude ({colluding_silos(spec)} may)",
    )
    places = (
        "an audit sink" if evidence.sinks_min == 1 else f"one of at least {evidence.sinks_min} audit sinks"
    )
    if evidence.fail_closed:
        yield Sentence(
            f"No party trains on data or opens a sum before {places} of its own has what it logged.",
            "evidence.fail_closed is true; each party keeps to it for itself",
        )
    yield Sentence(
        f"What happened can be proven for {spec.retention.evidence_days} days: logs, ledgers, approvals and "
        "packs are not removed before.",
        "retention.evidence_days; whoever runs a party keeps its disk",
    )


def neither_agreed_nor_proven(model: ThreatModel) -> Iterator[Sentence]:
    """Where witnesses are too few, a rule stands in for people, or nobody else has a log."""
    spec = model.spec
    yield Sentence(
        f"Two histories of a log in a federation of more than {largest_witnessed(spec)} silos, each shown to "
        "silos enough, as long as these do not compare.",
        f"{spec.witnesses_needed} witnesses are asked for (evidence.witnesses_min)",
    )
    if spec.require.approvals.automatic == "allowed":
        yield Sentence(
            "A job that nobody at a silo has looked at: a silo's written rule may say yes for a person.",
            "require.approvals.automatic is allowed",
        )
    if not spec.evidence.fail_closed:
        yield Sentence(
            "A party whose audit sinks take nothing: it goes on, and only its own disk knows what it did.",
            "evidence.fail_closed is false, for synthetic data only",
        )
