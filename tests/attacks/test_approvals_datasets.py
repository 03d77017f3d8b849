"""A job names a registered dataset: never a path, nor data without a legal basis or with too few records."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from policies.findings import PolicyRefusal
from policies.loader import load_threat_model
from privacy.errors import ConfigurationError
from silo_agent.registration import least_records, registration_digest
from tests.approval_world import NOW, ApprovingSilo, policy_asking
from tests.federation import Federation
from tests.silo_yaml import registered

PATHS = ["/etc/passwd", "../patients.csv", "cardio.csv/../x", "file:///x", "~/cardio", "C:\\x", "cardio\n"]


@pytest.mark.parametrize("dataset", PATHS)
def test_a_job_that_names_a_path_is_no_job(dataset: str) -> None:
    with pytest.raises(ValidationError, match="dataset"):
        Federation().job_spec(dataset=dataset)


def test_a_name_that_is_a_file_of_the_silos_is_no_dataset_unless_it_is_registered(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1")
    spec = silo.show(dataset="cardio.csv")  # a legal name, and a file that lies beside silo.yaml
    case = silo.registry().one(spec.digest, NOW).case
    assert [finding.rule for finding in case.findings] == ["dataset.unknown"]
    with pytest.raises(PolicyRefusal, match=r"dataset\.unknown"):
        silo.decide("ada")


@pytest.mark.parametrize("stated", ["", "   "])
def test_data_about_people_are_not_served_without_a_legal_basis(tmp_path: Path, stated: str) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1", datasets={"cardio": registered(legal_basis=stated)})
    with pytest.raises(ConfigurationError, match=r"datasets\.cardio\.legal_basis.*data_class is patient"):
        silo.desk()


def test_made_up_data_need_no_legal_basis(tmp_path: Path) -> None:
    text = policy_asking().replace("data_class: patient", "data_class: synthetic")
    silo = ApprovingSilo(tmp_path / "silo-1", text, datasets={"cardio": registered(legal_basis="")})
    silo.desk()


@pytest.mark.parametrize(("own", "least"), [(1, 50), (50, 50), (51, 51), (1000, 1000)])
def test_the_largest_minimum_of_records_holds(tmp_path: Path, own: int, least: int) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1", datasets={"cardio": registered(min_records=own)})
    policy = load_threat_model(silo.federation.policy_text)
    assert least_records(silo.settings.datasets["cardio"], (policy, policy)) == least


def test_a_registration_is_another_one_for_another_file_or_patient_column(tmp_path: Path) -> None:
    digests = set()
    for number, change in enumerate(({}, {"path": "b.csv"}, {"patient_id": "row"})):
        silo = ApprovingSilo(tmp_path / str(number), datasets={"cardio": registered(**change)})
        dataset = silo.settings.datasets["cardio"]
        same_place = dataset.model_copy(update={"path": Path("/data") / dataset.path.name})
        digests.add(registration_digest("cardio", same_place))
        digests.add(registration_digest("heart", same_place))
    assert len(digests) == 6
