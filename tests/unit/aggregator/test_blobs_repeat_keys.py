"""Answers under an ``Idempotency-Key`` are kept for a day, and closed to whoever lacks the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag

from aggregator.operators.repeats import KEPT_S, RepeatKey, answered_before, remember
from privacy.errors import MalformedMessage, Unprocessable
from privacy.ids import Digest
from tests.aggregator_world import World

KEY = RepeatKey("0123456789abcdef0123456789abcdef")
CALL = Digest("ab" * 32)


def test_an_answer_is_the_same_for_a_day_and_then_the_call_is_new(tmp_path: Path) -> None:
    store = World(tmp_path).servers["server-0"].store
    with store.write() as transaction:
        remember(transaction, KEY, CALL, b"answer", now=1000)
    with store.read() as view:
        assert answered_before(view, KEY, CALL, 1000 + KEPT_S - 1) == b"answer"
        assert answered_before(view, KEY, CALL, 1000 + KEPT_S) is None
        assert answered_before(view, RepeatKey("f" * 32), CALL, 1000) is None
        with pytest.raises(Unprocessable, match="another call was made under it"):
            answered_before(view, KEY, Digest("cd" * 32), 1000)
    with store.write() as transaction:
        remember(transaction, KEY, CALL, b"anew", now=1000 + KEPT_S)
    with store.read() as view:
        assert answered_before(view, KEY, CALL, 1000 + KEPT_S) == b"anew"


def test_what_is_stored_opens_under_no_other_key(tmp_path: Path) -> None:
    store = World(tmp_path).servers["server-0"].store
    with store.write() as transaction:
        remember(transaction, KEY, CALL, b"answer", now=1000)
        other = RepeatKey("f" * 32)
        transaction.connection.exec_driver_sql("UPDATE repeats SET key = ?", (other.name,))
    with store.read() as view, pytest.raises(InvalidTag):
        answered_before(view, other, CALL, 1000)


@pytest.mark.parametrize("header", ["", "a", '"short"', "0" * 32, '"' + "0" * 65 + '"', '"' + "é" * 32 + '"'])
def test_a_key_that_can_be_guessed_or_read_in_two_ways_is_refused(header: str) -> None:
    with pytest.raises(MalformedMessage, match="expected 32 to 64 letters"):
        RepeatKey.of_header(header)


def test_a_key_is_not_shown() -> None:
    assert KEY.text not in repr(KEY)
    assert RepeatKey.of_header(f'"{KEY.text}"') == KEY
    assert RepeatKey.of_header(None) is None
