"""The charter as it travels: endorsed by the officers in force, with the documents that prove who they are.

One file holds all of it, so that nobody can show the officers of one time with the charter of another
(ADR 0019). Officers are no members of the roster: a roster cannot vouch for its own authors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, ValidationError

from privacy.canonical import Frozen, parse_canonical
from privacy.errors import Conflict, MalformedMessage, OutOfOrder, SignatureRejected
from privacy.ids import Digest
from privacy.officers import Endorsed, Officers, check_endorsed, follow_officers, read_body
from privacy.roster import Charter
from privacy.wire.envelope import first_fault

MAX_CHARTER_BYTES = 8 << 20


class EndorsedCharter(Frozen):
    """``charter.json``: all versions of the officers, oldest first, and the charter that the last endorse."""

    officers: Annotated[tuple[Endorsed, ...], Field(min_length=1)]
    charter: Endorsed


@dataclass(frozen=True)
class VerifiedCharter:
    """A charter whose endorsement has been checked from the pinned officers on."""

    charter: Charter
    officers: tuple[Officers, ...]
    """All versions; the last one is in force."""
    endorsed: EndorsedCharter


def parse_charter(raw: bytes) -> EndorsedCharter:
    """Decode a charter file; nothing in it is believed yet.

    Raises:
        MalformedMessage: over 8 MiB, not canonical JSON, or not an endorsed charter.
    """
    try:
        return EndorsedCharter.model_validate(parse_canonical(raw, MAX_CHARTER_BYTES))
    except ValidationError as error:
        raise MalformedMessage(f"charter file: {first_fault(error)}") from error


def open_charter(endorsed: EndorsedCharter, pinned: Digest, federation: str) -> VerifiedCharter:
    """Believe a charter, after these checks:

    (1) the officers follow, version by version, from those pinned at enrolment; (2) enough officers of the
    *last* version signed it for this federation: what older officers have signed is void; (3) the body
    names the same federation, and the officers who signed; (4) no officer's key is a member's: a machine
    that is broken into must not be able to sign charters.

    Raises:
        SignatureRejected: (1) to (4). OutOfOrder, Conflict: (1). MalformedMessage: not a charter.
    """
    # (1)
    officers = follow_officers(endorsed.officers, pinned, federation)
    # (2)
    check_endorsed(endorsed.charter, "charter", federation, officers[-1:])
    charter = read_body(endorsed.charter, Charter)
    # (3)
    if charter.federation != federation:
        raise SignatureRejected(f"charter.federation: expected {federation}, got {charter.federation}")
    if charter.officers != officers[-1].digest:
        raise SignatureRejected(
            f"charter.officers: expected {officers[-1].digest[:16]}… (version {officers[-1].version}), "
            f"got {charter.officers[:16]}…"
        )
    # (4)
    both = set(officers[-1].keys.values()) & {member.verify_key for member in charter.members}
    if both:
        raise SignatureRejected(
            "charter: an officer's key is a member's too; make the officer a key of her own"
        )
    return VerifiedCharter(charter, officers, endorsed)


def succeed_charter(held: VerifiedCharter | None, offered: VerifiedCharter) -> VerifiedCharter:
    """The charter to hold from now on: a party never returns to an older roster, or to older officers.

    An old charter, validly signed once, may list a member who has been expelled since. Checks:
    (1) the officers held are among those offered; (2) the epoch is not lower; (3) of the same epoch there
    is one charter; (4) a later epoch names the one held among its ancestors, and the same ones before it, so
    that two charters of one epoch come to light also afterwards, and over epochs that were missed; (5) a
    revoked key stays revoked, and each that left the roster is.

    Raises:
        OutOfOrder: (1) fewer versions, (2). Conflict: (1) others, (3) to (5).
    """
    if held is None:
        return offered
    # (1)
    before, after = _digests(held), _digests(offered)
    if after[: len(before)] != before:
        if before[: len(after)] == after:
            raise OutOfOrder(
                f"officers.version: expected {len(before)} or later, got {len(after)}; officers who were "
                "replaced are never taken back"
            )
        raise Conflict("officers: two different versions are endorsed; ask an officer which one holds")
    mine, theirs = held.charter, offered.charter
    # (2)
    if theirs.epoch < mine.epoch:
        raise OutOfOrder(
            f"charter.epoch: expected {mine.epoch} or later, got {theirs.epoch}; "
            "an older charter is never taken back"
        )
    # (3)
    if theirs.epoch == mine.epoch:
        if theirs.digest != mine.digest:
            raise Conflict(
                f"charter: two different ones are signed for epoch {mine.epoch}; ask the officers which holds"
            )
        return held
    # (4)
    _check_descent(mine, theirs)
    # (5)
    gone = {member.verify_key for member in mine.members} - {member.verify_key for member in theirs.members}
    if not gone | set(mine.revoked) <= set(theirs.revoked):
        raise Conflict(
            "charter.revoked: expected every key that was revoked or left the roster; ask the officers"
        )
    return offered


def _check_descent(mine: Charter, theirs: Charter) -> None:
    """Whether two charters have one past, by the ancestors that the later one names.

    Raises:
        Conflict: another charter of an epoch that both know; or the later one does not reach back so far.
    """
    missed = theirs.epoch - mine.epoch
    if len(theirs.lineage) < missed:
        raise Conflict(
            f"charter.earlier: expected the digests back to epoch {mine.epoch} (held here), got "
            f"{len(theirs.lineage)} before epoch {theirs.epoch}; bring the charters in between, one by one"
        )
    ours = (*mine.lineage, mine.digest)
    shown = theirs.lineage[: len(theirs.lineage) - missed + 1]
    for back, (here, there) in enumerate(zip(reversed(ours), reversed(shown), strict=False)):
        if here != there:
            raise Conflict(
                f"charter of epoch {mine.epoch - back}: expected {here[:16]}… (held here) among the "
                f"ancestors of epoch {theirs.epoch}, got {there[:16]}…: two charters of that epoch are "
                "signed; ask the officers"
            )


def _digests(verified: VerifiedCharter) -> list[Digest]:
    return [officers.digest for officers in verified.officers]
