"""The registrar's one decision: does this request hold an unused invitation and the key it asks to certify?

Knows no HTTP. The party's private key is never here; only a request signed by it.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aggregator.enrolment.certificates import CertificateAuthority, Subject, chain_pem, requested_key
from aggregator.enrolment.messages import EnrolAnswer, EnrolRequest
from aggregator.enrolment.register import Register, RegisteredParty
from privacy.canonical import sha256_hex
from privacy.errors import NotAllowed, SignatureRejected, Unprocessable
from privacy.identity import sealing_public_key
from privacy.ids import Digest
from privacy.renewal import Renewed, SignedRenewal, check_renewal, party_uri
from privacy.roster import SEALED_TO
from privacy.tls_delegation import delegated

WRONG_SECRETS_MAX = 5
"""After so many wrong secrets an invitation is void. 256-bit secrets are not guessed in any number of
tries; the count makes an attack visible to the officer, at the price of a new invitation."""
LEAF_LIFE = timedelta(days=90)
_NOBODYS_SECRET = Digest("0" * 64)
"""Compared with where there is no such party, so that the answer takes as long; no secret hashes to it."""


@dataclass(frozen=True)
class Registrar:
    """Issues certificates to invited parties of one federation."""

    federation: str
    authority: CertificateAuthority
    register: Register
    leaf_life: timedelta = LEAF_LIFE

    def enrol(self, request: EnrolRequest, now: datetime) -> EnrolAnswer:
        """Issue a certificate, after these steps, in this order:

        (1) the secret is that of this party's invitation, compared in constant time; an unknown party and
        a wrong secret get the same answer; (2) the invitation is not void, used or expired; (3) the
        request proves possession of an Ed25519 key; (4) a sealing key comes with share servers, and only
        with them; (5) the invitation is used up, atomically and on disk; (6) only then is a certificate
        made, for names that the registrar chose.

        Raises:
            SignatureRejected: (1), (3). NotAllowed: (2), (5). Unprocessable: (3), (4). Conflict: (5).
        """
        invited = self._authenticated(request)  # (1)
        _still_open(invited, now)  # (2)
        public_key = requested_key(request.csr)  # (3)
        subject = Subject(self.federation, invited.party, hosts_of(invited.url))
        statement = bytes.fromhex(request.delegation)
        verify_key, life = _identity_key(subject, public_key, statement, now, self.leaf_life)
        _sealing_key_fits(invited, request.sealing_key)  # (4)
        self.register.use_up(  # (5)
            invited.party,
            invited.secret_digest,
            verify_key,
            request.sealing_key,
            now.isoformat(timespec="seconds"),
        )
        leaf = self.authority.issue(subject, public_key, now, life, statement)  # (6)
        return EnrolAnswer(chain=chain_pem([leaf, self.authority.certificate]))

    def renew(self, asked: SignedRenewal, authorities: Authorities, now: datetime) -> Renewed:
        """Issue another certificate to an enrolled party, after these steps, in this order:

        (1) the party is enrolled and not revoked: an unknown and a revoked one get one answer;
        (2) its identity key signed the request, for this federation, just now; (3) the request proves
        possession of the certificate's key, which is that identity key or one it vouches for; (4) the
        names in the certificate are the registrar's, as at enrolment.

        Raises:
            SignatureRejected: (1), (2), (3). MalformedMessage, Unprocessable: (3).
        """
        # (1)
        party = self.register.find(asked.renewal.party)
        if party is None or party.verify_key is None or party.verify_key in authorities.revoked:
            raise SignatureRejected(f"renewal: no party {asked.renewal.party} is enrolled with this key")
        # (2)
        check_renewal(asked, party.verify_key, self.federation, now)
        # (3)
        public_key = requested_key(asked.renewal.csr)
        subject = Subject(self.federation, party.party, hosts_of(party.url))
        statement = bytes.fromhex(asked.renewal.delegation)
        verify_key, life = _identity_key(subject, public_key, statement, now, self.leaf_life)
        if verify_key != party.verify_key:
            raise SignatureRejected("csr: expected the enrolled identity key, or one that it vouches for")
        # (4)
        leaf = self.authority.issue(subject, public_key, now, life, statement)
        return Renewed(leaf=chain_pem([leaf]), authorities=authorities.pem, rollover=authorities.rollover_pem)

    def _authenticated(self, request: EnrolRequest) -> RegisteredParty:
        invited = self.register.find(request.party)
        expected = invited.secret_digest if invited is not None else _NOBODYS_SECRET
        matches = hmac.compare_digest(secret_digest(request.secret), expected)
        if invited is None or not matches:
            if invited is not None:
                self.register.count_wrong_secret(invited.party)
            raise SignatureRejected(
                f"invitation: there is none for party {request.party} with this secret; check the token file"
            )
        return invited


@dataclass(frozen=True)
class Authorities:
    """What a registrar tells of CAs, and whom it renews no more."""

    pem: str
    """CAs in force, the issuing one first."""
    rollover_pem: str
    revoked: Collection[str]
    """Keys that the charter in force revokes."""


def _identity_key(
    subject: Subject, public_key: Ed25519PublicKey, statement: bytes, now: datetime, life: timedelta
) -> tuple[str, timedelta]:
    """The key that the charter will pin, the certificate's own or the one that vouches for it; and how long
    the certificate may live: no longer than it is vouched for.

    Raises:
        SignatureRejected: the statement does not hold, or has ended.
    """
    if not statement:
        return public_key.public_bytes_raw().hex(), life
    word = delegated(statement, party_uri(subject.federation, subject.party), public_key)
    if word.until <= now:
        raise SignatureRejected("delegation: expected one that holds still; set the party's clock")
    return word.verify_key, min(life, word.until - now)


def secret_digest(secret: str) -> Digest:
    """What the register keeps of an invitation's secret."""
    return sha256_hex(b"sealsum/invitation/v1\x00" + bytes.fromhex(secret))


def hosts_of(url: str) -> tuple[str, ...]:
    """The host others dial, for a server's certificate; none for a party without a url."""
    host = urlsplit(url).hostname
    return () if host is None else (host,)


def _still_open(invited: RegisteredParty, now: datetime) -> None:
    faults: Sequence[tuple[bool, str]] = (
        (invited.wrong_secrets >= WRONG_SECRETS_MAX, "it is void after too many wrong secrets"),
        (invited.enrolled_at is not None, "it is used already"),
        (now >= datetime.fromisoformat(invited.expires_at), f"it expired at {invited.expires_at}"),
    )
    for holds, words in faults:
        if holds:
            raise NotAllowed(f"invitation of {invited.party}: {words}; ask the officer for a new one")


def _sealing_key_fits(invited: RegisteredParty, sealing_key: str) -> None:
    if (invited.role in SEALED_TO) != bool(sealing_key):
        raise Unprocessable(
            f"sealing_key: expected one from {' and '.join(SEALED_TO)} only, "
            f"and {invited.party} is a {invited.role}"
        )
    if sealing_key:
        sealing_public_key(sealing_key)
