"""What an officer signs, in sentences: how a proposed charter differs from the one in force. No screen."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from aggregator.enrolment.chartering import roster_findings
from policies.fields import spoken_value
from policies.findings import PolicyRefusal
from policies.loader import LoadedPolicy, load_threat_model
from policies.strictness import changes
from privacy.canonical import sha256_hex
from privacy.errors import ConfigurationError, SignatureRejected
from privacy.officers import Endorsed, Officers
from privacy.roster import Charter, Member
from privacy.wire.charter import EndorsedCharter, VerifiedCharter, open_charter
from privacy.wire.proposal import read_proposal
from silo_agent.approvals.sentences import on_one_line

FIRST = "There is no charter before this one."


def judged(proposal: EndorsedCharter, in_force: EndorsedCharter | None) -> tuple[str, ...]:
    """What a proposal changes, after what an officer must not have to take on trust:

    (1) the charter in force, if this is not the first, is endorsed, and the proposal names it as its
    predecessor, under officers that follow those; (2) the threat model loads and has the digest named;
    (3) its rules can be kept with this roster.

    Raises:
        ConfigurationError: (1), no charter in force was given, or another. SignatureRejected: (1), (2).
        PolicyInvalid: (2). PolicyRefusal: (3).
    """
    charter, versions = read_proposal(proposal)
    before = _before(charter, proposal, in_force)  # (1)
    policy = load_threat_model(charter.policy_text, charter.policy_parents)  # (2)
    if policy.digest != charter.policy:
        raise SignatureRejected("charter.policy: expected the digest of its policy text, got another")
    findings = list(roster_findings(policy.model, charter.members))  # (3)
    if findings:
        raise PolicyRefusal("charter", findings)
    held = None if before is None else before.charter
    sentences = (
        *_heading(charter, held),
        *_officers(versions[-1], None if before is None else before.officers[-1]),
        *_members(charter, held),
        *_policy(charter, held, policy),
        *_jobs(held),
    )
    # Whoever drew it up chose names of institutions: none of them may erase or add a sentence.
    return tuple(map(on_one_line, sentences))


def endorsed_by(document: Endorsed, officers: Officers) -> str:
    """Who signed a document, and who could still."""
    signed = [name for name in officers.keys if name in document.signatures]
    rest = [name for name in officers.keys if name not in document.signatures]
    others = f"; not signed by {', '.join(rest)}" if rest else ""
    return (
        f"{document.kind}: {len(signed)} of {officers.threshold} signatures needed"
        f" ({', '.join(signed) or 'none'}{others})"
    )


def weak_points(officers: Officers) -> tuple[str, ...]:
    """What is legal, and weaker than it could be."""
    points = []
    if officers.threshold == 1:
        points.append(
            "WEAK: one signature is enough; whoever has one officer's key changes policy and roster."
        )
    if officers.rule_alone:
        points.append(
            f"WEAK: the officers of one institution are enough ({', '.join(officers.rule_alone)}); "
            "it can change the policy without the others."
        )
    return tuple(points)


def _before(
    charter: Charter, proposal: EndorsedCharter, in_force: EndorsedCharter | None
) -> VerifiedCharter | None:
    if charter.previous is None:
        return None
    if in_force is None:
        raise ConfigurationError(
            f"--in-force: expected the charter of epoch {charter.epoch - 1}, which this proposal replaces, "
            "to say what changes; give your own copy, not one that came with the proposal"
        )
    _, versions = read_proposal(in_force)
    before = open_charter(in_force, versions[0].digest, charter.federation)
    if before.charter.digest != charter.previous:
        raise ConfigurationError(
            f"--in-force: expected charter {charter.previous[:16]}…, which this proposal replaces, got "
            f"{before.charter.digest[:16]}… (epoch {before.charter.epoch})"
        )
    if charter.earlier != before.charter.lineage:
        raise ConfigurationError(
            "charter.earlier: expected the ancestors of the charter in force and no others; have the "
            "proposal made again, and sign nothing until you know why it differs"
        )
    if proposal.officers[: len(in_force.officers)] != in_force.officers:
        raise SignatureRejected("officers: expected those in force, and at most one version after them")
    return before


def _heading(charter: Charter, held: Charter | None) -> Iterator[str]:
    yield f"Charter of {charter.federation}, epoch {charter.epoch}, digest {charter.digest}."
    yield FIRST if held is None else f"It replaces epoch {held.epoch}, digest {held.digest}."


def _officers(now: Officers, before: Officers | None) -> Iterator[str]:
    listed = ", ".join(f"{one.name} ({one.legal_entity})" for one in now.officers)
    rule = f"{now.threshold} of {len(now.officers)}: {listed}"
    if before is not None and now.digest == before.digest:
        yield f"Officers stay: {rule}."
    else:
        yield f"Officers become version {now.version}, digest {now.digest}: {rule}."
        gone = [] if before is None else sorted(set(before.keys) - set(now.keys))
        if gone:
            yield f"No longer officers: {', '.join(gone)}."
    yield from weak_points(now)


def _members(charter: Charter, held: Charter | None) -> Iterator[str]:
    old = {} if held is None else {member.id: member for member in held.members}
    new = {member.id: member for member in charter.members}
    for name in sorted(new.keys() - old.keys()):
        yield f"Added: {_described(new[name])}."
    for name in sorted(old.keys() - new.keys()):
        yield f"Removed, its key revoked for good: {_described(old[name])}."
    for name in sorted(new.keys() & old.keys()):
        if new[name] != old[name]:
            fields = [
                field
                for field in type(new[name]).model_fields
                if getattr(new[name], field) != getattr(old[name], field)
            ]
            yield f"Changed ({', '.join(fields)}): {_described(new[name])}."
    if held is not None and new == old:
        yield f"Members stay: {len(new)}."


def _described(member: Member) -> str:
    where = f", {member.url}" if member.url else ""
    sealed = f", sealing key of digest {sha256_hex(member.sealing_key.encode())[:16]}…"
    return (
        f"{member.id}, {member.role} of {member.legal_entity}, run by {member.operator}{where}, "
        f"key {member.verify_key[:16]}…{sealed if member.sealing_key else ''}"
    )


def _policy(charter: Charter, held: Charter | None, policy: LoadedPolicy) -> Iterator[str]:
    """By the values in force, which a parent's text may decide; then by the words."""
    name = policy.model.metadata.name
    if held is not None and held.policy == charter.policy:
        yield f"Threat model stays: {name}, digest {charter.policy}."
        return
    yield f"Threat model becomes {name}, digest {charter.policy}{'.' if held is None else ':'}"
    if held is not None:
        before = load_threat_model(held.policy_text, held.policy_parents)
        for change in changes(before.model, policy.model):
            values = f"{spoken_value(change.before)} → {spoken_value(change.after)}"
            yield f"  {change.verdict} {change.path}: {values}"
        for line in difflib.unified_diff(
            held.policy_text.splitlines(),
            charter.policy_text.splitlines(),
            "before",
            "after",
            lineterm="",
            n=1,
        ):
            yield f"    {line}"


def _jobs(held: Charter | None) -> Iterator[str]:
    if held is None:
        return
    yield "Running jobs end; researchers sign them again."
