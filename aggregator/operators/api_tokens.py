"""API tokens: 256 random bits for a program, of one role and some of its endpoints, that end by themselves.

Shown once, kept as SHA-256. A fast hash is right here, as it would not be for passwords: stretching makes
a *guessable* secret dear to guess, and nobody guesses 256 bits of the operating system's generator.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field, field_validator
from sqlalchemy import insert, select, update

from aggregator.access import API_TOKEN_SCOPES, Scope
from aggregator.operators.operator import Operator, Pseudonyms, TokenEnded
from aggregator.operators.repeats import RepeatKey, answered_before, remember
from aggregator.store import Reader, Store
from aggregator.tables import api_tokens
from privacy.canonical import Frozen, canonical_bytes, sha256_hex
from privacy.errors import NotFound, SignatureRejected, Unprocessable
from privacy.people import PersonRole

PREFIX: Final = "sealsum_"
"""By which secret scanners know one that lies where it should not."""
TOKEN: Final = re.compile(PREFIX + r"([0-9a-f]{12})_([0-9a-f]{64})", re.ASCII)
SEEN_S: Final = 60
"""How exactly the last use is kept: one write a minute, however many calls."""
_DAY_S: Final = 86_400
_REFUSED: Final = (
    "API token: expected one that this server issued and that is neither over nor revoked; ask a site admin "
    "for another"
)


class TokenRequest(Frozen):
    """What a site admin asks for."""

    role: PersonRole
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    days: Annotated[int, Field(ge=1)]
    label: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f]+$")]

    @field_validator("scopes")
    @classmethod
    def _can_be_given_away(cls, scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
        if not set(scopes) <= API_TOKEN_SCOPES:
            raise ValueError(f"expected of {', '.join(sorted(API_TOKEN_SCOPES))}; a token issues no tokens")
        return tuple(sorted(set(scopes)))


@dataclass(frozen=True)
class IssuedToken:
    """A new token, in clear this once."""

    id: str
    text: str = field(repr=False)
    expires_at: int


class ApiTokens:
    """The tokens of one server. Unix seconds."""

    def __init__(self, store: Store, pseudonyms: Pseudonyms, days_max: int, now: Callable[[], float]) -> None:
        self._store = store
        self._pseudonyms = pseudonyms
        self._days_max = days_max
        self._now = now

    def issue(self, wanted: TokenRequest, by: Operator, key: RepeatKey | None = None) -> IssuedToken:
        """Make one; its entry in the log, its row and what a repeated call is answered are one transaction.

        Raises:
            Unprocessable: it would live longer than this server allows; or ``key`` was another call's.
        """
        if wanted.days > self._days_max:
            raise Unprocessable(
                f"token.days: expected at most {self._days_max} (operators.token_days_max), got {wanted.days}"
            )
        issued_at = int(self._now())
        expires_at = issued_at + wanted.days * _DAY_S
        name, secret = secrets.token_hex(6), secrets.token_hex(32)
        row = {
            "id": name,
            "digest": _digest(secret),
            "role": wanted.role,
            "scopes": json.dumps(wanted.scopes),
            "label": wanted.label,
            "issued_by": by.pseudonym,
            "issued_at": issued_at,
            "expires_at": expires_at,
            "revoked_at": 0,
            "used_at": 0,
        }
        call = sha256_hex(
            b"sealsum/token/v1\x00" + canonical_bytes([by.pseudonym, wanted.model_dump(mode="json")])
        )
        issued = IssuedToken(name, f"{PREFIX}{name}_{secret}", expires_at)
        if key is not None:
            with self._store.read() as view:
                before = answered_before(view, key, call, issued_at)
            if before is not None:
                return IssuedToken(**json.loads(before))
        with self._store.write() as transaction:
            if key is not None:
                remember(transaction, key, call, canonical_bytes(asdict(issued)), issued_at)
            transaction.connection.execute(insert(api_tokens).values(row))
            transaction.record(
                "token_issued",
                token=name,
                role=wanted.role,
                scopes=list(wanted.scopes),
                person=by.pseudonym,
                expires_at=expires_at,
            )
        return issued

    def judge(self, text: str) -> Operator:
        """Whose token this is; checks: (1) its form; (2) its secret, in constant time; (3) it is neither
        revoked nor over. An unknown id costs a comparison too, and all refusals read the same.

        Raises:
            SignatureRejected: (1), (2). TokenEnded: (3).
        """
        # (1)
        match = TOKEN.fullmatch(text)
        with self._store.read() as view:
            row = None if match is None else _row(view, match[1])
        # (2)
        kept = row.digest if row is not None else _digest("")
        right = hmac.compare_digest(kept, _digest(match[2] if match is not None else "none"))
        now = int(self._now())
        if row is None or not right:
            raise SignatureRejected(_REFUSED)
        subject = f"token:{row.id}"
        pseudonym = self._pseudonyms.of(subject)
        # (3)
        if row.revoked_at or now >= row.expires_at:
            raise TokenEnded(pseudonym, _REFUSED)
        if now - row.used_at >= SEEN_S:
            with self._store.write() as transaction:
                used = update(api_tokens).where(api_tokens.c.id == row.id).values(used_at=now)
                transaction.connection.execute(used)
        return Operator(
            subject,
            pseudonym,
            f"API token {row.id} ({row.label})",
            frozenset({row.role}),
            "api_token",
            scopes=frozenset(json.loads(row.scopes)),
            expires_at=row.expires_at,
        )

    def revoke(self, name: str, by: Operator) -> None:
        """End a token now. Doing it twice is once.

        Raises:
            NotFound: there is none of that id.
        """
        with self._store.write() as transaction:
            row = _row(transaction, name)
            if row is None:
                raise NotFound(f"token {name}: there is none of this id; sealsum token list shows them")
            if row.revoked_at:
                return
            ended = update(api_tokens).where(api_tokens.c.id == name).values(revoked_at=int(self._now()))
            transaction.connection.execute(ended)
            transaction.record("token_revoked", token=name, person=by.pseudonym)

    def listed(self) -> list[dict[str, Any]]:
        """All tokens ever issued, the newest first; neither secrets nor their digests."""
        with self._store.read() as view:
            rows = view.connection.execute(
                select(api_tokens).order_by(api_tokens.c.issued_at.desc(), api_tokens.c.id)
            ).all()
        return [
            {
                "id": row.id,
                "role": row.role,
                "scopes": json.loads(row.scopes),
                "label": row.label,
                "issued_by": row.issued_by,
                "issued_at": row.issued_at,
                "expires_at": row.expires_at,
                "revoked_at": row.revoked_at or None,
                "used_at": row.used_at or None,
            }
            for row in rows
        ]


def _row(view: Reader, name: str) -> Any:
    return view.connection.execute(select(api_tokens).where(api_tokens.c.id == name)).one_or_none()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
