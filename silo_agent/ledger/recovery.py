"""A ledger that lacks entries gets them back from a copy, or gives them up and counts as spent to its end.

Entries are signed by the silo and chained, so a copy needs no trust: only what this silo signed is taken, in
its order. Two histories are never merged: what either charged stays charged, so such a ledger is written off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from privacy.chain import EMPTY, Entry, Head, WrittenOff, write_off_entry
from privacy.errors import Conflict, LedgerDamaged
from privacy.identity import SigningKey
from privacy.ids import PartyId
from silo_agent.ledger.journal import Journal, stamp
from silo_agent.ledger.ledger import account_of
from silo_agent.ledger.witnessed import Witness


def restore(journal: Journal, given: Sequence[Entry]) -> int:
    """Append those of ``given`` that the journal lacks; returns how many. ``given`` is verified from its
    first entry on. A crash leaves some of them, and the next call takes the rest.

    Raises:
        LedgerDamaged: the copy has another entry where this ledger has one, or breaks the rules of spending.
    """
    account_of(tuple(given))
    for mine, theirs in zip(journal.entries, given, strict=False):
        if mine.hash != theirs.hash:
            raise LedgerDamaged(
                f"{journal.path}: entry {mine.seq}: expected the same in the copy, got another; two copies "
                "of this silo have spent, and neither may be dropped: sealsum silo ledger write-off"
            )
    missing = given[len(journal.entries) :]
    for entry in missing:
        journal.take(entry)
    if journal.holds(journal.kept_head) or journal.kept_head == EMPTY:
        journal.confirm()
    return len(missing)


def unseen(journal: Journal, seen: Iterable[Witness], me: PartyId) -> tuple[Witness, ...]:
    """What somebody has seen and the journal lacks; the silo's own head file is a witness too."""
    own = Witness(me, "", journal.kept_head)
    known = [one for one in (*seen, own) if one.head != EMPTY]
    return tuple(one for one in known if not journal.holds(one.head))


def write_off(
    journal: Journal, lost: Sequence[Witness], origin: str, key: SigningKey, now: datetime
) -> Entry:
    """Give up what is lost: from here on all of the lifetime budget counts as spent.

    Raises:
        Conflict: nothing is lost.
    """
    if not lost:
        raise Conflict(
            f"{journal.path}: expected entries that others have seen and this ledger lacks, got a whole "
            "ledger; there is nothing to write off"
        )
    heads: list[Head] = sorted({one.head for one in lost}, key=lambda head: (head.seq, head.hash))
    given_up = WrittenOff(
        after=journal.head, lost=tuple(heads), witnesses=tuple(sorted({one.server for one in lost}))
    )
    entry = write_off_entry(given_up, origin, stamp(now), key)
    journal.take(entry)
    journal.confirm()
    return entry
