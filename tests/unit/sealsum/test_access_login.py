"""Logging in: what the client asks of an issuer, what it refuses of it, and what it leaves on disk."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest
from click.testing import CliRunner

from privacy.errors import ConfigurationError, MalformedMessage
from sealsum.cli import cli
from sealsum.login.loopback import Loopback
from sealsum.login.oauth import Issuer, LoginRefused, Terms, Tokens, fresh_secret
from sealsum.login.store import Login, Logins
from silo_agent.problems import Unreachable

URL = "https://login.test"
TERMS = Terms("cardio", URL, "sealsum-cli", "urn:sealsum:cardio", ("openid", "offline_access"))
METADATA = {
    "issuer": URL,
    "authorization_endpoint": f"{URL}/auth",
    "token_endpoint": f"{URL}/token",
    "device_authorization_endpoint": f"{URL}/device",
}
GRANTED = {"access_token": "a", "refresh_token": "r", "token_type": "Bearer", "expires_in": 60}


def issuer(answers: list[tuple[int, Any]], asked: list[dict[str, str]], **metadata: Any) -> Issuer:
    """An issuer that gives these answers, one after the other."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/.well-known/openid-configuration":
            return httpx.Response(200, json=METADATA | metadata)
        asked.append(dict(parse_qsl(request.content.decode())))
        status, document = answers.pop(0)
        return httpx.Response(status, json=document)

    return Issuer(TERMS, None, httpx.MockTransport(answer))


def test_the_browser_is_sent_with_a_challenge_and_the_code_redeemed_with_its_verifier() -> None:
    asked: list[dict[str, str]] = []
    client = issuer([(200, GRANTED)], asked)
    verifier = fresh_secret()
    url = client.authorization_url("http://127.0.0.1:5/callback", "s", verifier)
    sent = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    assert (sent["code_challenge"], sent["code_challenge_method"]) == (challenge, "S256")
    assert (sent["response_type"], sent["resource"]) == ("code", TERMS.audience)
    assert verifier not in url
    tokens = client.redeem({"state": "s", "code": "c"}, "http://127.0.0.1:5/callback", "s", verifier)
    assert (tokens.access, tokens.refresh) == ("a", "r")
    assert asked[0]["code_verifier"] == verifier
    assert 43 <= len(verifier) <= 128


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"code": "c"}, "another login's state"),
        ({"code": "c", "state": "other"}, "another login's state"),
        ({"code": "c", "state": "s", "iss": "https://evil.test"}, "another issuer"),
        ({"state": "s", "error": "access_denied"}, "refused \\(access_denied\\)"),
    ],
)
def test_an_answer_to_another_login_or_of_another_issuer_is_not_redeemed(
    answer: dict[str, str], words: str
) -> None:
    asked: list[dict[str, str]] = []
    with pytest.raises(LoginRefused, match=words):
        issuer([], asked).redeem(answer, "http://127.0.0.1:5/callback", "s", "v")
    assert asked == []


def test_a_device_login_asks_as_slowly_as_it_is_told_to() -> None:
    asked: list[dict[str, str]] = []
    slept: list[float] = []
    code = {
        "device_code": "d",
        "user_code": "U",
        "verification_uri": f"{URL}/d",
        "expires_in": 90,
        "interval": 2,
    }
    pending, slow = (400, {"error": "authorization_pending"}), (400, {"error": "slow_down"})
    client = issuer([(200, code | {"interval": 2}), pending, slow, pending, (200, GRANTED)], asked)
    device = client.device_code()
    assert client.await_device(device, slept.append).access == "a"
    assert slept == [2, 2, 7, 7]
    assert "'d'" not in repr(device)


@pytest.mark.parametrize("error", ["access_denied", "expired_token"])
def test_a_device_login_ends_when_the_person_says_no(error: str) -> None:
    code = {"device_code": "d", "user_code": "U", "verification_uri": f"{URL}/d", "expires_in": 90}
    client = issuer([(200, code), (400, {"error": error})], [])
    with pytest.raises(LoginRefused, match=error):
        client.await_device(client.device_code(), lambda _: None)


def test_a_device_login_ends_by_itself() -> None:
    code = {"device_code": "d", "user_code": "U", "verification_uri": f"{URL}/d", "expires_in": 10}
    client = issuer([(200, code), *[(400, {"error": "authorization_pending"})] * 2], [])
    with pytest.raises(LoginRefused, match="nobody confirmed it in time"):
        client.await_device(client.device_code(), lambda _: None)


@pytest.mark.parametrize(
    "metadata", [{"issuer": "https://evil.test"}, {"token_endpoint": "http://login.test/token"}], ids=str
)
def test_an_issuer_that_is_another_or_takes_tokens_in_clear_is_refused(metadata: dict[str, str]) -> None:
    with pytest.raises(MalformedMessage, match=r"expected (metadata of|an https token_endpoint)"):
        issuer([(200, GRANTED)], [], **metadata).refreshed("r")


def test_an_issuer_without_tls_or_without_an_answer_says_so() -> None:
    def nothing(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=request)

    with pytest.raises(Unreachable, match="check proxy and --issuer-ca"):
        Issuer(TERMS, None, httpx.MockTransport(nothing))
    with pytest.raises(ConfigurationError, match="expected https://"):
        Issuer(Terms("f", "http://login.test", "c", "a", ()), None)


def test_the_loopback_takes_one_answer_and_tells_nothing_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    loopback = Loopback()
    got: list[int] = []

    def browser() -> None:
        for path in ("/favicon.ico", "/callback?code=c&state=s"):
            got.append(httpx.get(loopback.redirect_uri.replace("/callback", path)).status_code)

    thread = threading.Thread(target=browser)
    thread.start()
    assert loopback.wait(20) == {"code": "c", "state": "s"}
    thread.join()
    assert got == [404, 200]
    assert loopback.redirect_uri.startswith("http://127.0.0.1:")
    loopback.close()
    assert capfd.readouterr() == ("", "")


def test_a_browser_that_does_not_come_back_ends_the_login() -> None:
    loopback = Loopback()
    with pytest.raises(LoginRefused, match="did not come back in time"):
        loopback.wait(0.01)
    loopback.close()


def login(server: str = "https://server.test:7410", **changed: Any) -> Login:
    made = {
        "server": server,
        "ca": "PEM",
        "federation": "cardio",
        "issuer": URL,
        "issuer_ca": None,
        "client_id": "sealsum-cli",
        "audience": "urn:sealsum:cardio",
        "scopes": ("openid",),
        "access_token": "secret-access",
        "refresh_token": "secret-refresh",
        "expires_at": int(time.time()) + 600,
    }
    return Login(**(made | changed))


def test_a_login_is_kept_for_its_owner_alone_and_shows_no_token(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "logins")
    path = logins.keep(login())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "secret" not in repr(logins.of(None))
    assert "secret" not in repr(Tokens("secret", "secret", 0))
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="expected mode 0600 or tighter"):
        logins.of(None)


def test_of_several_logins_one_must_be_named(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "logins")
    with pytest.raises(ConfigurationError, match="not logged in to any server"):
        logins.of(None)
    logins.keep(login())
    assert logins.fresh(None).server == "https://server.test:7410"
    logins.keep(login("https://other.test"))
    with pytest.raises(ConfigurationError, match="logged in to https://other"):
        logins.of(None)
    assert logins.of("https://other.test:443/").server == "https://other.test"
    logins.forget("https://other.test")
    assert logins.of(None).server == "https://server.test:7410"


def test_a_login_that_is_over_and_cannot_be_refreshed_says_so(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "logins")
    logins.keep(login(expires_at=int(time.time()) + 10, refresh_token=None))
    with pytest.raises(LoginRefused, match="run sealsum login again"):
        logins.fresh(None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["whoami"], "not logged in to any server"),
        (["whoami", "--server", "http://server.test"], "expected https://host"),
        (["whoami", "--cert", "a.pem"], "expected both of the first"),
        (["token", "list", "--token-file", "x"], "--server, --ca: expected both"),
        (["logout"], "not logged in to any server"),
    ],
    ids=" ".join,
)
def test_a_command_that_lacks_something_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended = CliRunner().invoke(cli, words)
    assert ended.exit_code == 78, ended.output
    assert said in ended.output
