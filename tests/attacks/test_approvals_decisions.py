"""Attacks on a silo's own approval: who is not asked, decides twice, or asks herself gets no job to run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from policies.findings import PolicyRefusal
from privacy.approval import sign_approval
from privacy.identity import SigningKey
from tests.approval_world import NOW, ApprovingSilo, edited, policy_asking
from tests.silo_yaml import registered


@pytest.fixture
def silo(tmp_path: Path) -> ApprovingSilo:
    return ApprovingSilo(tmp_path / "silo-1")


def test_no_round_begins_before_anybody_has_decided(silo: ApprovingSilo) -> None:
    spec = silo.show()
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
    silo.decide("ada")
    silo.train(spec)


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 3},
        {"dataset": "other"},
        {"min_silos": 4},
        {"round_deadline_s": 31},
        {"job": "heart-2"},
    ],
)
def test_a_job_changed_after_its_approval_is_another_job(
    silo: ApprovingSilo, change: dict[str, object]
) -> None:
    spec = silo.show()
    silo.decide("ada")
    silo.train(spec)
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(silo.federation.job_spec(**change))


def test_a_signed_approval_moved_beside_a_changed_job_is_refused_by_the_files_name(
    silo: ApprovingSilo,
) -> None:
    spec = silo.show()
    silo.decide("ada")
    dearer = silo.show(rounds=3)
    target = silo.file(dearer)
    target.parent.mkdir()
    target.write_bytes(silo.file(spec).read_bytes())
    with pytest.raises(PolicyRefusal, match=rf"approvals/{dearer.digest}/0001\.json.*not what a person"):
        silo.train(dearer)


@pytest.mark.parametrize(
    "change",
    [
        {"rounds_max": 1000},
        {"expires_at": "2099-01-01T00:00:00Z"},
        {"decision": "approve"},
        {"by": "ben", "role": "data_steward"},
        {"epsilon_job": "0.001"},
    ],
)
def test_an_edited_decision_is_refused_by_name(silo: ApprovingSilo, change: dict[str, object]) -> None:
    spec = silo.show()
    silo.decide("ada", decision="reject")
    path = silo.file(spec)
    path.write_bytes(edited(path.read_bytes(), **change))
    with pytest.raises(PolicyRefusal, match=r"approval\.damaged.*0001\.json"):
        silo.train(spec)


def test_a_key_that_is_not_the_persons_is_refused_by_name(silo: ApprovingSilo) -> None:
    spec = silo.show()
    forged = silo.unsigned("ada")
    silo.forge(spec, sign_approval(forged, SigningKey.generate()))
    with pytest.raises(PolicyRefusal, match="the key that is registered for its author"):
        silo.train(spec)


def test_a_stranger_with_a_good_signature_counts_for_nothing(silo: ApprovingSilo) -> None:
    spec = silo.show()
    forged = silo.unsigned("ada", by="mallory")
    silo.forge(spec, sign_approval(forged, SigningKey.generate()))
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


def test_a_rule_cannot_be_forged_with_a_persons_key(tmp_path: Path) -> None:
    silo = ApprovingSilo(
        tmp_path / "silo-1",
        policy_asking(automatic="allowed"),
        approval_rules={"all": {"researchers": ["nobody"], "datasets": ["cardio"]}},
    )
    spec = silo.show()
    forged = silo.unsigned("ada", by="all", role="rule")
    silo.forge(spec, sign_approval(forged, silo.keys["ada"]))
    with pytest.raises(PolicyRefusal, match="the key that is registered for its author"):
        silo.train(spec)


def test_another_silos_approval_is_refused_by_name(silo: ApprovingSilo) -> None:
    spec = silo.show()
    other = silo.unsigned("ada", silo="silo-2")
    silo.forge(spec, sign_approval(other, silo.keys["ada"]))
    with pytest.raises(PolicyRefusal, match="one for silo-2: replayed"):
        silo.train(spec)


def test_an_expired_approval_stops_the_job_at_its_next_round(silo: ApprovingSilo) -> None:
    spec = silo.show()
    silo.decide("ada", days=2)
    silo.train(spec, NOW + timedelta(days=2, seconds=-1))
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec, NOW + timedelta(days=2))


def test_a_rejection_after_approvals_stops_the_job_and_outlives_a_restart(silo: ApprovingSilo) -> None:
    spec = silo.show()
    silo.decide("ada")
    silo.decide("cleo", decision="reject", now=NOW + timedelta(minutes=5))
    with pytest.raises(PolicyRefusal, match=r"approval\.rejected"):
        silo.train(spec)  # a desk of its own each time, as after a restart


def test_a_decision_taken_out_of_the_middle_is_noticed(silo: ApprovingSilo) -> None:
    spec = silo.show()
    silo.decide("cleo", decision="reject")
    silo.decide("ada")
    silo.file(spec, 1).unlink()
    with pytest.raises(PolicyRefusal, match="a file was removed or renamed"):
        silo.train(spec)


def test_a_rejection_that_is_deleted_is_missed_because_the_silos_log_names_it(silo: ApprovingSilo) -> None:
    spec = silo.show()
    silo.decide("ada")
    silo.decide("cleo", decision="reject")
    silo.file(spec, 2).unlink()
    with pytest.raises(PolicyRefusal, match="every decision that was taken, as the silo's log names them"):
        silo.train(spec)


def test_a_decision_that_vanishes_while_the_agent_runs_is_missed_though_nobody_logged_it(
    silo: ApprovingSilo,
) -> None:
    spec = silo.show()
    silo.forge(spec, sign_approval(silo.unsigned("ada"), silo.keys["ada"]))
    silo.forge(spec, sign_approval(silo.unsigned("ben"), silo.keys["ben"]))
    desk, job = silo.desk(), silo.signed(spec)
    desk.assert_approved(job, NOW)
    silo.file(spec, 2).unlink()
    with pytest.raises(PolicyRefusal, match="none: removed"):
        desk.assert_approved(job, NOW)


def test_whoever_signed_the_job_does_not_approve_it_under_another_name(silo: ApprovingSilo) -> None:
    spec = silo.show()
    researcher = silo.federation.key("researcher")
    people = {"ada": {"roles": ["dpo"], "verify_key": researcher.verify_key}}
    silo.write(people=people)
    with pytest.raises(PolicyRefusal, match="whoever asks does not approve"):
        silo.decide("ada", key=researcher)
    assert not silo.file(spec).exists()


def test_whoever_bears_the_researchers_name_does_not_approve(silo: ApprovingSilo) -> None:
    silo.show()
    key = silo.keys["ada"]
    silo.write(people={"researcher": {"roles": ["dpo"], "verify_key": key.verify_key}})
    with pytest.raises(PolicyRefusal, match="bears the researcher's name"):
        silo.decide("researcher", key=key)


def test_an_approval_by_the_requester_that_was_put_on_the_disk_does_not_count(silo: ApprovingSilo) -> None:
    spec = silo.show()
    researcher = silo.federation.key("researcher")
    genuine = silo.unsigned("ada")
    silo.write(people={"ada": {"roles": ["dpo"], "verify_key": researcher.verify_key}})
    silo.forge(spec, sign_approval(genuine, researcher))
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


def test_one_person_is_one_approver_however_often_and_in_however_many_roles(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1", policy_asking(n=2))
    spec = silo.show()
    silo.decide("dora", role="dpo")
    silo.decide("dora", role="data_steward")
    silo.decide("dora", role="dpo")
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
    silo.decide("ben")
    silo.train(spec)


def test_two_people_of_one_role_are_not_two_pairs_of_eyes(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1", policy_asking(n=2))
    spec = silo.show()
    silo.decide("ada")
    silo.decide("dora", role="dpo")
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


@pytest.mark.parametrize(("name", "rule"), [("cleo", r"approval\.role"), ("mallory", r"approval\.person")])
def test_who_has_no_role_for_it_does_not_approve(silo: ApprovingSilo, name: str, rule: str) -> None:
    spec = silo.show()
    with pytest.raises(PolicyRefusal, match=rule):
        silo.decide(name, key=silo.keys["cleo"])
    assert not silo.file(spec).exists()


def test_a_colleague_who_is_a_researcher_does_not_approve_her_own_institutions_job(tmp_path: Path) -> None:
    silo = ApprovingSilo(tmp_path / "silo-1")
    spec = silo.show()
    assert silo.decide("eve").standing.state == "approved", "the researcher is of another institution"
    assert silo.file(spec).exists()
    house = silo.registry().office.bench.silo.model_copy(update={"legal_entity": "University"})
    registry = silo.registry()
    bench = registry.office.bench
    object.__setattr__(bench, "silo", house)
    with pytest.raises(PolicyRefusal, match="is a researcher of University, which asks"):
        registry.decide(registry.one("heart", NOW), "approve", "eve", silo.keys["eve"], NOW, 30)


def test_a_person_who_lost_her_role_or_left_takes_her_approval_along(silo: ApprovingSilo) -> None:
    spec = silo.show()
    silo.decide("ada")
    key = silo.keys["ada"].verify_key
    silo.write(people={"ada": {"roles": ["auditor"], "verify_key": key}})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
    silo.write(people={})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)


def test_a_job_whose_data_were_swapped_under_the_same_name_needs_a_new_approval(silo: ApprovingSilo) -> None:
    spec = silo.show()
    silo.decide("ada")
    (silo.root / "other.csv").write_text("patient,age,pressure,num\n")
    silo.write(datasets={"cardio": registered(path="other.csv")})
    with pytest.raises(PolicyRefusal, match=r"approval\.missing"):
        silo.train(spec)
