"""A slow issuer of access tokens holds up those alone whose key nobody knows yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from aggregator.operators.issuer_keys import AGAIN_S, KEPT_S, REFRESHED_S, IssuerKeys, IssuerUnreachable
from aggregator.operators.settings import OidcSettings
from privacy.errors import SignatureRejected
from tests.access_world import AUDIENCE, CLIENT, ISSUER, Issuer

SETTINGS = OidcSettings(issuer=ISSUER, audience=AUDIENCE, client_id=CLIENT, roles={})


class SlowIssuer:
    """Answers when it is told to, and counts who asked for its metadata."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.go = asyncio.Event()
        self.asked = 0
        self.now = 0.0
        self.keys = IssuerKeys(SETTINGS, lambda: self.now, httpx.MockTransport(self._answer))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/.well-known"):
            self.asked += 1
            await self.go.wait()
        return self.issuer._answer(request)

    async def until_asked(self, times: int) -> None:
        while self.asked < times:
            await asyncio.sleep(0)


def run(story: Callable[[SlowIssuer], Awaitable[Any]]) -> None:
    async def told() -> None:
        await story(SlowIssuer())

    asyncio.run(asyncio.wait_for(told(), timeout=60))


def test_many_who_wait_for_one_key_ask_once() -> None:
    async def story(slow: SlowIssuer) -> None:
        waiting = [asyncio.create_task(slow.keys.key("k1")) for _ in range(50)]
        await slow.until_asked(1)
        waiting[0].cancel()  # who asked first goes away
        slow.go.set()
        found = await asyncio.gather(*waiting[1:])
        assert {key.kid for key in found} == {"k1"}
        assert slow.asked == 1

    run(story)


@pytest.mark.parametrize("age", [AGAIN_S + 1, REFRESHED_S + 1, KEPT_S - 1])
def test_whose_key_is_known_waits_for_nobody(age: float) -> None:
    async def story(slow: SlowIssuer) -> None:
        slow.go.set()
        await slow.keys.key("k1")
        slow.go.clear()
        slow.now = age
        stranger = asyncio.create_task(slow.keys.key("unknown"))
        await slow.until_asked(2)
        assert (await slow.keys.key("k1")).kid == "k1", "the issuer has not answered"
        assert not stranger.done()
        slow.go.set()
        with pytest.raises(SignatureRejected):
            await stranger
        assert slow.asked == 2

    run(story)


def test_a_known_key_is_asked_for_again_before_it_is_too_old() -> None:
    async def story(slow: SlowIssuer) -> None:
        slow.go.set()
        await slow.keys.key("k1")
        slow.now = REFRESHED_S + 1
        await slow.keys.key("k1")
        await slow.until_asked(2)
        while slow.keys._asked is not None:
            await asyncio.sleep(0)
        slow.now = KEPT_S + 1
        slow.go.clear()
        assert (await slow.keys.key("k1")).kid == "k1"

    run(story)


def test_a_key_that_is_too_old_is_believed_no_more_while_the_issuer_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(slow: SlowIssuer) -> None:
        slow.go.set()
        await slow.keys.key("k1")
        slow.now, slow.issuer.down = KEPT_S + 1, True
        with pytest.raises(IssuerUnreachable):
            await slow.keys.key("k1")

    run(story)
    assert [one for one in caplog.records if one.getMessage() == "issuer_not_asked"]
