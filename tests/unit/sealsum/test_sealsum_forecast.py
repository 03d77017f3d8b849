"""A forecast says what the ledger will do; an exported ledger verifies without its silo."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from privacy.errors import ConfigurationError, LedgerDamaged
from privacy.ids import Context, Digest, JobId, PartyId, SiloId
from privacy.keystore import Identity, load_identity
from privacy.transparency.checkpoint import EMPTY_LOG
from sealsum.budget_commands import budget
from silo_agent.cli import silo
from silo_agent.ledger.admission import CapReached, RoundCharge
from silo_agent.ledger.books import ledger_path
from silo_agent.ledger.entries import EpsilonCaps, FallbackCaps, Opening
from silo_agent.ledger.export import read_export
from silo_agent.ledger.ledger import Ledger, ledger_origin
from tests.federation import Federation

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVENT = DpEvent(sample_rate=1.0, noise_multiplier=20.0, steps=1)
OWN = EVENT.model_copy(update={"noise_multiplier": 10.0})
DELTA = 1e-5
JOB: dict[str, Any] = {
    "job": "heart", "purpose": "research", "dataset": "cardio",
    "data": {
        "features": [{"kind": "numeric", "column": "age", "low": 20, "high": 90, "impute": 55}],
        "label": {"column": "num", "threshold": 0}, "patient_id": "patient",
    },
    "model": {"adapter": "logistic"},
    "training": {
        "algorithm": "dp_fedsgd", "local_steps": 1, "learning_rate": 0.1, "server_learning_rate": 1.0,
    },
    "dp": {
        "unit": "patient", "model": "distributed", "noise_shares": 4, "sample_rate": 1.0,
        "noise_multiplier": 20.0, "clip_l2": 1.0, "normaliser": 40, "delta": DELTA,
    },
    "rounds": 40, "min_silos": 3,
}  # fmt: skip


def _opening(**changes: Any) -> Opening:
    own = FallbackCaps(round=5.0, job=8.0, lifetime=8.0)
    caps = EpsilonCaps(round=1.0, job=2.0, lifetime=3.0, fallback=own)
    fields = {"dataset": "cardio", "unit": "patient", "patient_id": "patient", "epsilon": caps}
    return Opening.model_validate({**fields, "delta_max": 1e-4, **changes})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    Federation().identity("silo-1", tmp_path / "state")
    return tmp_path / "state"


def _identity(state: Path) -> Identity:
    return load_identity(state)


def _ledger(state: Path, opening: Opening | None = None) -> Ledger:
    identity = _identity(state)
    origin = ledger_origin(identity.pin.federation, SiloId(PartyId("silo-1")), "cardio")
    return Ledger(ledger_path(state, "cardio"), origin, identity.signing, opening or _opening(), NOW)


def _charge(
    number: int, job: str = "a", event: DpEvent = EVENT, own: DpEvent | None = OWN, rounds: int = 16
) -> RoundCharge:
    return RoundCharge(
        job=JobId(f"job-{job}"),
        job_digest=Digest(job * 64),
        dataset="cardio",
        context=Context(Digest(f"{ord(job):02x}" + f"{number:062x}")),
        round=number,
        rounds=rounds,
        event=event,
        fallback=own,
        delta=DELTA,
        log_head=EMPTY_LOG,
    )


def _forecast(directory: Path, *options: str, job: dict[str, Any] = JOB) -> Result:
    file = directory / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return CliRunner().invoke(budget, ["forecast", "--job", str(file), *options])


def _json(directory: Path, *options: str, job: dict[str, Any] = JOB) -> dict[str, Any]:
    result = _forecast(directory, *options, "--json", job=job)
    assert result.exit_code == 0, result
    document: dict[str, Any] = json.loads(result.output)
    return document


def test_a_forecast_prices_both_epsilons_and_says_what_is_left(tmp_path: Path, state: Path) -> None:
    with _ledger(state) as ledger:
        for number in range(1, 11):
            ledger.reserve(_charge(number), NOW)
        spent = epsilon([EVENT] * ledger_rounds(ledger), DELTA)
    document = _json(tmp_path, "--state", str(state))
    [one] = document["ledgers"]
    assert document["noise_multiplier_alone"] == 10.0
    assert one["cost"]["epsilon"]["job"] == pytest.approx(epsilon([EVENT] * 40, DELTA))
    assert one["cost"]["epsilon_fallback"]["job"] == pytest.approx(epsilon([OWN] * 40, DELTA))
    assert one["left_before"]["epsilon"]["lifetime"] == pytest.approx(3.0 - spent)
    after = 3.0 - spent - one["cost"]["epsilon"]["job"]
    assert one["left_after"]["epsilon"]["lifetime"] == pytest.approx(after)
    assert one["admitted"] == (after >= 0)


def ledger_rounds(ledger: Ledger) -> int:
    return sum(job.rounds for job in ledger._account.jobs.values())


@pytest.mark.parametrize(
    "opening",
    [
        _opening(),
        _opening(delta_max=5e-5),
        _opening(
            epsilon=EpsilonCaps(round=9, job=9, lifetime=9, fallback=FallbackCaps(
                round=9, job=9, lifetime=4)),
        ),
        _opening(
            period_days=30,
            epsilon=EpsilonCaps(round=1, job=9, lifetime=9, period=1.5, fallback=FallbackCaps(
                round=9, job=9, lifetime=9, period=9)),
        ),
    ],
)  # fmt: skip
def test_as_many_rounds_as_are_forecast_are_admitted_and_no_more(
    tmp_path: Path, state: Path, opening: Opening
) -> None:
    with _ledger(state, opening) as ledger:
        ledger.reserve(_charge(1, "f"), NOW)
    table = _json(tmp_path, "--state", str(state))["ledgers"][0]["rounds_left"]
    sigmas = [row["noise_multiplier"] for row in table]
    assert sigmas == [20.0, 10.0, 15.0, 30.0, 40.0, 80.0]
    assert [row["rounds"] for row in table[1:]] == sorted(row["rounds"] for row in table[1:])
    for row in table[:3]:
        event = EVENT.model_copy(update={"noise_multiplier": row["noise_multiplier"]})
        own = EVENT.model_copy(update={"noise_multiplier": row["noise_multiplier"] / 2})
        job = chr(97 + table.index(row))
        path = tmp_path / f"copy-{job}"
        path.mkdir()
        copied = path / "cardio.jsonl"
        identity = _identity(state)
        origin = ledger_origin(identity.pin.federation, SiloId(PartyId("silo-1")), "cardio")
        own_file = ledger_path(state, "cardio")
        copied.write_bytes(own_file.read_bytes())
        copied.with_suffix(".head").write_bytes(own_file.with_suffix(".head").read_bytes())
        with Ledger(copied, origin, identity.signing, opening, NOW) as ledger:
            before, number = ledger_rounds(ledger), 0
            while True:
                try:
                    charge = _charge(number + 1, job, event, own, rounds=10**6)
                    reserved = ledger.reserve(
                        charge, datetime.now(UTC)
                    )  # as the forecast: f's period is over
                except CapReached as refusal:
                    passed = refusal.cap
                    break
                number = reserved.block[1]
            assert (ledger_rounds(ledger) - before, passed) == (row["rounds"], row["next_refused_by"])


def test_a_job_that_does_not_fit_is_forecast_by_its_cap(tmp_path: Path, state: Path) -> None:
    with _ledger(state):
        pass
    document = _json(tmp_path, "--state", str(state), job={**JOB, "rounds": 4000})
    assert (document["admitted"], document["ledgers"][0]["refused_by"]) == (False, "epsilon.job")
    text = _forecast(tmp_path, "--state", str(state), job={**JOB, "rounds": 4000})
    assert text.exit_code == 0
    assert "refused: epsilon.job would be passed" in text.output


def test_a_job_without_dp_and_a_missing_ledger_are_named(tmp_path: Path, state: Path) -> None:
    plain = {**JOB, "dp": "none", "training": {**JOB["training"], "algorithm": "fedavg"}}
    result = _forecast(tmp_path, "--state", str(state), job=plain)
    assert isinstance(result.exception, ConfigurationError)
    assert "costs without measure" in str(result.exception)
    result = _forecast(tmp_path)
    assert isinstance(result.exception, ConfigurationError)
    assert "expected a ledger of dataset cardio, got none" in str(result.exception)


# --- export ---


def _config(tmp_path: Path) -> Path:
    cardio = {"path": "cardio.csv", "purpose": "research"}
    document = {
        "state_dir": "state",
        "aggregator_url": "https://aggregator.test",
        "threat_model": "demo-hospitals",
        "datasets": {"cardio": cardio},
    }
    (tmp_path / "silo.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "silo.yaml"


def _export(tmp_path: Path) -> Path:
    target = tmp_path / "ledger.json"
    options = ["ledger", "--config", str(_config(tmp_path)), "--dataset", "cardio", "--export", str(target)]
    result = CliRunner().invoke(silo, options)
    assert result.exit_code == 0, result
    return target


def test_an_exported_ledger_verifies_and_forecasts_as_the_silos_own(tmp_path: Path, state: Path) -> None:
    with _ledger(state) as ledger:
        ledger.begin(ledger.reserve(_charge(1), NOW), NOW)
        head = ledger.head
    target = _export(tmp_path)
    found = read_export(target)
    assert (found.head, found.verify_key) == (head, _identity(state).signing.verify_key)
    own, exported = _json(tmp_path, "--state", str(state)), _json(tmp_path, "--ledger", str(target))
    assert own == exported
    statement = json.loads(target.read_bytes())["statement"]
    assert statement["spent"]["begun"] == 1


@pytest.mark.parametrize("change", ["entry", "cut", "key"])
def test_an_altered_export_is_refused(tmp_path: Path, state: Path, change: str) -> None:
    with _ledger(state) as ledger:
        ledger.reserve(_charge(1), NOW)
    target = _export(tmp_path)
    document = json.loads(target.read_bytes())
    if change == "entry":
        document["entries"][1]["body"]["event"]["noise_multiplier"] = "40.0"
    elif change == "cut":
        document["entries"].pop()
    else:
        document["verify_key"] = "ab" * 32
    target.write_text(json.dumps(document))
    with pytest.raises(LedgerDamaged):
        read_export(target)


def test_a_file_that_is_no_export_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"ledger": "sealsum-ledger/1"}')
    with pytest.raises(ConfigurationError, match="expected what sealsum silo ledger --export wrote"):
        read_export(tmp_path / "x.json")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_export(tmp_path / "y.json")
