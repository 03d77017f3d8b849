"""How an officer invites a party: a row in the register and a one-time token to hand over."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from aggregator.enrolment.authority import Authority
from aggregator.enrolment.messages import Invitation
from aggregator.enrolment.register import RegisteredParty
from aggregator.enrolment.registrar import secret_digest
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.roster import SEALED_TO, Member, Role
from privacy.wire.envelope import BROADCAST

REGISTRAR = PartyId("registrar")
RESERVED = frozenset({PartyId("officer"), BROADCAST, REGISTRAR})
"""Names with a meaning of their own in envelopes and certificates."""
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Guest:
    """Who is to be invited, in the officer's words."""

    party: str
    role: Role
    legal_entity: str
    operator: str
    url: str
    """Where others dial: servers only."""


def invite(
    authority: Authority, guest: Guest, registrar_url: str, now: datetime, ttl: timedelta, replace: bool
) -> Invitation:
    """Record an invitation and return its token; the register keeps only a digest of the secret.

    Raises:
        ConfigurationError: a term that no charter could hold, or the name is taken.
    """
    _check(guest)
    secret = secrets.token_hex(_SECRET_BYTES)
    expires_at = (now + ttl).isoformat(timespec="seconds")
    try:
        invitation = Invitation(
            federation=authority.federation,
            party=PartyId(guest.party),
            role=guest.role,
            registrar=registrar_url.rstrip("/"),
            ca=authority.ca_pem,
            officers=authority.officers_in_force().digest,
            secret=secret,
            expires_at=expires_at,
        )
    except ValidationError as error:
        raise ConfigurationError(
            f"registrar-url: expected https://host:port, got {registrar_url!r}"
        ) from error
    invited = RegisteredParty(
        party=invitation.party,
        role=guest.role,
        legal_entity=guest.legal_entity,
        operator=guest.operator,
        url=guest.url.rstrip("/"),
        secret_digest=secret_digest(secret),
        expires_at=expires_at,
    )
    authority.register.invite(invited, replace)
    return invitation


def _check(guest: Guest) -> None:
    """A charter's own rules, asked now instead of when it is sealed."""
    if guest.party in RESERVED:
        raise ConfigurationError(f"party: {guest.party!r} is reserved; choose another name")
    if guest.url and guest.role in ("silo", "researcher"):
        raise ConfigurationError(f"url: a {guest.role} only dials out; leave it away")
    try:
        Member(
            id=PartyId(guest.party),
            role=guest.role,
            legal_entity=guest.legal_entity,
            operator=guest.operator,
            verify_key=SigningKey.generate().verify_key,
            sealing_key="00" if guest.role in SEALED_TO else "",
            url=guest.url,
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = ".".join(str(step) for step in fault["loc"])
        raise ConfigurationError(f"{field or 'party'}: {fault['msg']}") from error
