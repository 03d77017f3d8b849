"""A federation is founded once, its keys are private, and its invitations hold what a charter can hold."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from aggregator.enrolment.authority import load_authority
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.roster import Role
from tests.enrolment import NOW, Applicant, found, guest, invited, registrar_of


def test_every_private_file_is_for_its_owner_only(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    assert stat.S_IMODE(authority.directory.stat().st_mode) == 0o700
    for name in ("ca.key", "officer.key", "register.db"):
        assert stat.S_IMODE((authority.directory / name).stat().st_mode) == 0o600


def test_a_federation_is_founded_once(tmp_path: Path) -> None:
    before = found(tmp_path / "fed").card
    with pytest.raises(ConfigurationError, match="expected an empty directory"):
        found(tmp_path / "fed")
    assert load_authority(tmp_path / "fed").card == before


def test_a_name_that_is_no_name_founds_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="name: expected lower-case letters"):
        found(tmp_path / "fed", name="Cardio Net")
    assert not (tmp_path / "fed").exists()


def test_a_readable_ca_key_is_not_used(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    (authority.directory / "ca.key").chmod(0o640)
    with pytest.raises(ConfigurationError, match="expected mode 0600"):
        authority.certificate_authority()


def test_an_officers_that_nobody_pinned_signs_nothing(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    path = authority.directory / "officer.key"
    path.write_bytes(SigningKey.generate().to_pem())
    with pytest.raises(ConfigurationError, match="expected an officer's key"):
        authority.officer()


def test_a_policy_altered_after_founding_is_judged_again(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    path = authority.directory / "policy.yaml"
    path.write_text(path.read_text() + "\nunknown: 1\n")
    with pytest.raises(ConfigurationError, match="unknown"):
        authority.policy()


@pytest.mark.parametrize("name", ["officer", "all", "registrar"])
def test_reserved_names_are_not_invited(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="reserved"):
        invited(found(tmp_path / "fed"), guest(name))


def test_a_party_is_invited_once_unless_the_officer_voids_that(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    first = Applicant.of(invited(authority, guest("hospital-a")))
    with pytest.raises(ConfigurationError, match="invited or enrolled already"):
        invited(authority, guest("hospital-a"))
    registrar_of(authority).enrol(first.request, NOW)
    second = Applicant.of(invited(authority, guest("hospital-a"), replace=True))
    row = authority.register.find(PartyId("hospital-a"))
    assert row is not None
    assert row.enrolled_at is None
    registrar_of(authority).enrol(second.request, NOW)


@pytest.mark.parametrize(
    ("party", "role", "url", "message"),
    [
        ("hospital-a", "silo", "https://hospital-a", "only dials out"),
        ("share-a", "share_server", "http://share-a", "expected an https:// url"),
        ("share-a", "share_server", "", "expected an https:// url"),
        ("Hospital A", "silo", "", "id"),
    ],
)
def test_a_guest_no_charter_could_hold_is_not_invited(
    tmp_path: Path, party: str, role: Role, url: str, message: str
) -> None:
    authority = found(tmp_path / "fed")
    who = guest("x", role)
    with pytest.raises(ConfigurationError, match=message):
        invited(authority, type(who)(party, role, who.legal_entity, who.operator, url))
    assert authority.register.parties() == ()
