"""A log that a person fetches has the root that its checkpoint names, or is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privacy.errors import LedgerDamaged, ProofRejected
from privacy.identity import SigningKey
from sealsum.served_log import assert_whole
from tests.log_book import LogBook


def book(entries: int = 3) -> LogBook:
    log = LogBook("demo", "aggregator", SigningKey.generate())
    for number in range(entries):
        log.add("started", number=number)
    return log


def test_a_whole_log_has_its_checkpoints_head() -> None:
    log = book()
    assert assert_whole(log.served()) == log.head
    assert assert_whole(book(0).served()).size == 0


def test_a_log_that_is_cut_or_of_another_server_is_refused() -> None:
    served = book().served()
    cut = b"".join(served.lines.splitlines(keepends=True)[:-1])
    for lines in (cut, book().served().lines):
        with pytest.raises(ProofRejected, match="3 entries that its checkpoint signs"):
            assert_whole(replace(served, lines=lines))
    with pytest.raises(LedgerDamaged):
        assert_whole(replace(served, lines=served.lines[1:]))
