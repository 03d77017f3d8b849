"""What a threat model says of people and proof: who agrees to a job, who vouches for logs, what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from policies.assumption import colluding_silos
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
    witnesses = spec.witnesses_needed
    yield Sentence(
        f"A server that shows silos two histories of its log is found out: {witnesses} silos must have "
        "cosigned one history before others go on.",
        f"at least {witnesses - colluding_silos(spec)} of these {witnesses} are honest, and keep what they "
        "have cosigned",
    )
    places = "its log" if evidence.sinks_min == 1 else f"its log, in {evidence.sinks_min} places"
    if evidence.fail_closed:
        yield Sentence(
            f"No party goes on unrecorded: one that cannot write {places}, stops.",
            "evidence.fail_closed is true; each party keeps to it for itself",
        )
    yield Sentence(
        f"What happened can be proven for {spec.retention.evidence_days} days: logs, ledgers, approvals and "
        "packs are not removed before.",
        "retention.evidence_days; whoever runs a party keeps its disk",
    )


def neither_agreed_nor_proven(model: ThreatModel) -> Iterator[Sentence]:
    """Where a rule stands in for people, and where a party may go on without its log."""
    spec = model.spec
    if spec.require.approvals.automatic == "allowed":
        yield Sentence(
            "A job that nobody at a silo has looked at: a silo's written rule may say yes for a person.",
            "require.approvals.automatic is allowed",
        )
    if not spec.evidence.fail_closed:
        yield Sentence(
            "A party whose log cannot be written: it goes on, unrecorded.",
            "evidence.fail_closed is false, for synthetic data only",
        )
