"""An issuer of access tokens in memory, people registered at servers, and clients that show what they must.

The issuer's keys and tokens are real; only the network between it and the servers is not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from joserfc import jwt
from joserfc.jwk import ECKey, Key, RSAKey

from aggregator.access import Scope
from aggregator.assembly import Aggregator, AssembledShareServer, assemble_aggregator, assemble_share_server
from aggregator.operators.settings import OidcSettings, OperatorSettings, OperatorsSettings
from aggregator.settings import AggregatorSettings, ShareServerSettings
from privacy.canonical import canonical_bytes
from privacy.identity import SigningKey
from privacy.people import PERSON_ROLES, PersonRole
from tests.aggregator_world import AsTlsPeer, World
from tests.federation import Federation

ISSUER = "https://login.test"
CLIENT = "sealsum-cli"
AUDIENCE = "urn:sealsum:testfed"


@dataclass
class Issuer:
    """Signs whatever claims a test wants; publishes the public halves of ``published``."""

    keys: dict[str, Key] = field(default_factory=lambda: {"k1": _rsa("k1")})
    published: tuple[str, ...] = ("k1",)
    asked: list[str] = field(default_factory=list)
    down: bool = False

    @property
    def transport(self) -> httpx.MockTransport:
        """The issuer as its servers reach it."""
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        if self.down:
            raise httpx.ConnectError("no route", request=request)
        if request.url.path == "/.well-known/openid-configuration":
            return httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks"})
        keys = [self.keys[kid].as_dict(private=False) for kid in self.published]
        return httpx.Response(200, json={"keys": keys})

    def rotate(self) -> None:
        """Sign with, and publish, another key from now on."""
        name = f"k{len(self.keys) + 1}"
        self.keys[name] = ECKey.generate_key("P-256", {"kid": name, "use": "sig", "alg": "ES256"})
        self.published = (name,)

    def claims(self, **changed: Any) -> dict[str, Any]:
        """An access token's, as RFC 9068 has them; ``None`` leaves one out."""
        now = int(time.time())
        made = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "mail|ada@hospital.test",
            "client_id": CLIENT,
            "iat": now,
            "exp": now + 600,
            "jti": "1",
            "groups": ["cardio-auditors"],
        } | changed
        return {name: value for name, value in made.items() if value is not None}

    def token(self, *, header: dict[str, Any] | None = None, kid: str = "", **changed: Any) -> str:
        """A signed access token."""
        kid = kid or self.published[0]
        key = self.keys[kid]
        made = {"alg": "RS256" if isinstance(key, RSAKey) else "ES256", "kid": kid, "typ": "at+jwt"}
        return jwt.encode(made | (header or {}), self.claims(**changed), key)


def _rsa(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


def group(role: PersonRole) -> str:
    """The issuer's group that has this role."""
    return f"cardio-{role}s"


@dataclass
class AccessWorld:
    """Servers with people: one registered by certificate for each role, and the issuer's groups."""

    root: Path
    issuer: Issuer = field(default_factory=Issuer)
    extra: dict[str, OperatorSettings] = field(default_factory=dict)
    policy_text: str | None = None
    operators_ca: Path | None = None
    oidc_changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World(self.root, Federation(policy_text=self.policy_text))
        self.keys = {role: SigningKey.generate() for role in PERSON_ROLES}

    @property
    def people(self) -> dict[str, Any]:
        """The two sections of server.yaml."""
        registered = {
            f"person-{role.replace('_', '-')}": OperatorSettings(roles=(role,), verify_key=key.verify_key)
            for role, key in self.keys.items()
        }
        oidc = {
            "issuer": ISSUER,
            "client_id": CLIENT,
            "audience": AUDIENCE,
            "roles": {group(role): role for role in PERSON_ROLES},
        }
        return {
            "operators": OperatorsSettings(ca=self.operators_ca, people={**registered, **self.extra}),
            "oidc": OidcSettings.model_validate(oidc | self.oidc_changes),
        }

    def register(self, name: str, **told: Any) -> None:
        """Register one more person, for servers that are built from now on."""
        self.extra[name] = OperatorSettings.model_validate(told)

    def aggregator(self) -> Aggregator:
        """An aggregator, not running a loop."""
        settings = AggregatorSettings(state_dir=self.root / "aggregator", listen="127.0.0.1:0", **self.people)
        return assemble_aggregator(settings, issuer=self.issuer.transport)

    def share_server(self) -> AssembledShareServer:
        """The first share server."""
        self.world.servers["server-0"].store.close()
        settings = ShareServerSettings(state_dir=self.root / "server-0", listen="127.0.0.1:0", **self.people)
        self.world.servers["server-0"] = assemble_share_server(settings, self.issuer.transport)
        return self.world.servers["server-0"]

    def certificate(self, role: PersonRole) -> bytes:
        """The client certificate of the registered person of this role."""
        return self.world.federation.certificate_der(f"person-{role}", self.keys[role])

    def client(self, app: FastAPI, der: bytes | None = None, token: str | None = None) -> httpx.AsyncClient:
        """A client that shows a certificate, a token, both or none."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.AsyncClient(
            transport=AsTlsPeer(app, der), base_url="https://server.test", headers=headers, timeout=30
        )

    async def api_token(
        self, app: FastAPI, role: PersonRole, scopes: tuple[Scope, ...], days: int = 7, label: str = "a test"
    ) -> str:
        """A token that the site admin issues over the API."""
        async with self.client(app, self.certificate("site_admin")) as client:
            wanted = {"role": role, "scopes": list(scopes), "days": days, "label": label}
            answer = await client.post("/v1/tokens", content=canonical_bytes(wanted))
            assert answer.status_code == 201, answer.text
            return str(answer.json()["token"])
