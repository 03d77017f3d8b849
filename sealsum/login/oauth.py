"""An OAuth 2.0 public client of the issuer: the code flow with PKCE, the device flow, refreshing.

Two ways, each by its RFC: authorization code with PKCE over a loopback redirect (RFC 8252, RFC 7636), and
device authorization (RFC 8628). There is no client secret, as a command line cannot keep one. Tokens are
not looked into: they are meant for the servers, which judge them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import httpx

from privacy.errors import ConfigurationError, MalformedMessage, NotAllowed
from silo_agent.problems import Unreachable

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_TIMEOUT_S: Final = 30.0
_BYTES_MAX: Final = 1 << 20
_SLOWER_S: Final = 5.0
"""RFC 8628, section 3.5: what ``slow_down`` adds to the interval."""


@dataclass(frozen=True)
class Terms:
    """What a server says of its login (``GET /v1/login``)."""

    federation: str
    issuer: str
    client_id: str
    audience: str
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class Tokens:
    """What the issuer gave. Unix seconds."""

    access: str = field(repr=False)
    refresh: str | None = field(repr=False)
    expires_at: int


@dataclass(frozen=True)
class DeviceCode:
    """A login that a person has to confirm elsewhere."""

    code: str = field(repr=False)
    user_code: str
    where: str
    """Where to confirm it; with the user code in it, if the issuer offers that."""
    expires_in: float
    interval: float


class LoginRefused(NotAllowed):
    """The person, or the issuer, said no; or nobody answered in time."""

    kind = "login-refused"


class Issuer:
    """The issuer of one server's terms, by its discovery document."""

    def __init__(
        self,
        terms: Terms,
        ca: str | None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """``ca`` is PEM; the system's CAs if ``None``. ``transport`` replaces the network as httpx means it.

        Raises:
            ConfigurationError: the issuer is not https, or ``ca`` is no certificate.
            Unreachable: it does not answer. MalformedMessage: its metadata is another's, or lacks something.
        """
        self._terms = terms
        if not terms.issuer.startswith("https://"):
            raise ConfigurationError(f"issuer: expected https://…, got {terms.issuer!r}")
        try:
            trust = ssl.create_default_context(cadata=ca)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError("--issuer-ca: expected CA certificates in PEM") from error
        self._http = httpx.Client(verify=trust, timeout=_TIMEOUT_S, transport=transport)
        found = self._json("GET", terms.issuer.rstrip("/") + "/.well-known/openid-configuration")[1]
        # OpenID Connect Discovery 1.0, section 4.3
        if found.get("issuer") != terms.issuer:
            raise MalformedMessage(f"issuer: expected metadata of {terms.issuer}, got another's")
        self._metadata = found

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- code flow ---

    def authorization_url(self, redirect_uri: str, state: str, verifier: str) -> str:
        """Where the browser goes (RFC 6749, 4.1.1; RFC 7636, 4.3; RFC 8707)."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self._terms.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._terms.scopes),
            "state": state,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
            "resource": self._terms.audience,
        }
        if "offline_access" in self._terms.scopes:
            query["prompt"] = "consent"  # OpenID Connect Core 1.0, section 11
        return f"{self._endpoint('authorization_endpoint')}?{urlencode(query)}"

    def redeem(self, answer: Mapping[str, str], redirect_uri: str, state: str, verifier: str) -> Tokens:
        """Turn the browser's answer into tokens; checks, in this order:

        (1) it answers our request, and no other; (2) it is of this issuer, where it says (RFC 9207);
        (3) it carries a code.

        Raises:
            LoginRefused: any of these, or the issuer refuses the code.
        """
        # (1)
        if not hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
            raise LoginRefused("login: the browser came back with another login's state; start again")
        # (2)
        if answer.get("iss", self._terms.issuer) != self._terms.issuer:
            raise LoginRefused("login: the browser came back from another issuer; start again")
        # (3)
        if "code" not in answer:
            raise LoginRefused(f"login: {self._terms.issuer} refused ({answer.get('error', 'no code')})")
        return self._tokens(
            {
                "grant_type": "authorization_code",
                "code": answer["code"],
                "redirect_uri": redirect_uri,
                "code_verifier": verifier,
            }
        )

    # --- device flow ---

    def device_code(self) -> DeviceCode:
        """Begin a login that is confirmed on another device (RFC 8628, 3.1).

        Raises:
            LoginRefused: the issuer does not do that.
        """
        asked = {"scope": " ".join(self._terms.scopes), "resource": self._terms.audience}
        status, found = self._post("device_authorization_endpoint", asked)
        if status != httpx.codes.OK:
            raise LoginRefused(f"login: the issuer refused a device code ({_words(found)}); try --browser")
        try:
            return DeviceCode(
                str(found["device_code"]),
                str(found["user_code"]),
                str(found.get("verification_uri_complete") or found["verification_uri"]),
                float(found["expires_in"]),
                float(found.get("interval", 5)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedMessage("issuer: expected a device code (RFC 8628, section 3.2)") from error

    def await_device(self, device: DeviceCode, sleep: Callable[[float], None] = time.sleep) -> Tokens:
        """Ask until the person has decided, no more often than the issuer wants (RFC 8628, 3.4 and 3.5).

        Raises:
            LoginRefused: she said no, or let it pass.
        """
        interval, waited = device.interval, 0.0
        while waited < device.expires_in:
            sleep(interval)
            waited += interval
            asked = {"grant_type": DEVICE_GRANT, "device_code": device.code}
            status, found = self._post("token_endpoint", asked | {"resource": self._terms.audience})
            if status == httpx.codes.OK:
                return _read_tokens(found)
            if found.get("error") == "slow_down":
                interval += _SLOWER_S
            elif found.get("error") != "authorization_pending":
                raise LoginRefused(f"login: the issuer refused ({_words(found)}); start again")
        raise LoginRefused("login: nobody confirmed it in time; start again")

    # --- both ---

    def refreshed(self, refresh: str) -> Tokens:
        """New tokens for a refresh token; it may be used up by this.

        Raises:
            LoginRefused: it is over or revoked.
        """
        fresh = self._tokens({"grant_type": "refresh_token", "refresh_token": refresh})
        return fresh if fresh.refresh is not None else Tokens(fresh.access, refresh, fresh.expires_at)

    def revoke(self, refresh: str) -> None:
        """Tell the issuer that a refresh token is over (RFC 7009), where it takes that."""
        if "revocation_endpoint" in self._metadata:
            self._post("revocation_endpoint", {"token": refresh, "token_type_hint": "refresh_token"})

    def _tokens(self, asked: dict[str, str]) -> Tokens:
        status, found = self._post("token_endpoint", asked | {"resource": self._terms.audience})
        if status != httpx.codes.OK:
            raise LoginRefused(f"login: the issuer refused ({_words(found)}); run sealsum login again")
        return _read_tokens(found)

    def _post(self, endpoint: str, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        return self._json("POST", self._endpoint(endpoint), asked | {"client_id": self._terms.client_id})

    def _endpoint(self, name: str) -> str:
        found = self._metadata.get(name)
        if not isinstance(found, str) or not found.startswith("https://"):
            raise MalformedMessage(f"issuer: expected an https {name} in its metadata")
        return found

    def _json(self, method: str, url: str, form: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        try:
            with self._http.stream(method, url, data=form) as response:
                raw = b""
                for chunk in response.iter_bytes():
                    raw += chunk
                    if len(raw) > _BYTES_MAX:
                        raise MalformedMessage(f"issuer: expected at most {_BYTES_MAX} bytes of an answer")
                status = response.status_code
        except httpx.HTTPError as error:
            raise Unreachable(
                f"issuer {self._terms.issuer}: no answer ({type(error).__name__}); "
                "check proxy and --issuer-ca"
            ) from error
        try:
            document = json.loads(raw or b"{}")
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise MalformedMessage(f"issuer: expected a JSON object, got another answer ({status})")
        return status, document


def fresh_secret() -> str:
    """A state or a code verifier: 256 bits, 43 characters (RFC 7636, 4.1)."""
    return secrets.token_urlsafe(32)


def _read_tokens(found: dict[str, Any]) -> Tokens:
    access, refresh = found.get("access_token"), found.get("refresh_token")
    if not isinstance(access, str) or str(found.get("token_type", "")).lower() != "bearer":
        raise MalformedMessage("issuer: expected a bearer access token in its answer")
    lasts = found.get("expires_in", 300)
    return Tokens(
        access,
        refresh if isinstance(refresh, str) else None,
        int(time.time()) + (int(lasts) if isinstance(lasts, int | float) else 300),
    )


def _words(found: dict[str, Any]) -> str:
    """The issuer's own words (RFC 6749, 5.2), printable and short."""
    said = ": ".join(str(found[name]) for name in ("error", "error_description") if name in found)
    return "".join(letter for letter in said if letter.isprintable())[:300] or "no reason given"
