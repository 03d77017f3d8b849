"""A job's view while rounds come and go: what is remembered of ended rounds is what the database says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregator import job_view
from aggregator.audit_log import AuditLog
from aggregator.job_rows import add_job, budget_refusers, change_job, job_row
from aggregator.job_view import JobViews
from aggregator.store import Store
from privacy.ids import Context, Digest, JobId, PartyId
from privacy.wire.messages import Refusal, RoundResult
from sealsum.job_view import JobView
from tests.federation import Federation

FEDERATION = Federation()
SPEC = FEDERATION.job_spec()
JOB = JobId(SPEC.job)
ME = PartyId("aggregator")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(
        f"sqlite:///{tmp_path}/server.db", AuditLog("f", ME, FEDERATION.key("aggregator")), tmp_path, ()
    )
    with opened.write() as transaction:
        add_job(transaction, JOB, FEDERATION.sign_job(SPEC), SPEC.initial_model)
    yield opened
    opened.close()


def context(number: int) -> Context:
    return Context(Digest(f"{number:064x}"))


def begin(store: Store, number: int) -> None:
    with store.write() as transaction:
        transaction.add_round(context(number), JOB, number, "collecting")
        change_job(transaction, JOB, state="running", round=number)


def refuse(store: Store, number: int, silo: str, rule: str) -> None:
    said = Refusal(silo=silo, rule=rule, sentence="no", expected="e", got="g", remedy="r")
    with store.write() as transaction:
        envelope = FEDERATION.sign(said, "refusal", context(number), silo)
        transaction.add_message(context(number), PartyId(silo), envelope)


def end(store: Store, number: int, *, opened: bool, state: str = "running") -> None:
    result = RoundResult(
        outcome="opened" if opened else "aborted",
        reason=f"round {number}",
        survivors=("silo-1", "silo-2") if opened else (),
        model_in="11" * 32,
        model_out="22" * 32 if opened else None,
        openings=int(opened),
        job_state=state,
    )
    with store.write() as transaction:
        envelope = FEDERATION.sign(result, "result", context(number), "aggregator")
        transaction.add_message(context(number), ME, envelope)
        transaction.set_phase(context(number), "published" if opened else "aborted", duration_ms=number)
        change_job(transaction, JOB, state=state)


def seen(store: Store, views: JobViews) -> dict[str, Any]:
    with store.read() as view:
        return views.of(view, job_row(view, JOB))


def test_a_watcher_sees_at_every_step_what_one_who_comes_new_sees(store: Store) -> None:
    watching = JobViews()

    def agree() -> dict[str, Any]:
        view = seen(store, watching)
        assert view == seen(store, JobViews()) == seen(store, watching)
        return view

    assert agree()["history"] == []
    for number, opened in enumerate((True, False, True), start=1):
        begin(store, number)
        agree()
        refuse(store, number, "silo-3", "plan.rounds")
        assert len(agree()["refusals"]) == number
        end(store, number, opened=opened, state="finished" if number == 3 else "running")
        agree()
    view = agree()
    assert [row["outcome"] for row in view["history"]] == ["opened", "aborted", "opened"]
    assert [row["duration_ms"] for row in view["history"]] == [1, 2, 3]
    assert [row["round"] for row in view["refusals"]] == [1, 2, 3]
    assert view["openings"] == 2


def test_an_ended_round_is_read_once_while_its_job_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    class Counted(RoundResult):
        @classmethod
        def model_validate_json(cls, *args: Any, **kwargs: Any) -> RoundResult:
            read.append("result")
            return RoundResult.model_validate_json(*args, **kwargs)

    monkeypatch.setattr(job_view, "RoundResult", Counted)
    views = JobViews()
    for number in range(1, 6):
        begin(store, number)
        end(store, number, opened=True)
        assert len(seen(store, views)["history"]) == number
    assert len(read) == 5


def test_a_watcher_who_is_told_only_what_is_new_knows_all_the_same(store: Store) -> None:
    views = JobViews()
    with store.read() as view:
        known = JobView.model_validate({**views.of(view, job_row(view, JOB)), "readiness": None})
    for number in range(1, 6):
        begin(store, number)
        refuse(store, number, "silo-3", "plan.rounds")
        for ended in (False, True):
            if ended:
                end(store, number, opened=True)
            with store.read() as view:
                told = views.of(view, job_row(view, JOB), known.last_round)
            assert len(told["history"]) == int(ended), "nothing is told twice"
            assert len(told["refusals"]) == 1
            known = JobView.model_validate(told).following(known)
            whole = JobView.model_validate(seen(store, JobViews()))
            assert known == whole == whole.following(known)


def test_a_view_that_was_given_out_does_not_grow(store: Store) -> None:
    views = JobViews()
    begin(store, 1)
    end(store, 1, opened=True)
    before = seen(store, views)
    begin(store, 2)
    end(store, 2, opened=True)
    assert len(before["history"]) == 1
    assert len(seen(store, views)["history"]) == 2


def test_silos_whose_budget_refused_any_round_are_named_and_others_are_not(store: Store) -> None:
    for number in (1, 2):
        begin(store, number)
        refuse(store, number, f"silo-{number}", "budget.epsilon_job" if number == 2 else "plan.rounds")
        end(store, number, opened=False)
    with store.read() as view:
        assert budget_refusers(view, JOB) == {"silo-2"}
        assert budget_refusers(view, JobId("another")) == frozenset()
