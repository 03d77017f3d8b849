"""A party that is refused all day fills nobody's log: refusals are entered up to a number, then counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from aggregator.refusal_quota import MOST, SPAN_S, RefusalQuota
from privacy.chain import Head
from tests.aggregator_world import on_loop
from tests.attacks.test_rollback_heads import LATER, ROLLED_BACK, Rounds, _rules


def test_refusals_beyond_the_hours_are_counted_and_the_count_is_told_with_the_next() -> None:
    now = [0.0]
    quota = RefusalQuota(lambda: now[0], most=2, span_s=10)
    assert [quota.take("silo-1") for _ in range(5)] == [{}, {}, None, None, None]
    assert quota.take("silo-2") == {}, "one caller's noise hides nobody else's"
    now[0] = 10
    assert [quota.take("silo-1") for _ in range(3)] == [{"left_out": 3}, {}, None]
    assert (MOST, SPAN_S) == (60, 3600)


@pytest.mark.slow
@on_loop
async def test_refused_manifests_do_not_grow_a_log_without_bound(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    assert (await rounds.show(await rounds.open(1), LATER)).status_code == 201
    plan = await rounds.open(2)
    for number in range(MOST + 15):
        assert _rules(await rounds.show(plan, Head(seq=1, hash=f"{number:064x}"))) == [ROLLED_BACK]
    kinds = Counter(entry["kind"] for entry in rounds.log("server-1"))
    assert (kinds["update_refused"], kinds["request_refused"]) == (MOST, MOST)
