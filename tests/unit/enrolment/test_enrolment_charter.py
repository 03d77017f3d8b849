"""A charter is what the pinned officers signed for this federation, and never an older one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aggregator.enrolment.authority import Authority, found_alone
from aggregator.enrolment.chartering import roster_findings
from aggregator.enrolment.governing import seal_charter
from policies.findings import PolicyInvalid, PolicyRefusal
from policies.loader import load_threat_model, policy_digest
from privacy.errors import ConfigurationError, Conflict, OutOfOrder, SignatureRejected
from privacy.ids import PartyId
from privacy.roster import Charter
from privacy.wire.charter import EndorsedCharter, open_charter, succeed_charter
from tests.enrolment import NOW, ROSTER, enrol_all, found, guest, invited
from tests.federation import Federation, demo_policy_text


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return found(tmp_path / "fed")


def sealed(authority: Authority) -> Charter:
    enrol_all(authority)
    return seal_charter(authority, drop_pending=False)


def endorsed(authority: Authority) -> EndorsedCharter:
    found_there = authority.endorsed_charter()
    assert found_there is not None
    return found_there


def test_a_sealed_charter_opens_under_the_pinned_officers(authority: Authority) -> None:
    charter = sealed(authority)
    assert open_charter(endorsed(authority), authority.card.officers, "cardio-net").charter == charter
    assert charter.epoch == 1
    assert charter.previous is None
    assert charter.silos == ("hospital-a", "hospital-b", "hospital-c", "hospital-d")
    assert charter.share_servers == ("share-a", "share-b")
    assert charter.policy == authority.policy().digest


def test_a_charter_of_other_officers_is_refused(authority: Authority, tmp_path: Path) -> None:
    sealed(authority)
    other = found(tmp_path / "other")
    with pytest.raises(SignatureRejected, match="not among the versions shown"):
        open_charter(endorsed(authority), other.card.officers, "cardio-net")


def test_a_charter_of_another_federation_is_refused(authority: Authority) -> None:
    sealed(authority)
    with pytest.raises(SignatureRejected, match=r"officers\.federation: expected bank-net, got cardio-net"):
        open_charter(endorsed(authority), authority.card.officers, "bank-net")


def test_a_lower_epoch_is_never_taken_back(authority: Authority) -> None:
    sealed(authority)
    first = authority.in_force()
    assert first is not None
    seal_charter(authority, drop_pending=False)
    second = authority.in_force()
    assert second is not None
    assert (first.charter.epoch, second.charter.epoch) == (1, 2)
    assert second.charter.previous == first.charter.digest
    assert succeed_charter(None, first) is first
    assert succeed_charter(first, second) is second
    with pytest.raises(OutOfOrder, match="expected 2 or later, got 1"):
        succeed_charter(second, first)


def test_two_charters_of_one_epoch_are_a_conflict(authority: Authority) -> None:
    charter = sealed(authority)
    held = authority.in_force()
    assert held is not None
    other = Charter.model_validate(charter.model_dump() | {"members": charter.members[1:]})
    same = Charter.model_validate(charter.model_dump())
    assert succeed_charter(held, dataclasses.replace(held, charter=same)) is held
    with pytest.raises(Conflict, match="two different ones"):
        succeed_charter(held, dataclasses.replace(held, charter=other))


@pytest.mark.parametrize(
    ("absent", "rule"),
    [
        ({"coordinator"}, "roster.aggregator"),
        ({"researcher"}, "roster.researcher"),
        ({"share-b"}, "roster.share_servers"),
        ({"hospital-a", "hospital-b"}, "roster.silos"),
    ],
)
def test_a_roster_the_policy_cannot_be_kept_with_is_not_sealed(
    authority: Authority, absent: set[str], rule: str
) -> None:
    enrol_all(authority, tuple(who for who in ROSTER if who.party not in absent))
    with pytest.raises(PolicyRefusal) as refusal:
        seal_charter(authority, drop_pending=False)
    assert [finding.rule for finding in refusal.value.findings] == [rule]
    assert authority.in_force() is None


def test_share_servers_of_one_operator_are_not_sealed(authority: Authority) -> None:
    roster = tuple(
        dataclasses.replace(who, operator="One IT firm") if who.role == "share_server" else who
        for who in ROSTER
    )
    enrol_all(authority, roster)
    with pytest.raises(PolicyRefusal, match=r"roster\.operators"):
        seal_charter(authority, drop_pending=False)


@pytest.mark.parametrize("scheme", ["pairwise", "bfv", "ckks"])
def test_a_federation_with_one_server_is_sealed_without_share_servers(tmp_path: Path, scheme: str) -> None:
    authority = found(tmp_path / "fed", scheme=scheme)
    enrol_all(authority, tuple(who for who in ROSTER if who.role != "share_server"))
    charter = seal_charter(authority, drop_pending=False)
    assert charter.share_servers == ()
    assert all(charter.member(silo).sealing_key for silo in charter.silos), (
        "peers seal shares and keys to silos"
    )


def test_a_share_server_that_would_hold_nothing_is_not_sealed(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed", scheme="pairwise")
    enrol_all(authority)
    with pytest.raises(PolicyRefusal, match=r"roster\.share_servers.*aggregator is the one server"):
        seal_charter(authority, drop_pending=False)


def test_more_silos_than_pairwise_carries_are_not_sealed() -> None:
    policy = load_threat_model(demo_policy_text("pairwise")).model
    federation = Federation(silos=101, servers=0)
    found_rules = [finding.rule for finding in roster_findings(policy, federation.charter.members)]
    assert found_rules == ["roster.silos_beyond_scheme"]
    assert list(roster_findings(policy, Federation(silos=100, servers=0).charter.members)) == []


def test_silos_of_one_institution_count_once(authority: Authority) -> None:
    roster = tuple(
        dataclasses.replace(who, legal_entity="One hospital trust") if who.role == "silo" else who
        for who in ROSTER
    )
    enrol_all(authority, roster)
    with pytest.raises(PolicyRefusal, match=r"roster\.silos"):
        seal_charter(authority, drop_pending=False)


def test_sealing_waits_for_open_invitations_unless_they_are_dropped(authority: Authority) -> None:
    enrol_all(authority)
    invited(authority, guest("hospital-late"))
    with pytest.raises(ConfigurationError, match="pending invitations: hospital-late"):
        seal_charter(authority, drop_pending=False)
    charter = seal_charter(authority, drop_pending=True)
    assert "hospital-late" not in charter.silos
    assert authority.register.find(PartyId("hospital-late")) is None


def test_a_charter_carries_the_parents_of_its_policy_so_that_every_party_can_judge_it(tmp_path: Path) -> None:
    parent = demo_policy_text().replace("rounds_max: 100", "rounds_max: 90")
    child = parent.replace(
        "metadata: {name: demo-hospitals, version: 1}",
        f"metadata: {{name: child, version: 1, extends: 'sha256:{policy_digest(parent)}'}}",
    )
    founded = found_alone(tmp_path / "fed", "cardio-net", load_threat_model(child, [parent]), NOW)
    charter = sealed(founded)
    assert charter.policy_parents == (parent,)
    with pytest.raises(PolicyInvalid, match="extends_unknown"):
        load_threat_model(charter.policy_text)
    assert load_threat_model(charter.policy_text, charter.policy_parents).digest == charter.policy
