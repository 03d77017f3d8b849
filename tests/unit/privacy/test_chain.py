"""A chain shows every alteration: of an entry, of the order, of the owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from privacy.canonical import canonical_bytes
from privacy.chain import EMPTY, Entry, next_entry, parse_entry, verify_entries
from privacy.errors import LedgerDamaged
from privacy.identity import SigningKey

KEY = SigningKey.generate()
ORIGIN = "trial/ledger/cleveland/heart"


def chain(length: int, key: SigningKey = KEY, origin: str = ORIGIN) -> list[Entry]:
    entries: list[Entry] = []
    head = EMPTY
    for number in range(length):
        entries.append(next_entry(head, origin, "2026-01-01T00:00:00Z", "reserve", {"round": number}, key))
        head = entries[-1].head
    return entries


def verify(entries: list[Entry]) -> list[Entry]:
    return list(verify_entries(entries, ORIGIN, KEY.verify_key))


def test_an_honest_chain_verifies_and_survives_storage() -> None:
    entries = chain(5)
    assert verify([parse_entry(canonical_bytes(entry)) for entry in entries]) == entries


def _drop_middle(entries: list[Entry]) -> list[Entry]:
    return entries[:2] + entries[3:]


def _swap(entries: list[Entry]) -> list[Entry]:
    return [entries[0], entries[2], entries[1], *entries[3:]]


def _duplicate(entries: list[Entry]) -> list[Entry]:
    return [*entries[:2], entries[1], *entries[2:]]


def _edit(entries: list[Entry]) -> list[Entry]:
    return [*entries[:2], entries[2].model_copy(update={"body": {"round": 99}}), *entries[3:]]


def _edit_last_and_keep_links(entries: list[Entry]) -> list[Entry]:
    return [*entries[:-1], entries[-1].model_copy(update={"body": {"round": 99}})]


def _rewrite_by_another(entries: list[Entry]) -> list[Entry]:
    return chain(len(entries), SigningKey.generate())


def _from_another_chain(entries: list[Entry]) -> list[Entry]:
    return chain(len(entries), origin="trial/ledger/cleveland/other")


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (_drop_middle, "expected entry 2, got entry 3"),
        (_swap, "expected entry 1, got entry 2"),
        (_duplicate, "expected entry 2, got entry 1"),
        (_edit, "entry 2 is not signed by its owner"),
        (_edit_last_and_keep_links, "entry 4 is not signed by its owner"),
        (_rewrite_by_another, "entry 0 is not signed by its owner"),
        (_from_another_chain, "belongs to chain"),
    ],
)
def test_an_altered_chain_is_refused(attack: Callable[[list[Entry]], list[Entry]], message: str) -> None:
    with pytest.raises(LedgerDamaged, match=message):
        verify(attack(chain(5)))


def test_an_entry_moved_behind_a_rewritten_one_does_not_link() -> None:
    honest, rewritten = chain(3), chain(3)
    forged = next_entry(honest[0].head, ORIGIN, "2026-01-01T00:00:01Z", "reserve", {"round": 7}, KEY)
    with pytest.raises(LedgerDamaged, match="entry 2 does not follow the entry before it"):
        verify([honest[0], forged, rewritten[2]])


def test_every_flipped_byte_of_a_stored_entry_is_caught() -> None:
    entries = chain(2)
    raw = canonical_bytes(entries[1])
    for position in range(len(raw)):
        flipped = raw[:position] + bytes([raw[position] ^ 0x01]) + raw[position + 1 :]
        with pytest.raises(LedgerDamaged):
            verify([entries[0], parse_entry(flipped)])
