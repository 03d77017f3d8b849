"""From the register to a charter in force: propose it, let officers endorse it, adopt it. Makes no key.

A proposal is a charter file without signatures. Only ``seal_charter``, for a federation whose one officer's
key lies in the authority's directory, does all three at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from aggregator.enrolment.authority import Authority
from aggregator.enrolment.chartering import members_of, roster_findings
from policies.findings import PolicyRefusal
from policies.loader import LoadedPolicy
from privacy.errors import ConfigurationError
from privacy.officers import Endorsed, Officers, check_names_stay, unsigned
from privacy.roster import Charter, Member
from privacy.wire.charter import EndorsedCharter, VerifiedCharter, open_charter, succeed_charter
from privacy.wire.proposal import assemble, endorse


@dataclass(frozen=True)
class Change:
    """What the next charter is to change besides what the register says."""

    policy: LoadedPolicy | None = None
    """Another threat model; ``None`` keeps the authority's."""
    remove: Collection[str] = ()
    """Members who leave; their keys are revoked."""
    officers: Officers | None = None
    """The next version of the officers; ``None`` keeps those in force."""
    drop_pending: bool = False


def propose_charter(authority: Authority, change: Change) -> EndorsedCharter:
    """The next epoch's charter, for officers to look at and endorse, after these checks:

    (1) no invitation is outstanding, unless they are dropped; (2) who is to leave is there; (3) the roster is
    one that the policy can be kept with; (4) new officers follow those in force; (5) the charter in force,
    if there is one, still holds, and this one follows it: every key that leaves is revoked.

    Raises:
        ConfigurationError: (1), (2), (4), or a member no charter can hold. PolicyRefusal: (3), with all
            findings. SignatureRejected: (5).
    """
    parties = authority.register.parties()
    pending = [party.party for party in parties if party.enrolled_at is None]
    # (1)
    if pending and not change.drop_pending:
        raise ConfigurationError(
            f"pending invitations: {', '.join(pending)}; wait for them, or add --drop-pending to void them"
        )
    # (2)
    strangers = sorted(set(change.remove) - {party.party for party in parties})
    if strangers:
        known = ", ".join(sorted(party.party for party in parties))
        raise ConfigurationError(
            f"--remove: expected parties that are enrolled ({known}), got {', '.join(strangers)}"
        )
    # (3)
    policy = change.policy or authority.policy()
    members = members_of(party for party in parties if party.party not in change.remove)
    findings = list(roster_findings(policy.model, members))
    if findings:
        raise PolicyRefusal("charter", findings)
    # (4)
    officers = _officers(authority, change.officers)
    in_force = change.officers or authority.officers_in_force()
    # (5)
    before = authority.in_force()
    try:
        charter = _charter(authority.federation, before, members, policy, in_force)
    except ValidationError as error:
        raise ConfigurationError(f"charter: {error.errors(include_url=False)[0]['msg']}") from error
    if change.drop_pending:
        authority.register.drop_pending()
    return EndorsedCharter(officers=officers, charter=unsigned(charter, "charter", authority.federation))


def adopt_charter(authority: Authority, endorsed: EndorsedCharter) -> VerifiedCharter:
    """Put an endorsed charter in force at the registrar; who left is struck from the register.

    Raises:
        SignatureRejected: too few officers, or others, have signed; the message names who is missing.
        OutOfOrder, Conflict: it does not follow the charter in force.
    """
    offered = open_charter(endorsed, authority.card.officers, authority.federation)
    before = authority.in_force()
    verified = succeed_charter(before, offered)
    if verified is not before:
        authority.store_charter(endorsed)
        authority.store_policy(verified.charter.policy_text, verified.charter.policy_parents)
        authority.register.forget_keys(verified.charter.revoked)
    return verified


def seal_charter(authority: Authority, drop_pending: bool) -> Charter:
    """Propose, sign and adopt the next charter, where one officer is enough and her key lies here.

    Raises:
        ConfigurationError: the key is elsewhere, or one officer is not enough. Else as ``propose_charter``.
    """
    officers, key = authority.officers_in_force(), authority.officer()
    if officers.threshold != 1:
        raise ConfigurationError(
            f"officers: expected {officers.threshold} signatures, and one key lies here; use "
            "'sealsum federation propose', 'sealsum officer sign' and 'sealsum federation endorse'"
        )
    proposal = propose_charter(authority, Change(drop_pending=drop_pending))
    return adopt_charter(authority, assemble(proposal, [endorse(proposal, key)])).charter


def _officers(authority: Authority, following: Officers | None) -> Sequence[Endorsed]:
    chain = authority.officers()
    if following is None:
        return chain
    held = authority.officers_in_force()
    if (following.federation, following.version) != (authority.federation, held.version + 1):
        raise ConfigurationError(
            f"officers: expected version {held.version + 1} of {authority.federation}, "
            f"got version {following.version} of {following.federation}"
        )
    check_names_stay(held, following)
    return (*chain, unsigned(following, "officers", authority.federation))


def _charter(
    federation: str,
    before: VerifiedCharter | None,
    members: tuple[Member, ...],
    policy: LoadedPolicy,
    officers: Officers,
) -> Charter:
    held = None if before is None else before.charter
    keys = {member.verify_key for member in members}
    left = set() if held is None else {member.verify_key for member in held.members} - keys
    return Charter(
        federation=federation,
        epoch=1 if held is None else held.epoch + 1,
        previous=None if held is None else held.digest,
        earlier=() if held is None else held.lineage,
        officers=officers.digest,
        members=members,
        revoked=() if held is None else tuple(sorted(left | set(held.revoked))),
        policy=policy.digest,
        policy_text=policy.text,
        policy_parents=policy.parents,
    )
