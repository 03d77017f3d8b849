"""A real worker process: what it computes is what the agent would, and each way to lose it has a name."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.ids import PartyId, SiloId
from privacy.keystore import load_identity
from privacy.plan import JobSpec, TrainingTerms
from privacy.update import model_digest, model_vector
from silo_agent.agent import Agent
from silo_agent.algorithms.memory import FIRST, Memory
from silo_agent.checked_model import CheckedModel
from silo_agent.dataset_settings import SqlSource
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.ledger import ledger_origin, read_account
from silo_agent.models.layouts import initial_vector, model_terms
from silo_agent.own_policy import load_own_policy
from silo_agent.problems import OutOfMemory, Stopped, WorkerLost
from silo_agent.settings import DatasetSettings, SiloSettings, read_settings
from silo_agent.training import worker_process
from silo_agent.training.apart import TrainerApart, trainer_for
from silo_agent.training.here import TrainerHere, trainer_here, training_settings
from silo_agent.training.hidden import hidden_from_worker
from silo_agent.training.work import PaidWork, RoundModels, Trained, Trainer, Work
from silo_agent.update import FloatUpdate
from silo_agent.worker_settings import WorkerSettings
from tests.federation import Federation
from tests.silo_yaml import registered
from tests.unit.silo_agent.loopback import SILO, Loopback, patients

pytestmark = pytest.mark.slow
FEDERATION = Federation()


def settings_of(directory: Path, **worker: Any) -> SiloSettings:
    return SiloSettings(
        state_dir=directory / "state",
        aggregator_url="https://aggregator.test",
        threat_model="demo-hospitals",
        datasets={"cardio": DatasetSettings.model_validate(registered(path=directory / "cardio.csv"))},
        worker=WorkerSettings(**worker),
    )


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Callable[..., TrainerApart]]:
    """Makes trainers, and ends their workers."""
    (tmp_path / "cardio.csv").write_text(patients(60))
    made: list[TrainerApart] = []

    def make(stopping: threading.Event | None = None, **worker: Any) -> TrainerApart:
        settings = settings_of(tmp_path, **worker)
        made.append(TrainerApart(settings, [settings.state_dir], stopping or threading.Event()))
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()


def work_of(trainer: TrainerApart, job: JobSpec, number: int = 1, **changes: Any) -> Work:
    dataset = trainer._settings.datasets["cardio"].model_copy(update=changes)
    return Work(job, FEDERATION.plan(job, number), dataset, least=50)


def a_job(**changes: Any) -> JobSpec:
    return FEDERATION.job_spec(**{"model": model_terms("logistic", 2), **changes})


def without_dp(**training: Any) -> JobSpec:
    terms = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.5, "server_learning_rate": 1.0}
    return a_job(dp=None, training=TrainingTerms(**{**terms, **training}))


def model_of(job: JobSpec) -> CheckedModel:
    raw = initial_vector(job.model, 0).tobytes()
    return CheckedModel(model_digest(job.model, [raw]), model_vector(job.model, raw))


def trained(trainer: Trainer, work: Work, memory: Memory = FIRST) -> Trained:
    trainer.begin(work)
    trainer.check(RoundModels(model_of(work.job)))
    trainer.read()
    return trainer.train(PaidWork(work), memory)


def test_a_worker_computes_what_the_agent_itself_would(
    apart: Callable[..., TrainerApart], tmp_path: Path
) -> None:
    trainer = apart()
    here = TrainerHere(training_settings(trainer._settings), threading.Event())

    # without DP: the same bits
    plain = work_of(trainer, without_dp(weights="examples", weight_cap=200))
    there, expected = trained(trainer, plain), trained(here, plain)
    assert isinstance(there.update, FloatUpdate)
    assert isinstance(expected.update, FloatUpdate)
    assert there.update.values.tobytes() == expected.update.values.tobytes()
    assert there.weight == expected.weight == 60 / 200
    assert trainer.recall() == here.recall()
    first = trainer._worker.process_id  # type: ignore[union-attr] # it runs

    # under DP: fresh noise each time, by the worker's own system randomness; another job has another process
    private = work_of(trainer, a_job())
    draws = [trained(trainer, private).update for _ in range(2)]
    assert all(isinstance(draw, FloatUpdate) and np.isfinite(draw.values).all() for draw in draws)
    assert draws[0].values.tobytes() != draws[1].values.tobytes()  # type: ignore[union-attr] # FloatUpdates
    second = trainer._worker.process_id  # type: ignore[union-attr] # it runs
    assert first != second
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)

    # refusals keep their kind and their findings
    with pytest.raises(PolicyRefusal, match=r"records\.minimum"):
        trained(trainer, Work(private.job, private.plan, private.dataset, least=61))
    (tmp_path / "cardio.csv").write_text("patient,age\n")
    with pytest.raises(ConfigurationError, match=r"expected one column 'pressure' in the header, got 0"):
        trained(trainer, private)


def test_a_database_is_read_by_the_agent_and_its_password_stays_there(
    apart: Callable[..., TrainerApart], tmp_path: Path
) -> None:
    database = create_engine(f"sqlite:///{tmp_path / 'records.db'}")
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE seen (patient TEXT, age REAL, pressure REAL, num INTEGER)"))
        rows = [{"p": f"p{number}", "age": 20 + number, "num": number % 2} for number in range(60)]
        connection.execute(text("INSERT INTO seen VALUES (:p, :age, 120, :num)"), rows)
    database.dispose()
    sql = SqlSource(url=f"sqlite:///{tmp_path / 'records.db'}", query="SELECT * FROM seen")
    trainer = apart()
    work = work_of(trainer, without_dp(), adapter="sql", path=None, sql=sql)
    there = trained(trainer, work)
    expected = trained(TrainerHere(training_settings(trainer._settings), threading.Event()), work)
    assert there.update.values.tobytes() == expected.update.values.tobytes()  # type: ignore[union-attr] # FloatUpdates


def test_an_order_to_stop_reaches_the_middle_of_a_round_and_a_worker_that_is_killed_ends_it_by_name(
    apart: Callable[..., TrainerApart],
) -> None:
    stopping = threading.Event()
    trainer = apart(stopping)
    work = work_of(trainer, without_dp(local_steps=100_000, learning_rate=1e-9))
    trainer.begin(work)
    trainer.check(RoundModels(model_of(work.job)))
    trainer.read()
    threading.Timer(0.5, stopping.set).start()
    with pytest.raises(Stopped, match="the agent was told to end; the round stays charged"):
        trainer.train(PaidWork(work), FIRST)
    stopping.clear()

    os.kill(trainer._worker.process_id, signal.SIGKILL)  # type: ignore[union-attr] # it runs
    with pytest.raises(WorkerLost, match=r"was killed \(SIGKILL\): by somebody, or because this machine"):
        trainer.recall()
    with pytest.raises(WorkerLost, match="the next round starts another"):
        trainer.read()


def test_memory_beyond_the_cap_ends_the_round_by_name_and_not_the_agent(
    apart: Callable[..., TrainerApart],
) -> None:
    """The cap is set here once the worker has loaded: what Python and torch take differs by place."""
    trainer = apart()
    wide = model_terms("mlp", 2, (5000, 5000))
    trainer.begin(work_of(trainer, a_job(dp=None, training=without_dp().training, model=wide)))
    process = trainer._worker.process_id  # type: ignore[union-attr] # it runs
    status = Path(f"/proc/{process}/status").read_text()
    has = int(re.findall(r"VmData:\s+(\d+) kB", status)[0]) << 10
    resource.prlimit(process, resource.RLIMIT_DATA, (has + (32 << 20),) * 2)
    model = CheckedModel(model_of(without_dp()).digest, np.zeros(wide.parameters, np.float32))
    with pytest.raises(OutOfMemory, match=r"raise worker\.memory_mib if it is set"):
        trainer.check(RoundModels(model))
    assert trainer._worker is None, "the next round starts another"


def test_where_the_network_cannot_be_taken_from_it_strict_settings_refuse_and_others_say_so(
    apart: Callable[..., TrainerApart], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_process, "_confined", lambda *_: "Operation not permitted (unshare)")
    with pytest.raises(ConfigurationError, match=r"worker\.network: expected a worker without a network"):
        apart()
    with caplog.at_level(logging.INFO, "silo_agent"):
        apart(network="best_effort")
    assert [record.getMessage() for record in caplog.records] == ["worker_started", "worker_has_network"]


def test_data_where_keys_lie_are_refused_and_a_silo_may_train_in_the_agents_process(tmp_path: Path) -> None:
    identity = FEDERATION.identity(SILO, tmp_path / "state")
    inside = (
        settings_of(tmp_path).datasets["cardio"].model_copy(update={"path": tmp_path / "state" / "x.csv"})
    )
    settings = settings_of(tmp_path).model_copy(update={"datasets": {"cardio": inside}})
    with pytest.raises(ConfigurationError, match=r"datasets\.cardio\.path: expected it outside state_dir"):
        hidden_from_worker(settings, identity)
    without = settings.model_copy(update={"worker": WorkerSettings(process=False)})
    assert isinstance(trainer_for(identity)(without, threading.Event()), TrainerHere)
    assert trainer_here(without, threading.Event()) is not None


class Watched(TrainerApart):
    """Its worker is killed in the first round that is about to be trained."""

    killed = False

    def train(self, paid: PaidWork, memory: Memory) -> Trained:
        if not self.killed:
            self.killed = True
            os.kill(self._worker.process_id, signal.SIGKILL)  # type: ignore[union-attr] # it runs
        return super().train(paid, memory)


def test_an_agent_whose_worker_dies_refuses_the_round_keeps_it_charged_and_takes_the_next(
    tmp_path: Path,
) -> None:
    servers = Loopback(tmp_path)
    config = servers.silo_files(tmp_path, patients(80), worker={})
    settings = read_settings(config)
    identity = load_identity(settings.state_dir)
    job = servers.job(rounds=2)
    plans = [servers.open_round(job)]

    def trainer_of(settings: SiloSettings, stopping: threading.Event) -> Trainer:
        return Watched(settings, hidden_from_worker(settings, identity), stopping)

    def then() -> None:
        servers.wait_until(lambda: bool(servers.refusals))
        plans.append(servers.open_round(job, 2))

    second = threading.Thread(target=then)
    second.start()
    agent = Agent(settings, identity, load_own_policy(settings), trainer_of)
    try:
        assert agent.run(until_idle=True) == 0
    finally:
        agent.close()
        second.join()
        servers.close()
    assert [refusal.rule for refusal in servers.refusals] == ["silo.failure"]
    assert "SIGKILL" not in servers.refusals[0].model_dump_json(), "what befell it stays in its own log"
    assert f"/v1/rounds/{plans[1].context}/parts/0" in servers.uploads
    origin = ledger_origin("testfed", SiloId(PartyId(SILO)), "cardio")
    path = ledger_path(settings.state_dir, "cardio")
    _, entries = read_account(path, origin, servers.federation.key(SILO).verify_key)
    kinds = [entry.kind for entry in entries]
    assert kinds.count("begin") == 2, "the first round's charge stays"
