"""A silo that took part without the approvals that the policy asks for is named by the verifier."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sealsum_verify.encoding import Fault
from sealsum_verify.threat_model import Approvals, approvals_asked
from sealsum_verify.verify import Report, verify_pack

from policies.loader import load_threat_model
from privacy.identity import SigningKey
from privacy.roster import Role
from tests.attacks.test_pack_decisions import pack_with
from tests.evidence_pack import Records
from tests.federation import Federation, demo_policy_text
from tests.handover import decision, handover

SILO, FILE = "silo-1", "silos/silo-1.json"
PLACE = f"{FILE} at rounds/0001.json"
ADA, BEN, EVE = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
PEOPLE = {"ada": ADA, "ben": BEN}
BEFORE, LATER = "2026-01-02T03:04:04Z", "2026-01-02T03:04:06Z"
DEMO = demo_policy_text()
(ASKED,) = (line for line in DEMO.splitlines() if "approvals:" in line)
Approve = Callable[..., dict[str, Any]]


def records_under(approvals: str) -> Records:
    federation = Federation(policy_text=DEMO.replace(ASKED, f"    approvals: {approvals}"))
    records = Records(federation, federation.job_spec(rounds=1))
    records.add_round(1, job_state="finished")
    return records


@pytest.fixture(scope="module")
def two() -> Records:
    return records_under("{n: 2, roles: [data_steward, dpo], automatic: refused}")


def judged(records: Records, *said: dict[str, Any], **shown: Any) -> Report:
    people = shown.pop("people", PEOPLE)
    return verify_pack(pack_with(records, handover(records, SILO, list(said), people, **shown)))


def fault_of(report: Report, place: str = PLACE) -> str:
    assert report.fault is not None
    assert (report.fault.entry, report.passed) == (place, 12)
    return report.fault.sentence


def yes(records: Records, by: str, role: str, **changes: Any) -> dict[str, Any]:
    return decision(records, SILO, by, role, {**PEOPLE, "eve": EVE}[by], **changes)


def test_two_people_in_two_roles_approve(two: Records) -> None:
    report = judged(two, yes(two, "ada", "data_steward"), yes(two, "ben", "dpo"))
    assert report.verified, report.fault
    assert report.summary["approved"] == {SILO: 2}


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (None, ""),
        (partial(yes, by="ben", role="data_steward"), ""),
        (partial(yes, by="ada", role="dpo"), ""),
        (partial(yes, by="ben", role="security"), "decision 1 is by security, whom the policy does not ask"),
        (partial(yes, by="ben", role="dpo", expires_at=BEFORE), f"decision 1 expired at {BEFORE}"),
        (partial(yes, by="ben", role="dpo", at=LATER), ""),
    ],
    ids=["dropped", "same role", "same person", "wrong role", "expired", "given afterwards"],
)
def test_one_of_two_approvals_is_too_few_whatever_stands_in_for_the_other(
    two: Records, second: Approve | None, why: str
) -> None:
    said = [yes(two, "ada", "data_steward"), *([] if second is None else [second(two)])]
    found = fault_of(judged(two, *said, roles=("data_steward", "dpo", "security")))
    assert "1 of the 2 approvals" in found
    assert why in found


@pytest.mark.parametrize("named", ["researcher", "ben"])
def test_whoever_asks_does_not_approve_by_name_or_by_key(two: Records, named: str) -> None:
    """The researcher's key under another name, and another key under the researcher's."""
    key = BEN if named == "researcher" else two.federation.key("researcher")
    said = [yes(two, "ada", "data_steward"), decision(two, SILO, named, "dpo", key)]
    found = fault_of(judged(two, *said, people={"ada": ADA, named: key}))
    assert f"decision 1 is by {named}, who asked for the job" in found


class HomeFederation(Federation):
    """One whose researcher works at the first hospital."""

    def _add(self, name: str, role: Role, entity: str) -> None:
        super()._add(name, role, "Hospital 1" if name == "researcher" else entity)


def test_a_researchers_colleague_who_is_a_researcher_too_does_not_approve() -> None:
    records = Records(federation := HomeFederation(), federation.job_spec(rounds=1))
    records.add_round(1, job_state="finished")
    said = yes(records, "ada", "dpo")
    assert "ada, who asked" in fault_of(judged(records, said, roles=("dpo", "researcher")))
    assert judged(records, said, roles=("dpo",)).verified


def test_a_rule_decides_nothing_where_the_policy_refuses_rules(two: Records) -> None:
    found = fault_of(judged(two, decision(two, SILO, "all", "rule", two.federation.key(SILO))))
    assert "0 of the 2 approvals" in found
    assert "decision 0 is a rule's, which the policy refuses" in found


def test_two_names_for_one_key_are_one_person(two: Records) -> None:
    said = [yes(two, "ada", "data_steward"), decision(two, SILO, "ben", "dpo", ADA)]
    assert "share one key" in fault_of(judged(two, *said, people={"ada": ADA, "ben": ADA}), FILE)


def test_a_rejection_before_the_round_ends_it_and_a_later_one_does_not(two: Records) -> None:
    both = yes(two, "ada", "data_steward", at=BEFORE), yes(two, "ben", "dpo", at=BEFORE)
    no = partial(yes, two, "ada", "data_steward", decision="reject")
    assert "after ada had rejected" in fault_of(judged(two, *both, no(at=BEFORE)))
    assert judged(two, *both, no(at=LATER)).verified
    assert judged(two, no(at=BEFORE), *both).verified, "she changed her mind in time"


def test_an_expired_approval_that_was_renewed_in_time_counts(two: Records) -> None:
    ada = yes(two, "ada", "data_steward")
    stale = yes(two, "ben", "dpo", at=BEFORE, expires_at=BEFORE)
    assert judged(two, ada, stale, yes(two, "ben", "dpo")).verified


def test_a_silo_that_took_no_part_needs_no_approval() -> None:
    records = records_under("{n: 2, roles: [data_steward, dpo], automatic: refused}")
    absent = Records(records.federation, records.job)
    absent.add_round(1, absent=(SILO,), job_state="finished")
    report = judged(absent, yes(absent, "ada", "dpo"))
    assert report.verified, report.fault


def test_a_policy_that_says_nothing_of_approvals_asks_for_one_person() -> None:
    federation = Federation(policy_text=DEMO.replace(ASKED + "\n", ""))
    records = Records(federation, federation.job_spec(rounds=1))
    records.add_round(1, job_state="finished")
    assert judged(records, yes(records, "ada", "dpo")).verified
    own = records.federation.key(SILO)
    assert "0 of the 1" in fault_of(judged(records, decision(records, SILO, "all", "rule", own)))


@pytest.mark.parametrize(
    "written",
    [
        "approvals: {n: 2, roles: [dpo, security], automatic: refused}",
        "approvals:\n      n: 2\n      roles: [dpo, security]",
        "approvals:\n      roles:\n        - dpo\n        - 'security'\n      n: 2",
        "approvals:\n      roles:\n      - dpo\n      - security\n      n: 2",
    ],
)
def test_the_verifier_reads_a_policys_approvals_as_the_platform_does(written: str) -> None:
    text = DEMO.replace(ASKED.strip().split("  #")[0], written)
    asked = load_threat_model(text).model.spec.require.approvals
    assert approvals_asked(text) == Approvals(asked.n, asked.roles, asked.automatic == "allowed")


@pytest.mark.parametrize("written", ["{n: 4}", "{roles: []}", "{roles: dpo}", "{roles: {a: b}}", "[dpo]"])
def test_approvals_in_a_form_that_the_verifier_does_not_read_are_a_fault(written: str) -> None:
    with pytest.raises(Fault, match=r"require\.approvals"):
        approvals_asked(DEMO.replace(ASKED, f"    approvals: {written}"))
