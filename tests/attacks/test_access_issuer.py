"""An issuer's documents that are another's, or hold keys that must not verify anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from aggregator.operators.issuer_keys import IssuerKeys, IssuerUnreachable
from aggregator.operators.oidc import AccessTokens
from aggregator.operators.settings import OidcSettings, OperatorsSettings
from privacy.errors import ConfigurationError, SignatureRejected
from tests.access_world import AUDIENCE, CLIENT, ISSUER, Issuer
from tests.aggregator_world import on_loop

SETTINGS = OidcSettings(issuer=ISSUER, client_id=CLIENT, audience=AUDIENCE)


def keys_from(document: Any, key_set: Any) -> IssuerKeys:
    """What a server would believe of an issuer with these two documents."""

    def answer(request: httpx.Request) -> httpx.Response:
        found = document if request.url.path.startswith("/.well-known") else key_set
        return httpx.Response(200, json=found)

    return IssuerKeys(SETTINGS, lambda: 0.0, httpx.MockTransport(answer))


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.test", "jwks_uri": f"{ISSUER}/jwks"},
        {"issuer": f"{ISSUER}/", "jwks_uri": f"{ISSUER}/jwks"},
        {"issuer": ISSUER, "jwks_uri": "http://login.test/jwks"},
        {"issuer": ISSUER, "jwks_uri": None},
        {"issuer": ISSUER},
        [],
    ],
    ids=str,
)
@on_loop
async def test_metadata_of_another_issuer_or_without_tls_is_not_believed(document: Any) -> None:
    issuer = Issuer()
    key_set = {"keys": [issuer.keys["k1"].as_dict(private=False)]}
    await keys_from({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks"}, key_set).key("k1")
    with pytest.raises(IssuerUnreachable, match=r"^issuer: "):
        await keys_from(document, key_set).key("k1")


@pytest.mark.parametrize("key_set", [{"keys": []}, {"keys": "x"}, {}, {"keys": [{"kty": "RSA"}]}], ids=str)
@on_loop
async def test_a_key_set_that_is_none_lets_nobody_in(key_set: Any) -> None:
    with pytest.raises(IssuerUnreachable, match="expected a key set"):
        await keys_from({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks"}, key_set).key("k1")


@on_loop
async def test_a_published_secret_or_an_encryption_key_verifies_nothing() -> None:
    issuer = Issuer()
    secret = OctKey.generate_key(256, {"kid": "shared"})
    for_encryption = issuer.keys["k1"].as_dict(private=False) | {"use": "enc", "kid": "enc"}
    del for_encryption["alg"]
    key_set = {"keys": [secret.as_dict(private=True), for_encryption]}
    tokens = AccessTokens(SETTINGS, keys_from({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks"}, key_set))
    made = jwt.encode({"alg": "HS256", "kid": "shared", "typ": "at+jwt"}, issuer.claims(), secret)
    with pytest.raises(SignatureRejected, match="expected alg one of RS256"):
        await tokens.judge(made)
    for kid in ("shared", "enc"):
        with pytest.raises(SignatureRejected, match="unknown one"):
            await tokens.judge(issuer.token(kid="k1", header={"kid": kid}))


def test_settings_that_would_let_the_wrong_ones_in_are_refused(tmp_path: Path) -> None:
    for changed, words in (
        ({"audience": CLIENT}, "as ID tokens have that"),
        ({"issuer": "http://login.test"}, "issuer"),
        ({"leeway_s": 3600}, "leeway_s"),
        ({"roles": {"g": "root"}}, "roles.g"),
        ({"typ": "none"}, "typ"),
        ({"client_secret": "x"}, "client_secret"),
    ):
        with pytest.raises(ValueError, match=words):
            OidcSettings.model_validate(
                {"issuer": ISSUER, "client_id": CLIENT, "audience": AUDIENCE} | changed
            )
    same = {"roles": ["dpo"], "verify_key": "0" * 64}
    with pytest.raises(ValueError, match="verify_key: expected another one for each person"):
        OperatorsSettings.model_validate({"people": {"ada": same, "bob": same}})
    with pytest.raises(ValueError, match="got neither"):
        OperatorsSettings.model_validate({"people": {"ada": {"roles": ["dpo"]}}})
    missing = SETTINGS.model_copy(update={"ca": tmp_path / "none.pem"})
    with pytest.raises(ConfigurationError, match=r"oidc\.ca"):
        IssuerKeys(missing, lambda: 0.0)
