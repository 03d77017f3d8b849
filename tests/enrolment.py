"""A founded federation on disk and its guests, for tests of enrolment."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from aggregator.enrolment.authority import Authority, found_alone
from aggregator.enrolment.invitations import Guest, invite
from aggregator.enrolment.messages import EnrolRequest, Invitation
from aggregator.enrolment.registrar import Registrar
from policies.loader import load_threat_model
from privacy.identity import SealingKey, SigningKey
from privacy.roster import SEALED_TO, Role
from tests.federation import demo_policy_text

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
REGISTRAR_URL = "https://localhost:9443"


def found(
    directory: Path, name: str = "cardio-net", now: dt.datetime = NOW, scheme: str = "additive"
) -> Authority:
    """A federation under the demo's policy for a scheme."""
    return found_alone(directory, name, load_threat_model(demo_policy_text(scheme)), now)


def registrar_of(authority: Authority) -> Registrar:
    """Its registrar, without a network."""
    return Registrar(authority.federation, authority.certificate_authority(), authority.register)


def guest(party: str, role: Role = "silo", operator: str = "", legal_entity: str = "") -> Guest:
    """A party as the officer would describe it."""
    url = f"https://{party}.example.org:8443" if role in ("aggregator", "share_server") else ""
    return Guest(party, role, legal_entity or f"Institution {party}", operator or f"Operator {party}", url)


def invited(authority: Authority, who: Guest, now: dt.datetime = NOW, replace: bool = False) -> Invitation:
    """Its token, good for a day."""
    return invite(authority, who, REGISTRAR_URL, now, DAY, replace)


def csr(key: SigningKey, name: str = "whoever") -> str:
    """A certificate request signed by ``key``."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key.private, None)
    return request.public_bytes(Encoding.PEM).decode()


@dataclass(frozen=True)
class Applicant:
    """A party with fresh keys and a token."""

    invitation: Invitation
    key: SigningKey
    sealing: SealingKey | None

    @staticmethod
    def of(invitation: Invitation) -> Applicant:
        """Keys as the party makes them."""
        sealing = SealingKey.generate() if invitation.role in SEALED_TO else None
        return Applicant(invitation, SigningKey.generate(), sealing)

    @property
    def request(self) -> EnrolRequest:
        """What an honest party sends."""
        return EnrolRequest(
            party=self.invitation.party,
            secret=self.invitation.secret,
            csr=csr(self.key),
            sealing_key=self.sealing.public_hex if self.sealing is not None else "",
        )


ROSTER: tuple[Guest, ...] = (
    *(guest(f"hospital-{letter}") for letter in "abcd"),
    guest("coordinator", "aggregator"),
    guest("share-a", "share_server"),
    guest("share-b", "share_server"),
    guest("researcher", "researcher", legal_entity="Institution hospital-a"),
)
"""Enough for the demo's policy."""


def enrol_all(authority: Authority, roster: tuple[Guest, ...] = ROSTER) -> dict[str, Applicant]:
    """Invite and enrol everybody."""
    registrar = registrar_of(authority)
    applicants = {who.party: Applicant.of(invited(authority, who)) for who in roster}
    for applicant in applicants.values():
        registrar.enrol(applicant.request, NOW)
    return applicants
