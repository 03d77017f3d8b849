"""An issuer's access token, judged: signature, issuer, audience, client, times, then groups as roles."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws, jwt
from joserfc.errors import ClaimError, JoseError

from aggregator.operators.issuer_keys import IssuerKeys
from aggregator.operators.settings import ALGORITHMS, OidcSettings
from privacy.errors import SignatureRejected
from privacy.people import PersonRole

AGAIN: Final = "; run sealsum login again"


@dataclass(frozen=True)
class Vouched:
    """What the issuer says of the person."""

    subject: str
    roles: frozenset[PersonRole]
    expires_at: int


class AccessTokens:
    """Access tokens of one issuer for one federation."""

    def __init__(
        self, settings: OidcSettings, keys: IssuerKeys, now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._now = now

    async def judge(self, token: str) -> Vouched:
        """Believe a token, or refuse it; checks, in this order (RFC 9068, section 4; RFC 8725):

        (1) its header names a signature that is taken, the type of an access token, and a key by id alone;
        (2) the issuer has that key; (3) the signature is that key's; (4) issuer, audience and subject;
        (5) expiry, issue and start, with the leeway; (6) it was issued to our client.

        Raises:
            SignatureRejected: any of these; the token is never repeated. IssuerUnreachable: (2).
        """
        # (1)
        header = _header(token)
        kid = header.get("kid")
        if header.get("alg") not in ALGORITHMS or not isinstance(kid, str) or "crit" in header:
            raise SignatureRejected(
                f"access token: expected alg one of {', '.join(ALGORITHMS)}, a kid and no crit; got another "
                "header"
            )
        wanted = self._settings.typ.lower()
        typ = str(header.get("typ", "")).lower().removeprefix("application/")
        if typ != wanted:
            raise SignatureRejected(f"access token: expected typ {wanted}; is it an ID token?")
        # (2)
        key = await self._keys.key(kid)
        # (3)
        try:
            claims = jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError) as error:
            raise SignatureRejected("access token: its signature is not the issuer's" + AGAIN) from error
        self._judge_claims(claims)
        return Vouched(str(claims["sub"]), self._roles(claims), int(claims["exp"]))

    def _judge_claims(self, claims: Mapping[str, Any]) -> None:
        expected = jwt.JWTClaimsRegistry(
            now=lambda: int(self._now()),
            leeway=self._settings.leeway_s,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.audience},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        # (4), (5); the message names the claim and repeats no value
        try:
            expected.validate(dict(claims))
        except ClaimError as error:
            raise SignatureRejected(
                f"access token: {error.claim} is not what this federation takes ({error.error}){AGAIN}"
            ) from error
        # (6) client_id is RFC 9068's name, azp that of OpenID Connect
        client = claims.get("client_id", claims.get("azp"))
        if client != self._settings.client_id:
            raise SignatureRejected("access token: expected one issued to this federation's client" + AGAIN)

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[PersonRole]:
        """Roles of the groups that are mapped; anything but a list of names there means none."""
        found: Any = claims
        for step in self._settings.roles_claim:
            found = found.get(step) if isinstance(found, Mapping) else None
        names = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
        return frozenset(self._settings.roles[name] for name in names if name in self._settings.roles)


def _header(token: str) -> dict[str, Any]:
    try:
        if token.count(".") != 2:
            raise ValueError("not a compact JWS")
        return dict(jws.extract_compact(token.encode()).headers())
    except (JoseError, ValueError) as error:
        raise SignatureRejected(
            "access token: expected a signed JWT, or an API token of this server"
        ) from error
