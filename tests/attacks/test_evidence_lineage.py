"""A charter that skips epochs: it must show that it descends from the one that is held."""

from __future__ import annotations

from typing import Any

import pytest

from privacy.errors import Conflict
from privacy.roster import Charter
from privacy.wire.charter import VerifiedCharter, open_charter, succeed_charter
from tests.federation import Federation


@pytest.fixture
def federation() -> Federation:
    return Federation()


def after(held: Charter, **changes: Any) -> Charter:
    """The charter of the epoch after ``held``, which says where it comes from."""
    follows = {"epoch": held.epoch + 1, "previous": held.digest, "earlier": held.lineage}
    return Charter.model_validate(held.model_dump() | follows | changes)


def verified(federation: Federation, charter: Charter) -> VerifiedCharter:
    return open_charter(federation.endorse(charter), federation.officers.digest, federation.name)


def forked(federation: Federation) -> Charter:
    """Another charter of epoch 2 than ``after`` makes, as officers who deceive would sign it."""
    last = federation.charter.members[-1]
    fewer = tuple(member for member in federation.charter.members if member != last)
    return after(federation.charter, members=fewer, revoked=(last.verify_key,))


def test_a_charter_over_a_skipped_epoch_is_taken_if_it_descends_from_the_one_held(
    federation: Federation,
) -> None:
    held = verified(federation, federation.charter)
    third = after(after(federation.charter))
    fifth = verified(federation, after(after(third)))
    assert succeed_charter(held, fifth) is fifth
    assert succeed_charter(verified(federation, third), fifth) is fifth


@pytest.mark.parametrize("skipped", [1, 2, 5])
def test_a_fork_over_skipped_epochs_is_refused(federation: Federation, skipped: int) -> None:
    """Who holds one charter of epoch 2 is not led to a descendant of the other by leaving out the step at
    which the fork would show."""
    mine = verified(federation, after(federation.charter))
    theirs = forked(federation)
    for _ in range(skipped + 1):
        theirs = after(theirs, members=federation.charter.members[:-1])
    with pytest.raises(Conflict, match=r"charter of epoch 2: .* two charters of that epoch are signed"):
        succeed_charter(mine, verified(federation, theirs))


def test_a_charter_that_hides_the_skipped_epochs_is_refused(federation: Federation) -> None:
    mine = verified(federation, after(federation.charter))
    silent = after(after(after(federation.charter)), earlier=())
    with pytest.raises(Conflict, match=r"charter\.earlier: expected the digests back to epoch 2"):
        succeed_charter(mine, verified(federation, silent))


def test_a_lineage_that_names_another_past_is_refused(federation: Federation) -> None:
    """The next epoch names the charter held, and lies about those before it: somebody else is deceived."""
    mine = verified(federation, after(after(federation.charter)))
    other = (federation.charter.digest, forked(federation).digest)
    lying = after(mine.charter, earlier=other)
    with pytest.raises(Conflict, match=r"charter of epoch 2: .* two charters of that epoch are signed"):
        succeed_charter(mine, verified(federation, lying))


def test_no_charter_names_more_ancestors_than_there_were_epochs(federation: Federation) -> None:
    with pytest.raises(ValueError, match="earlier: expected at most the charters of 1 epochs"):
        after(after(federation.charter), earlier=("ab" * 32, "cd" * 32))


def test_charters_that_name_no_ancestors_keep_their_digests(federation: Federation) -> None:
    assert "earlier" not in federation.charter.model_dump(mode="json")
    assert "earlier" not in after(federation.charter).model_dump(mode="json")
