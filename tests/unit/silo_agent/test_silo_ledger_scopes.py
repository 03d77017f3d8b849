"""Several datasets, spans of time, ways of composing: each bound is counted apart, none resets another."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loader import LoadedPolicy
from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.dp.filters import RenyiFilter
from privacy.errors import BudgetExhausted, ConfigurationError, Conflict, LedgerDamaged
from privacy.ids import Context, Digest, JobId, PartyId, SiloId
from privacy.keystore import Identity, load_identity
from privacy.transparency.checkpoint import EMPTY_LOG
from silo_agent.ledger.admission import CapReached, RoundCharge
from silo_agent.ledger.books import Books, ledger_path
from silo_agent.ledger.entries import EpsilonCaps, FallbackCaps, FilterOrders, Opening
from silo_agent.ledger.journal import Journal
from silo_agent.ledger.ledger import Ledger, ledger_origin, read_account
from silo_agent.ledger.lifetime import lifetime_of, orders_for, period_of
from silo_agent.ledger.spending import JobCharge
from silo_agent.ledger.statement import statement_of
from silo_agent.own_policy import load_own_policy
from silo_agent.settings import SiloSettings, read_settings, scopes_of
from tests.federation import Federation
from tests.unit.silo_agent.test_silo_ledger import KEY, ORIGIN, _opening

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVENT = DpEvent(sample_rate=0.1, noise_multiplier=4.0, steps=2)
DELTA = 1e-5
ROUND = epsilon([EVENT], DELTA)
CAPS: dict[str, Any] = {"round": ROUND, "job": 5.0, "lifetime": 5.0}


def _charge(job: str, number: int = 1, dataset: str = "cardio", rounds: int = 1) -> RoundCharge:
    return RoundCharge(
        job=JobId(f"job-{job}"),
        job_digest=Digest(job.encode().hex().ljust(64, "0")),
        dataset=dataset,
        context=Context(Digest(f"{job}{number}".encode().hex().ljust(64, "0"))),
        round=number,
        rounds=rounds,
        event=EVENT,
        fallback=None,
        delta=DELTA,
        log_head=EMPTY_LOG,
    )


class Silo:
    """A silo's settings with budgets, and its books as a restart would open them."""

    def __init__(self, root: Path, **datasets: dict[str, Any]) -> None:
        self.identity: Identity = Federation().identity("silo-1", root / "state")
        self._path = root / "silo.yaml"
        self.write(**datasets)

    def write(self, **datasets: dict[str, Any]) -> None:
        document = {
            "state_dir": "state",
            "aggregator_url": "https://aggregator.test",
            "threat_model": "demo-hospitals",
            "datasets": {
                name: {
                    "path": f"{name}.csv",
                    "purpose": "research",
                    "budget": {"epsilon": CAPS, "delta_max": 1e-3},
                    **terms,
                }
                for name, terms in datasets.items()
            },
        }
        # What datasets share is written out: silo.yaml takes no aliases.
        self._path.write_text(yaml.safe_dump(json.loads(json.dumps(document))))

    @property
    def settings(self) -> SiloSettings:
        return read_settings(self._path)

    @property
    def policy(self) -> LoadedPolicy:
        return load_own_policy(self.settings)

    @contextmanager
    def books(self, now: datetime = NOW) -> Iterator[Books]:
        books = Books(self.identity, self.settings, self.policy, now)
        books.assert_whole((), now)
        try:
            yield books
        finally:
            books.close()

    def kinds(self, dataset: str) -> list[str]:
        origin = ledger_origin(self.identity.pin.federation, SiloId(PartyId("silo-1")), dataset)
        key = load_identity(self.settings.state_dir).signing.verify_key
        _, entries = read_account(ledger_path(self.settings.state_dir, dataset), origin, key)
        return [entry.kind for entry in entries]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Silo]:
    return lambda **datasets: Silo(tmp_path, **datasets)


def _budget(**epsilon_caps: Any) -> dict[str, Any]:
    days = {"period_days": 30} if "period" in epsilon_caps else {}
    return {"budget": {"epsilon": {**CAPS, **epsilon_caps}, "delta_max": 1e-3, **days}}


# --- two jobs at the cap ---


def test_of_two_threads_at_the_cap_exactly_one_passes(make: Callable[..., Silo]) -> None:
    silo = make(cardio=_budget(job=ROUND * 1.9, lifetime=ROUND * 1.9))
    passed: list[str] = []
    refused: list[str] = []
    start = threading.Barrier(8)

    def run(books: Books, job: str) -> None:
        start.wait()
        try:
            books.reserve(_charge(job), NOW)
        except CapReached as error:
            refused.append(error.cap)
        else:
            passed.append(job)

    with silo.books() as books:
        threads = [threading.Thread(target=run, args=(books, job)) for job in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(passed), refused) == (1, ["epsilon.lifetime"] * 7)
    assert silo.kinds("cardio").count("reserve") == 1


@pytest.mark.slow
def test_of_processes_at_the_cap_exactly_one_passes(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "cardio.jsonl"
    spawn = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = spawn.Queue()
    with_key = (path, KEY.to_pem(), answers)
    processes = [spawn.Process(target=_reserve_alone, args=(*with_key, job)) for job in "abc"]
    for process in processes:
        process.start()
    got = sorted(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    assert got == ["epsilon.lifetime", "epsilon.lifetime", "passed"]


def _reserve_alone(path: Path, pem: bytes, answers: multiprocessing.Queue[str], job: str) -> None:
    """As an agent that is started again and again until the ledger is free."""
    key = type(KEY).from_pem(pem)
    tight = _opening(job=ROUND * 1.9, lifetime=ROUND * 1.9)
    while True:
        try:
            with Ledger(path, ORIGIN, key, tight, NOW) as ledger:
                ledger.reserve(_charge(job), NOW)
        except ConfigurationError:
            continue
        except CapReached as error:
            answers.put(error.cap)
        else:
            answers.put("passed")
        return


# --- overlapping datasets ---


def test_a_job_on_one_dataset_is_charged_to_those_that_share_its_patients(make: Callable[..., Silo]) -> None:
    silo = make(cardio={"patients_also_in": ["stroke"]}, stroke={}, lung={})
    with silo.books() as books:
        books.reserve(_charge("a", dataset="cardio"), NOW)
        books.reserve(_charge("b", dataset="stroke"), NOW)
        books.reserve(_charge("c", dataset="lung"), NOW)
    spent = {
        name: [(job["job"], job["dataset"]) for job in one["jobs"]]
        for name, one in statement_of(silo.settings, silo.identity, NOW)["datasets"].items()
    }
    both = [("job-a", "cardio"), ("job-b", "stroke")]
    assert spent == {"cardio": both, "stroke": both, "lung": [("job-c", "lung")]}


def test_sharing_goes_both_ways_and_no_further(make: Callable[..., Silo]) -> None:
    datasets = make(a={"patients_also_in": ["b"]}, b={"patients_also_in": ["c"]}, c={}).settings.datasets
    assert scopes_of(datasets, "a") == ("b", "a")
    assert scopes_of(datasets, "b") == ("a", "c", "b")
    assert scopes_of(datasets, "c") == ("b", "c")


@pytest.mark.parametrize("tight", ["cardio", "stroke"])
def test_a_cap_of_either_scope_refuses_and_charges_neither(make: Callable[..., Silo], tight: str) -> None:
    terms: dict[str, dict[str, Any]] = {"cardio": {"patients_also_in": ["stroke"]}, "stroke": {}}
    terms[tight] |= _budget(round=ROUND * 0.9)
    silo = make(**terms)
    with silo.books() as books, pytest.raises(CapReached, match=r"epsilon\.round"):
        books.reserve(_charge("a"), NOW)
    assert silo.kinds("cardio") == silo.kinds("stroke") == ["open"]


def test_a_crash_between_two_scopes_charges_each_once(
    make: Callable[..., Silo], monkeypatch: pytest.MonkeyPatch
) -> None:
    silo = make(cardio={"patients_also_in": ["stroke"]}, stroke={})
    original = Journal.append

    def fail(journal: Journal, kind: str, *arguments: Any, **options: Any) -> Any:
        if kind == "reserve" and journal.path.stem == "cardio":
            raise OSError("the power went here")
        return original(journal, kind, *arguments, **options)

    with silo.books() as books:
        monkeypatch.setattr(Journal, "append", fail)
        with pytest.raises(OSError, match="power"):
            books.reserve(_charge("a"), NOW)
        monkeypatch.undo()
    assert (silo.kinds("stroke"), silo.kinds("cardio")) == (["open", "reserve"], ["open"])
    with silo.books() as books:
        assert books.last_round(_charge("a").job_digest) == 0, "nothing has begun"
        reserved = books.reserve(_charge("a"), NOW)
        books["cardio"].begin(reserved, NOW)
    assert (silo.kinds("stroke"), silo.kinds("cardio")) == (["open", "reserve"], ["open", "reserve", "begin"])


def test_patients_who_turn_out_to_be_shared_are_charged_from_the_next_round_on(
    make: Callable[..., Silo],
) -> None:
    silo = make(cardio={}, stroke={})
    with silo.books() as books:
        books["cardio"].begin(books.reserve(_charge("a", 1, rounds=64), NOW), NOW)
    silo.write(cardio={"patients_also_in": ["stroke"]}, stroke={})
    with silo.books() as books:
        assert not books.covers("cardio", _charge("a").job_digest, 2)
        books.reserve(_charge("a", 2, rounds=64), NOW)
        assert books.covers("cardio", _charge("a").job_digest, 2)
    assert silo.kinds("stroke").count("reserve") == 1
    assert silo.kinds("cardio").count("reserve") == 1


@pytest.mark.parametrize("other", ["cardio", "nobody"])
def test_shared_patients_are_in_another_dataset_of_the_file(make: Callable[..., Silo], other: str) -> None:
    silo = make(cardio={"patients_also_in": [other]}, stroke={})
    with pytest.raises(ConfigurationError, match="patients_also_in: expected other datasets"):
        _ = silo.settings


def test_an_agent_ends_when_no_dataset_has_budget_in_all_its_scopes(make: Callable[..., Silo]) -> None:
    silo = make(
        cardio={"patients_also_in": ["stroke"]}, stroke=_budget(round=ROUND, job=ROUND, lifetime=ROUND)
    )
    with silo.books() as books:
        assert not books.all_spent()
        books.reserve(_charge("a"), NOW)
        assert books.all_spent(), "cardio has budget left, and each of its jobs would be charged to stroke"


# --- periods ---


def test_a_period_comes_back_and_the_lifetime_never_does(make: Callable[..., Silo]) -> None:
    silo = make(cardio=_budget(period=ROUND * 2.5, lifetime=ROUND * 3.5, job=ROUND * 2))
    day = timedelta(days=1)
    with silo.books() as books:
        books.reserve(_charge("a"), NOW)
        books.reserve(_charge("b"), NOW + 10 * day)
        with pytest.raises(CapReached, match=r"epsilon\.period"):
            books.reserve(_charge("c"), NOW + 29 * day)
        books.reserve(_charge("d"), NOW + 31 * day)
        with pytest.raises(CapReached, match=r"epsilon\.lifetime"):
            books.reserve(_charge("e"), NOW + 400 * day)
    after = NOW + 400 * day
    [dataset] = statement_of(silo.settings, silo.identity, after)["datasets"].values()
    assert dataset["period"]["spent"]["epsilon"] == 0
    assert dataset["spent"]["epsilon"] == pytest.approx(3 * ROUND), "shown beside it, always"


def test_a_clock_that_was_set_back_brings_no_budget_back(make: Callable[..., Silo]) -> None:
    silo = make(cardio=_budget(period=ROUND * 1.5))
    with silo.books() as books:
        books.reserve(_charge("a"), NOW)
        for days in (-1, -31, -4000):
            with pytest.raises(CapReached, match=r"epsilon\.period"):
                books.reserve(_charge("b"), NOW + timedelta(days=days))
    with silo.books(NOW - timedelta(days=4000)) as books, pytest.raises(CapReached, match="period"):
        books.reserve(_charge("b"), NOW - timedelta(days=4000))


@given(days=st.lists(st.integers(0, 90), min_size=1, max_size=20).map(sorted), cap=st.integers(1, 5))
def test_no_window_of_a_period_ever_holds_more_than_its_cap(days: list[int], cap: int) -> None:
    opening = _opening(lifetime=100.0).model_copy(update={"period_days": 30})
    admitted: list[JobCharge] = []
    for day in days:
        at = NOW + timedelta(days=day)
        job = JobCharge("one", "cardio", DELTA, EVENT, None, rounds=1, times=((at, 1),))
        if period_of(opening, [*admitted, job], at).epsilon <= cap * ROUND * (1 + 1e-9):
            admitted.append(job)
    taken = [one.times[0][0] for one in admitted]
    for start in taken:
        assert sum(start <= at < start + timedelta(days=30) for at in taken) <= cap


@pytest.mark.parametrize(
    ("caps", "days", "message"),
    [
        ({"period": 2.0}, None, "expected period_days with epsilon.period"),
        ({}, 30, "expected period_days with epsilon.period"),
        ({"period": 9.0}, 30, "epsilon.period <= epsilon.lifetime"),
        ({"period": 2.0, "fallback": {"round": 5, "job": 5, "lifetime": 5}}, 30, "and in fallback"),
        ({"fallback": {"round": 0.05, "job": 5, "lifetime": 5}}, None, "fallback no lower than epsilon"),
    ],
)
def test_caps_that_contradict_each_other_are_refused(
    make: Callable[..., Silo], caps: dict[str, Any], days: int | None, message: str
) -> None:
    budget = {"epsilon": {**CAPS, **caps}, "delta_max": 1e-3, "period_days": days}
    with pytest.raises(ConfigurationError, match=message):
        _ = make(cardio={"budget": budget}).settings


# --- the filter ---

FILTER = FilterOrders(order=16, fallback_order=8)


def _filtered(lifetime: float = 5.0, own: float | None = None, delta_max: float = 1e-3) -> Opening:
    fallback = None if own is None else FallbackCaps(round=1e3, job=1e3, lifetime=own)
    opening = _opening(job=lifetime, lifetime=lifetime, delta_max=delta_max, fallback=fallback)
    return opening.model_copy(update={"filter": FILTER})


def _admitted(books: Books, dataset: str) -> int:
    """How many jobs of four rounds fit, one after another."""
    for count in range(60):
        for number in range(1, 5):
            try:
                books.reserve(_charge(f"{count:02d}", number, dataset, rounds=4), NOW)
            except CapReached:
                return count
    return 60


@pytest.mark.slow
def test_a_filter_admits_more_jobs_than_adding_up(make: Callable[..., Silo]) -> None:
    silo = make(plain={"composition": "basic"}, tight={"composition": "filter"})
    with silo.books() as books:
        assert _admitted(books, "tight") > 1.5 * _admitted(books, "plain")
    datasets = statement_of(silo.settings, silo.identity, NOW)["datasets"]
    assert datasets["tight"]["composition"] == "filter"
    assert datasets["tight"]["spent"]["epsilon"] <= CAPS["lifetime"]
    assert datasets["tight"]["spent"]["delta"] == 1e-3, "a filter's δ is spent once, by all jobs together"


@given(
    steps=st.lists(st.integers(1, 400), min_size=1, max_size=6),
    noise=st.lists(st.floats(1.0, 30.0), min_size=6, max_size=6),
    cap=st.floats(1.0, 20.0),
)
@settings(max_examples=60, deadline=None)
def test_what_the_ledgers_filter_admits_is_what_the_filter_admits(
    steps: list[int], noise: list[float], cap: float
) -> None:
    pairs = zip(noise, steps, strict=False)
    events = [DpEvent(sample_rate=0.2, noise_multiplier=sigma, steps=count) for sigma, count in pairs]
    jobs = [JobCharge(str(i), "cardio", DELTA, event, None, rounds=1) for i, event in enumerate(events)]
    oracle, admits = RenyiFilter(cap, 1e-3, "add_remove", FILTER.order), True
    try:
        for event in events:
            oracle = oracle.admit(event)
    except BudgetExhausted:
        admits = False
    spent = lifetime_of(_filtered(cap), jobs).epsilon
    assert (spent <= cap) == admits or spent == pytest.approx(cap, rel=1e-12)


def test_the_fallback_has_a_filter_of_its_own() -> None:
    own = EVENT.model_copy(update={"noise_multiplier": 2.0})
    job = JobCharge("a", "cardio", DELTA, EVENT, own, rounds=50)
    alone = JobCharge("a", "cardio", DELTA, own, None, rounds=50)
    swapped = _filtered().model_copy(update={"filter": FilterOrders(order=8, fallback_order=8)})
    assert lifetime_of(_filtered(), [job]).fallback == lifetime_of(swapped, [alone]).epsilon


def test_orders_come_from_caps_alone_and_stay(make: Callable[..., Silo]) -> None:
    silo = make(cardio={"composition": "filter"})
    with silo.books() as books:
        books.reserve(_charge("a"), NOW)
    first = orders_for(EpsilonCaps(**CAPS), 1e-3)
    lower = {"budget": {"epsilon": {**CAPS, "job": 1.0, "lifetime": 1.0}, "delta_max": 1e-4}}
    assert orders_for(EpsilonCaps(**{**CAPS, "job": 1.0, "lifetime": 1.0}), 1e-4) != first
    silo.write(cardio={"composition": "filter", **lower})
    with silo.books() as books, pytest.raises(CapReached, match="lifetime"):
        books.reserve(_charge("a"), NOW)
    path = ledger_path(silo.settings.state_dir, "cardio")
    origin = ledger_origin(silo.identity.pin.federation, SiloId(PartyId("silo-1")), "cardio")
    account, _ = read_account(path, origin, silo.identity.signing.verify_key)
    assert account.opening is not None
    assert (account.opening.filter, account.opening.epsilon.lifetime) == (first, 1.0)


@pytest.mark.parametrize(("before", "after"), [("basic", "filter"), ("filter", "basic")])
def test_how_jobs_compose_is_fixed_when_a_ledger_is_opened(
    make: Callable[..., Silo], before: str, after: str
) -> None:
    silo = make(cardio={"composition": before})
    with silo.books():
        pass
    silo.write(cardio={"composition": after})
    with pytest.raises(Conflict, match=f"expected composition: {before} as when it was opened"), silo.books():
        pass


@pytest.mark.parametrize("raised", [_filtered(lifetime=5.1), _filtered(own=99.0), _filtered(delta_max=2e-3)])
def test_a_filters_caps_are_never_raised(tmp_path: Path, raised: Opening) -> None:
    """Its promise is for a limit fixed before the first event; lower ones keep it."""
    path = tmp_path / "ledger" / "cardio.jsonl"
    with Ledger(path, ORIGIN, KEY, _filtered(), NOW):
        pass
    with Ledger(path, ORIGIN, KEY, _filtered(lifetime=1.0), NOW):
        pass
    with Ledger(path, ORIGIN, KEY, _filtered(), NOW):
        pass
    with pytest.raises(Conflict, match="a filter holds for caps fixed at its opening"):
        Ledger(path, ORIGIN, KEY, raised, NOW)
    with Journal(path, ORIGIN, KEY) as journal:
        journal.append("open", raised.model_dump(mode="json"), NOW)
    with pytest.raises(LedgerDamaged, match="a filter holds for caps fixed"):
        Ledger(path, ORIGIN, KEY, _filtered(), NOW)
