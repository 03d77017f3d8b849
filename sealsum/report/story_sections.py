"""Sections of a report on what happened: rounds, who took part and who did not, approvals, and the policy."""

from __future__ import annotations

from policies.explain import explain
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model
from policies.sentence import Sentence
from sealsum.report.document import Block, Bullets, Paragraph, Section, Table
from sealsum.report.facts import Facts, RoundFact

_MOST_ROWS = 60
"""Rounds listed one by one; a job of thousands has them in the pack."""


def rounds(facts: Facts) -> Section:
    """Each round: outcome, openings, the silos in the sum, and who signed that set."""
    if not facts.rounds:
        return Section("Rounds", (Paragraph("The job has had no round yet."),))
    first = _MOST_ROWS if len(facts.rounds) <= _MOST_ROWS else _MOST_ROWS // 2
    listed = facts.rounds[:first]
    if len(facts.rounds) > _MOST_ROWS:
        listed += facts.rounds[-(_MOST_ROWS - first) :]
    table = Table(
        f"Rounds ({len(listed)} of {len(facts.rounds)}; all are in rounds/)",
        ("round", "outcome", "sums", "in the sum", "not in it", "set signed by", "reason"),
        tuple(_row(one) for one in listed),
        (8, 11, 7, 22, 16, 20, 16),
        frozenset((2,)),
    )
    chain = Paragraph(
        "Each round starts from the model that the last opened round published, by digest; no sum is "
        "opened twice. The "
        "verifier checks both.",
        quiet=True,
    )
    return Section("Rounds", (table, chain))


def _row(one: RoundFact) -> tuple[str, ...]:
    missing = sorted(set(one.invited) - set(one.survivors)) if one.survivors else list(one.invited)
    return (
        str(one.number),
        one.outcome,
        str(one.openings),
        _names(one.survivors),
        _names(missing),
        _names(one.signers),
        one.reason or "–",
    )


def _names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) or "–"


def who_took_part(facts: Facts) -> Section:
    """Every party by role and institution; each silo's rounds, dropouts and refusals."""
    blocks: list[Block] = [
        Table(
            f"Parties of federation {facts.federation}, charter of epoch {facts.epoch}",
            ("party", "role", "institution", "operator"),
            tuple((m.id, m.role.replace("_", " "), m.legal_entity, m.operator) for m in facts.members),
            (22, 18, 32, 28),
        )
    ]
    silos = [member.id for member in facts.members if member.role == "silo"]
    counted = tuple(
        (
            silo,
            str(sum(silo in one.invited for one in facts.rounds)),
            str(sum(silo in one.survivors for one in facts.rounds)),
            str(sum(_dropped(silo, one) for one in facts.rounds)),
            str(sum(silo in {r.silo for r in one.refusals} for one in facts.rounds)),
        )
        for silo in silos
    )
    blocks.append(
        Table(
            "Silos, in rounds; one that neither sent an update nor refused dropped out",
            ("silo", "invited", "in a sum", "dropped out", "refused"),
            counted,
            (32, 17, 17, 17, 17),
            frozenset(range(1, 5)),
        )
    )
    refused = tuple(
        (str(one.number), r.silo, r.rule, r.sentence, f"expected {r.expected}, got {r.got}; {r.remedy}")
        for one in facts.rounds
        for r in one.refusals
    )
    if refused:
        blocks.append(
            Table(
                "Refusals, with the rule and why",
                ("round", "silo", "rule", "why", "expected, got, remedy"),
                refused[:_MOST_ROWS],
                (8, 14, 18, 30, 30),
            )
        )
    return Section("Who took part, who dropped out, who refused", tuple(blocks))


def _dropped(silo: str, one: RoundFact) -> bool:
    refused = {refusal.silo for refusal in one.refusals}
    return silo in one.invited and silo not in one.sent and silo not in refused


def approvals(facts: Facts) -> Section:
    """Who at each silo approved or rejected the job, in time order."""
    if not facts.approvals:
        return Section(
            "Approvals",
            (
                Paragraph(
                    "No silo has handed over its approvals (sealsum silo export); none are in this pack."
                ),
            ),
        )
    return Section(
        "Approvals, in order of time",
        (
            Table(
                "Decisions on exactly this job, each signed by the person's own key (silos/)",
                ("at", "silo", "decision", "by", "role", "until", "reason"),
                tuple(
                    (
                        _spaced(a.at),
                        a.silo,
                        a.decision,
                        a.by or "withheld",
                        a.role.replace("_", " "),
                        _spaced(a.expires_at),
                        a.reason or "–",
                    )
                    for a in facts.approvals
                ),
                (16, 14, 11, 15, 14, 16, 14),
            ),
        ),
    )


def policy(facts: Facts) -> tuple[Section, ...]:
    """The threat model in sentences: what it protects, what it does not, and what each rests on."""
    intro = Paragraph(f"Policy digest {facts.policy_digest}, text in policy/policy.yaml.", quiet=True)
    try:
        explained = explain(load_threat_model(facts.policy_text, facts.policy_parents).model)
    except PolicyInvalid:
        told = Paragraph("This version of Sealsum cannot read the policy; its text is in policy/policy.yaml.")
        return (Section("The policy", (intro, told)),)
    protects = Section(
        f"What the policy {explained.name} protects", (intro, Bullets(tuple(map(_told, explained.protects))))
    )
    does_not = Section(
        "What the policy does not protect against", (Bullets(tuple(map(_told, explained.does_not))),)
    )
    return protects, does_not


def _told(sentence: Sentence) -> str:
    return f"{sentence.text} Rests on: {sentence.rests_on}."


def _spaced(instant: str) -> str:
    """An instant with a space between date and time, at which a narrow column may break."""
    return instant.replace("T", " ")
