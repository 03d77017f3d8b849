"""Access tokens that an issuer did not mean for us, and proofs that do not belong together."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc import jwt
from joserfc.jwk import RSAKey

from aggregator.operators.issuer_keys import IssuerKeys
from aggregator.operators.oidc import AccessTokens
from privacy.errors import SignatureRejected
from privacy.identity import SigningKey
from tests.access_world import CLIENT, AccessWorld, Issuer, group
from tests.aggregator_world import on_loop

NOW = int(time.time())


def compact(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A JWS by hand: libraries refuse to make what the attacks need."""
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims)]
    signature = base64.urlsafe_b64encode(sign(b".".join(parts))).rstrip(b"=")
    return b".".join([*parts, signature]).decode()


def unsigned(issuer: Issuer) -> str:
    """``alg: none``, as if that were a signature."""
    return compact({"alg": "none", "kid": "k1", "typ": "at+jwt"}, issuer.claims(), lambda _: b"")


def with_public_key_as_secret(issuer: Issuer) -> str:
    """HS256 under the PEM of the public key, which everybody has."""
    public = issuer.keys["k1"].as_pem(False)
    header = {"alg": "HS256", "kid": "k1", "typ": "at+jwt"}
    return compact(header, issuer.claims(), lambda text: hmac.digest(public, text, "sha256"))


def with_own_key_in_header(issuer: Issuer) -> str:
    """Signed by a key that the header carries itself, under the issuer's key id."""
    own = RSAKey.generate_key(2048, {"kid": "k1"})
    header = {"alg": "RS256", "kid": "k1", "typ": "at+jwt", "jwk": own.as_dict(private=False)}
    return jwt.encode(header, issuer.claims(), own)


def with_altered_claims(issuer: Issuer) -> str:
    """A good signature over other claims."""
    header, _, signature = issuer.token().split(".")
    _, other, _ = issuer.token(groups=["cardio-site_admins"]).split(".")
    return f"{header}.{other}.{signature}"


FORGED = [unsigned, with_public_key_as_secret, with_own_key_in_header, with_altered_claims]


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
@on_loop
async def test_a_token_that_the_issuer_did_not_sign_opens_nothing(tmp_path: Path, forge: Any) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    async with world.client(app, token=forge(world.issuer)) as client:
        answer = await client.get("/v1/whoami")
    assert answer.status_code == 401, answer.text
    assert answer.json()["type"] == "urn:sealsum:signature-rejected"


FOR_OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "of another issuer": ({"iss": "https://login.example"}, "iss"),
    "without an issuer": ({"iss": None}, "iss"),
    "of another federation": ({"aud": "urn:sealsum:otherfed"}, "aud"),
    "an ID token": ({"aud": CLIENT}, "aud"),
    "without an audience": ({"aud": None}, "aud"),
    "of another client": ({"client_id": "payroll"}, "client"),
    "of another client, OpenID's way": ({"client_id": None, "azp": "payroll"}, "client"),
    "of no client": ({"client_id": None}, "client"),
    "expired": ({"exp": NOW - 120}, "exp"),
    "without an end": ({"exp": None}, "exp"),
    "that starts later": ({"nbf": NOW + 600}, "nbf"),
    "issued in the future": ({"iat": NOW + 600}, "iat"),
    "without a subject": ({"sub": None}, "sub"),
}


@pytest.mark.parametrize(("changed", "named"), FOR_OTHERS.values(), ids=FOR_OTHERS)
@on_loop
async def test_a_good_signature_over_the_wrong_claim_opens_nothing(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    world = AccessWorld(tmp_path)
    token = world.issuer.token(**changed)
    async with world.client(world.aggregator().app, token=token) as client:
        answer = await client.get("/v1/whoami")
    assert answer.status_code == 401, answer.text
    assert named in answer.json()["detail"]
    assert token not in answer.text


@pytest.mark.parametrize("header", [{"typ": "JWT"}, {"typ": None}, {"kid": None}, {"kid": 7}], ids=str)
@on_loop
async def test_a_header_that_is_no_access_tokens_opens_nothing(
    tmp_path: Path, header: dict[str, Any]
) -> None:
    world = AccessWorld(tmp_path)
    made = {"alg": "RS256", "kid": "k1", "typ": "at+jwt"} | header
    whole = {name: value for name, value in made.items() if value is not None}
    key = world.issuer.keys["k1"].private_key
    token = compact(
        whole, world.issuer.claims(), lambda text: key.sign(text, padding.PKCS1v15(), hashes.SHA256())
    )
    async with world.client(world.aggregator().app, token=token) as client:
        assert (await client.get("/v1/whoami")).status_code == 401


@on_loop
async def test_groups_that_are_not_mapped_give_no_role(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    for groups in (
        ["site_admin"],
        ["cardio-site_admin", "admin"],
        "cardio-site_admins",
        {"cardio-site_admins": 1},
        None,
    ):
        token = world.issuer.token(groups=groups, roles=["site_admin"], role="site_admin")
        async with world.client(app, token=token) as client:
            for path in ("/v1/whoami", "/v1/tokens", "/v1/charter"):
                answer = await client.get(path)
                assert answer.status_code == 403, (groups, path, answer.text)
                assert "this caller has no role here" in answer.json()["detail"]


@on_loop
async def test_an_unknown_key_id_asks_the_issuer_once_and_not_at_every_call(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    world.issuer.keys["unknown"] = RSAKey.generate_key(2048, {"kid": "unknown"})
    async with world.client(app, token=world.issuer.token()) as client:
        assert (await client.get("/v1/whoami")).status_code == 200
    asked = len(world.issuer.asked)
    async with world.client(app, token=world.issuer.token(kid="unknown")) as client:
        for _ in range(5):
            assert (await client.get("/v1/whoami")).status_code == 401
    assert len(world.issuer.asked) == asked


@on_loop
async def test_a_key_that_the_issuer_has_withdrawn_is_believed_for_ten_minutes(
    tmp_path: Path,
) -> None:
    world = AccessWorld(tmp_path)
    clock = [0.0]
    oidc = world.people["oidc"]
    tokens = AccessTokens(oidc, IssuerKeys(oidc, lambda: clock[0], world.issuer.transport))
    old = world.issuer.token()
    await tokens.judge(old)
    world.issuer.rotate()
    clock[0] = 599.0
    await tokens.judge(old)
    clock[0] = 601.0
    with pytest.raises(SignatureRejected, match="expected a key id of the issuer's"):
        await tokens.judge(old)
    assert (await tokens.judge(world.issuer.token())).subject == "mail|ada@hospital.test"


@on_loop
async def test_a_new_key_is_fetched_when_a_token_names_it(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    clock = [0.0]
    oidc = world.people["oidc"]
    tokens = AccessTokens(oidc, IssuerKeys(oidc, lambda: clock[0], world.issuer.transport))
    await tokens.judge(world.issuer.token())
    world.issuer.rotate()
    clock[0] = 31.0
    await tokens.judge(world.issuer.token())


@on_loop
async def test_an_issuer_that_does_not_answer_lets_nobody_in(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    world.issuer.down = True
    async with world.client(world.aggregator().app, token=world.issuer.token()) as client:
        answer = await client.get("/v1/whoami")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:sealsum:issuer-unreachable")


@on_loop
async def test_a_certificate_and_a_token_of_two_people_are_neither(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    app = world.aggregator().app
    auditor = world.certificate("auditor")
    admin = world.issuer.token(groups=[group("site_admin")])
    silo = world.world.federation.certificate_der("silo-1")
    stranger = world.world.federation.certificate_der("silo-1", SigningKey.generate())
    api_token = await world.api_token(app, "auditor", ("jobs",))
    for der, token, words in (
        (auditor, admin, "of one person"),
        (silo, admin, "of one person"),
        (auditor, api_token, "of one person"),
        (stranger, admin, "not in the roster"),
    ):
        async with world.client(app, der, token) as client:
            answer = await client.get("/v1/whoami")
            assert answer.status_code == 403, answer.text
            assert words in answer.json()["detail"]


@on_loop
async def test_a_person_may_show_her_certificate_beside_her_own_token(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    key = SigningKey.generate()
    world.register("ada", roles=("dpo",), verify_key=key.verify_key, subject="mail|ada")
    app = world.aggregator().app
    token = world.issuer.token(sub="mail|ada", groups=[group("auditor")])
    async with world.client(app, world.world.federation.certificate_der("ada", key), token) as client:
        answer = (await client.get("/v1/whoami")).json()
    assert (answer["name"], answer["roles"], answer["by"]) == ("ada", ["auditor", "dpo"], "oidc")


@pytest.mark.parametrize(
    "value",
    [
        "Basic YTpi",
        "Bearer",
        "Bearer ",
        "bearer x y",
        "Bearer " + "a" * 9000,
        "sealsum_000000000000_" + "0" * 64,
    ],
    ids=["basic", "empty", "blank", "two", "long", "no scheme"],
)
@on_loop
async def test_an_odd_authorization_header_is_nobodys(tmp_path: Path, value: str) -> None:
    world = AccessWorld(tmp_path)
    async with world.client(world.aggregator().app) as client:
        answer = await client.get("/v1/whoami", headers={"authorization": value})
        assert answer.status_code == 401, answer.text


@on_loop
async def test_two_tokens_in_one_request_are_nobodys(tmp_path: Path) -> None:
    world = AccessWorld(tmp_path)
    good = f"Bearer {world.issuer.token(groups=[group('auditor')])}"
    async with world.client(world.aggregator().app) as client:
        answer = await client.get("/v1/whoami", headers=[("authorization", good), ("authorization", good)])
    assert answer.status_code == 401
