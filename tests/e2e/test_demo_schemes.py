"""The demo by every scheme, as a user runs it: real processes, one round, verified evidence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from privacy.secagg.catalogue import SCHEMES
from privacy.secagg.he.parameters import ONE_KEY_SCHEMES
from sealsum.demo.cast import OFFICERS, cast_of
from sealsum.demo.options import POLICIES, VALIDITY_POLICY
from sealsum.demo.patients import HOSPITALS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
RUN_S = 400


@dataclass(frozen=True)
class Run:
    scheme: str
    out: Path
    summary: dict[str, object]


def finished(scheme: str, out: Path, *more: str) -> Run:
    command = [sys.executable, "-m", "sealsum", "demo", "--scheme", scheme, "--rounds", "1", "--json", *more]
    ended = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=RUN_S)
    assert ended.returncode == 0, ended.stderr
    return Run(scheme, out, json.loads(ended.stdout))


@pytest.fixture(scope="module", params=[name for name in SCHEMES if name != "additive"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    scheme = str(request.param)
    return finished(scheme, tmp_path_factory.mktemp(scheme) / "out")


def test_a_round_whose_updates_are_proven_is_opened_and_verifies(tmp_path: Path) -> None:
    summary = finished("additive", tmp_path / "out", "--validity").summary
    assert (summary["verified"], summary["openings"], summary["refusals"]) == (True, 1, 0)
    assert summary["policy"]["name"] == VALIDITY_POLICY  # type: ignore[index]  # a JSON object
    bound = summary["norm_bound"]
    assert isinstance(bound, float)
    assert bound <= 24


def test_the_round_is_opened_by_that_scheme_and_its_evidence_verifies(run: Run) -> None:
    summary = run.summary
    assert (summary["scheme"], summary["openings"], summary["refusals"]) == (run.scheme, 1, 0)
    assert summary["verified"] is True
    policy = summary["policy"]
    assert isinstance(policy, dict)
    assert policy["name"] == POLICIES[run.scheme]  # type: ignore[index]  # a scheme's name
    sent = summary["bytes_up_per_silo_round"]
    assert isinstance(sent, int)
    assert sent > 4 * 1017, "more than the vector alone"


def test_only_the_schemes_own_parties_were_started(run: Run) -> None:
    names = {part.name for part in cast_of(run.scheme)}
    assert {path.name for path in (run.out / "parties").iterdir()} == names | {"registrar"} | {
        name for name, _ in OFFICERS
    }


def test_no_round_secret_outlives_the_job_at_a_hospital(run: Run) -> None:
    for hospital in HOSPITALS:
        state = run.out / "parties" / hospital.silo / "state"
        left = [path for name in ("secrets", "he") for path in (state / name).rglob("*") if path.is_file()]
        assert left == []


def test_no_part_of_an_update_outlives_its_round_at_the_aggregator(run: Run) -> None:
    state = run.out / "parties" / "aggregator" / "state"
    assert [path for name in ("parts", "sums") for path in (state / name).rglob("*") if path.is_file()] == []


def test_nothing_that_unmasks_or_decrypts_is_in_the_evidence(run: Run) -> None:
    with ZipFile(run.out / "evidence.zip") as pack:
        text = b"".join(pack.read(name) for name in pack.namelist())
    for kind in (b"pairwise_unmask", b"pairwise_shares", b'"he_key"'):
        assert b'"kind":' + kind not in text.replace(b" ", b"")
    if run.scheme in ONE_KEY_SCHEMES:
        assert b"he_opened" in text
