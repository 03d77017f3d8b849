"""What a data protection officer types: jobs, show, approve, reject, datasets, export."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from privacy.approval import open_approval
from privacy.errors import SignatureRejected
from privacy.plan import TrainingTerms
from sealsum.cli import cli
from sealsum.evidence_silos import read_handover
from silo_agent.approvals.handover import HandedOver, SignedHandover
from tests.approval_world import ApprovingSilo, policy_asking


@pytest.fixture
def silo(tmp_path: Path) -> ApprovingSilo:
    return ApprovingSilo(tmp_path / "silo-1", policy_asking(n=2))


def sealsum(silo: ApprovingSilo, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["silo", *arguments, "--config", str(silo.config)])


def as_json(silo: ApprovingSilo, *arguments: str) -> Any:
    done = sealsum(silo, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_job_is_read_approved_by_two_and_exported(silo: ApprovingSilo, tmp_path: Path) -> None:
    spec = silo.show()
    [listed] = as_json(silo, "jobs")["jobs"]
    assert (listed["job"], listed["state"], listed["job_digest"]) == ("heart", "waiting", spec.digest)
    assert listed["costs"][0]["rounds_that_fit"] == spec.rounds
    for name, state in (("ada", "waiting"), ("ben", "approved")):
        done = as_json(silo, "approve", "heart", "--key", str(silo.files[name]), "--as", name)
        assert done["standing"]["state"] == state
    out = tmp_path / "export.json"
    assert sealsum(silo, "export", "--job", "heart", "--out", str(out)).exit_code == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    packed = read_handover(out.read_bytes(), silo.federation.charter)
    assert packed.silo == "silo-1"
    handed = HandedOver.model_validate_json(SignedHandover.model_validate_json(out.read_bytes()).body)
    assert sorted(handed.people) == ["ada", "ben"]
    assert [open_approval(one).by for one in handed.approvals] == ["ada", "ben"]
    assert (handed.silo, handed.job_digest, handed.dataset) == ("silo-1", spec.digest, "cardio")


def test_an_export_is_the_silos_word_and_nobody_elses(silo: ApprovingSilo, tmp_path: Path) -> None:
    silo.show()
    silo.decide("ada")
    out = tmp_path / "export.json"
    sealsum(silo, "export", "--job", "heart", "--out", str(out))
    document = json.loads(out.read_bytes())
    for changed in (
        document["body"].replace('"dpo"', '"security"'),
        document["body"].replace('"silo":"silo-1"', '"silo":"silo-2"'),
    ):
        assert changed != document["body"]
        with pytest.raises(SignatureRejected):
            read_handover(json.dumps({**document, "body": changed}).encode(), silo.federation.charter)


def test_show_says_in_sentences_what_a_person_must_know(silo: ApprovingSilo) -> None:
    spec = silo.show()
    said = sealsum(silo, "show", "heart")
    assert said.exit_code == 0, said.output
    for words in (
        "researcher of University asks to run job heart in testfed",
        "The stated purpose is: test.",
        "It reads 2 columns: age, pressure; it predicts num.",
        "Patients are told apart by patient",
        "Gaussian noise of 4 times that length",
        "The whole job costs ε",
        "lifetime ε of 8, 0 is spent",
        "The model goes to the silos and to the federation's researchers, at the job's end.",
        "2 people in as many roles of: data_steward, dpo",
        "Rules of silo.yaml may not decide in their place.",
        "It stands: waiting; 0 of 2 approvals",
        spec.digest,
    ):
        assert words in said.output
    by_digest = sealsum(silo, "show", spec.digest[:8])
    assert by_digest.output == said.output


def test_show_warns_of_a_job_without_dp(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1")
    training = TrainingTerms(algorithm="fedavg", local_steps=1, learning_rate=0.5, server_learning_rate=1.0)
    silo.show(dp=None, training=training)
    said = sealsum(silo, "show", "heart").output
    assert "There is NO differential privacy" in said
    assert "It would be refused anyway" in said


def test_a_job_that_would_be_refused_is_listed_so_and_cannot_be_approved(silo: ApprovingSilo) -> None:
    silo.show(purpose="marketing")
    [listed] = as_json(silo, "jobs")["jobs"]
    assert listed["state"] == "would be refused"
    assert [finding["rule"] for finding in listed["would_be_refused"]] == ["dataset.purpose"]
    done = sealsum(silo, "approve", "heart", "--key", str(silo.files["ada"]), "--as", "ada")
    assert done.exit_code == 3
    assert "dataset.purpose" in done.stderr
    assert sealsum(silo, "reject", "heart", "--key", str(silo.files["ada"]), "--as", "ada").exit_code == 0


def test_another_persons_key_is_refused_and_neither_key_is_printed(silo: ApprovingSilo) -> None:
    spec = silo.show()
    done = sealsum(silo, "approve", "heart", "--key", str(silo.files["ben"]), "--as", "ada")
    assert done.exit_code == 3
    assert "approval.key" in done.stderr
    assert "PRIVATE" not in done.output + done.stderr
    assert not silo.file(spec).exists()


@pytest.mark.parametrize(
    ("asked", "message"), [("nothing", "none; jobs here: heart"), ("../../etc/passwd", "none; jobs here")]
)
def test_an_unknown_job_is_said_with_those_that_are_known(
    silo: ApprovingSilo, asked: str, message: str
) -> None:
    silo.show()
    done = sealsum(silo, "show", asked)
    assert done.exit_code == 78
    assert message in done.stderr


def test_a_job_file_that_was_changed_on_disk_is_told_and_never_shown(silo: ApprovingSilo) -> None:
    spec = silo.show()
    path = silo.state / "jobs" / f"{spec.digest}.json"
    path.write_bytes(path.read_bytes().replace(b'\\"rounds\\":2', b'\\"rounds\\":1'))
    listed = as_json(silo, "jobs")
    assert listed["jobs"] == []
    assert "expected a job that a researcher signed" in listed["unread"][0]


def test_datasets_are_listed_with_what_they_are_for_and_never_where_they_lie(silo: ApprovingSilo) -> None:
    shown = as_json(silo, "datasets")["datasets"]["cardio"]
    assert shown["purposes"] == ["test"]
    assert shown["patient_id"] == "patient"
    assert shown["epsilon"] == {"spent": 0.0, "lifetime": 8.0, "job": 3.0}
    assert shown["min_records"] == 50
    assert "cardio.csv" not in json.dumps(shown)
