"""The one live agent of each silo, at the door of every route: the header, and connections that end early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import Request
from starlette.types import Message

from aggregator.instances import Instances
from privacy.instance import HEADER, parse_instance
from privacy.roster import Member


def one_instance(instances: Instances) -> Callable[[Request], AsyncIterator[None]]:
    """A FastAPI dependency: silos' agents that name themselves are let in one at a time."""

    async def dependency(request: Request) -> AsyncIterator[None]:
        header = request.headers.get(HEADER)
        member = request.scope.get("state", {}).get("caller")
        if header is None or not isinstance(member, Member) or member.role != "silo":
            yield
            return
        with instances.call(member.id, parse_instance(header)) as gone:
            if "wait_s" not in request.query_params:
                yield
                return
            # An agent that was killed in a long-poll is gone at once, not when the poll would have ended.
            watching = asyncio.create_task(_watch(request.receive, gone))
            try:
                yield
            finally:
                watching.cancel()

    return dependency


async def _watch(receive: Callable[[], Awaitable[Message]], gone: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    gone()
