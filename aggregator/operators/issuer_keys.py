"""The issuer's signing keys: found by OpenID Connect Discovery, kept ten minutes, asked anew when rotated.

However many wait for an answer, the issuer is asked once at a time; nobody waits whose key is known and not
too old, so that a slow issuer holds up newcomers alone.

The aggregator's second door to httpx. Believes what the issuer's TLS certificate vouches for, and no key
that a token itself names or carries.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

from aggregator.operators.settings import OidcSettings
from privacy.errors import ConfigurationError, PeerFault, SignatureRejected

KEPT_S: Final = 600.0
"""A key that the issuer has withdrawn is believed no longer than this."""
REFRESHED_S: Final = 300.0
"""A known key that is older has us ask again beside the request, which does not wait for it."""
AGAIN_S: Final = 30.0
"""An unknown key id makes us ask again, but not more often: strangers can name key ids too."""
_TIMEOUT_S: Final = 10.0
_log = logging.getLogger("sealsum.web")
_BYTES_MAX: Final = 1 << 20


class IssuerUnreachable(PeerFault):
    """The issuer does not say which keys are its own, so nobody can come by its tokens now."""

    status, kind = 503, "issuer-unreachable"


class IssuerKeys:
    """One issuer's keys. Monotonic clock."""

    def __init__(
        self,
        settings: OidcSettings,
        now: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``transport`` replaces the network as httpx means it.

        Raises:
            ConfigurationError: ``oidc.ca`` cannot be read.
        """
        self._issuer = settings.issuer
        self._tls = _trust(settings)
        self._now = now
        self._transport = transport
        self._keys = KeySet([])
        self._asked_at = float("-inf")
        self._got_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def key(self, kid: str) -> Key:
        """The issuer's key of that id.

        Raises:
            SignatureRejected: it has none. IssuerUnreachable: it cannot be asked.
        """
        now = self._now()
        age, may_ask = now - self._got_at, now - self._asked_at > AGAIN_S
        found = None if age > KEPT_S else _find(self._keys, kid)
        if found is None and (age > KEPT_S or may_ask or self._asked is not None):
            # Shielded: whoever asked first may go away, and others wait for the same answer.
            await asyncio.shield(self._ask(now))
            found = _find(self._keys, kid)
        elif age > REFRESHED_S and may_ask:
            self._ask(now)
        if found is None:
            raise SignatureRejected(
                "access token: expected a key id of the issuer's, got an unknown one; sealsum login again"
            )
        return found

    @property
    def _asked(self) -> asyncio.Task[None] | None:
        """The question that is not answered yet."""
        return None if self._asking is None or self._asking.done() else self._asking

    def _ask(self, now: float) -> asyncio.Task[None]:
        """The question that is not answered yet, or a new one."""
        if (asked := self._asked) is not None:
            return asked
        self._asked_at = now
        self._asking = asyncio.get_running_loop().create_task(self._renew(now))
        self._asking.add_done_callback(_told)
        return self._asking

    async def _renew(self, now: float) -> None:
        self._keys = await self._fetch()
        self._got_at = now

    async def _fetch(self) -> KeySet:
        async with httpx.AsyncClient(
            verify=self._tls, timeout=_TIMEOUT_S, transport=self._transport, follow_redirects=False
        ) as http:
            found = await self._get(http, self._issuer.rstrip("/") + "/.well-known/openid-configuration")
            # OpenID Connect Discovery 1.0, 4.3: or another issuer's document would be taken for this one's
            if found.get("issuer") != self._issuer:
                raise IssuerUnreachable(f"issuer: expected its metadata to name {self._issuer}, got another")
            where = found.get("jwks_uri")
            if not isinstance(where, str) or not where.startswith("https://"):
                raise IssuerUnreachable("issuer: expected an https jwks_uri in its metadata")
            listed = (await self._get(http, where)).get("keys")
        try:
            keys = KeySet.import_key_set({"keys": listed if isinstance(listed, list) else []})
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise IssuerUnreachable("issuer: expected a key set (RFC 7517) at its jwks_uri") from error
        return KeySet([key for key in keys if _signs(key)])

    async def _get(self, http: httpx.AsyncClient, url: str) -> dict[str, Any]:
        try:
            async with http.stream("GET", url) as response:
                if response.status_code != httpx.codes.OK:
                    raise IssuerUnreachable(f"issuer: expected 200 of {url}, got {response.status_code}")
                raw = b""
                async for chunk in response.aiter_bytes():
                    raw += chunk
                    if len(raw) > _BYTES_MAX:
                        raise IssuerUnreachable(f"issuer: expected at most {_BYTES_MAX} bytes of {url}")
            document = json.loads(raw)
        except (httpx.HTTPError, ValueError) as error:
            raise IssuerUnreachable(
                f"issuer: {url} gave no document ({type(error).__name__}); "
                "check oidc.issuer, oidc.ca and proxy"
            ) from error
        if not isinstance(document, dict):
            raise IssuerUnreachable(f"issuer: expected a JSON object at {url}")
        return document


def _told(asked: asyncio.Task[None]) -> None:
    """Nobody may have waited for the answer; whoever did has the same error."""
    if not asked.cancelled() and (error := asked.exception()) is not None:
        _log.warning("issuer_not_asked", extra={"reason": str(error)})


def _find(keys: KeySet, kid: str) -> Key | None:
    return next((key for key in keys if key.kid == kid), None)


def _signs(key: Key) -> bool:
    """A public-key signature key; a symmetric key in a published set is nobody's secret."""
    return isinstance(key, RSAKey | ECKey | OKPKey) and key.as_dict(private=False).get("use", "sig") == "sig"


def _trust(settings: OidcSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if settings.ca is None else str(settings.ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"oidc.ca: {settings.ca}: expected CA certificates in PEM") from error
