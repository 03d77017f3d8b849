"""One large file that is fetched, and goes on where it broke (RFC 9110, 14). Believes no byte of it.

It goes on only with the very bytes it began with (``If-Range`` on a strong entity tag); what came is judged
by its digest, by whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from privacy.errors import MalformedMessage, TooLarge
from silo_agent.problems import Unreachable

CHUNK_BYTES: Final = 1 << 20


class Download:
    """One file, over as many connections as it takes."""

    def __init__(self, destination: Path, limit: int, path: str) -> None:
        """At most ``limit`` bytes into ``destination``; ``path`` names it in errors."""
        self._destination = destination
        self._limit = limit
        self._path = path
        self._tag = ""
        self._received = 0

    def headers(self) -> dict[str, str]:
        """What to ask with: for the rest, where some of it is here."""
        if not self._tag or not self._received:
            return {}
        return {"Range": f"bytes={self._received}-", "If-Range": self._tag}

    def take(self, response: httpx.Response, chunks: Iterator[bytes]) -> int:
        """Write an answer's body; returns the bytes of the whole file.

        Raises:
            TooLarge: there is more than the limit. MalformedMessage: it is another part than was asked for.
        """
        if response.status_code == httpx.codes.PARTIAL_CONTENT:
            self._check_rest(response)
        else:
            self._begin(response)
        with self._destination.open("ab" if self._received else "wb") as file:
            for chunk in chunks:
                if self._received + len(chunk) > self._limit:
                    raise TooLarge(f"{self._path}: expected at most {self._limit} bytes, got more")
                file.write(chunk)
                self._received += len(chunk)
        return self._received

    def begin_anew(self) -> Unreachable:
        """The server has no rest of it: forget what is here; what to raise, so that it is asked for again."""
        self._received = 0
        return Unreachable(f"{self._path}: the server has no more of it than came; it is fetched anew")

    def _begin(self, response: httpx.Response) -> None:
        tag = response.headers.get("etag", "")
        self._tag = tag if tag.startswith('"') else ""  # a weak one does not promise the same bytes
        self._received = 0

    def _check_rest(self, response: httpx.Response) -> None:
        expected = f"bytes {self._received}-"
        there = response.headers.get("content-range", "")
        if not self._received or not there.startswith(expected) or response.headers.get("etag") != self._tag:
            raise MalformedMessage(
                f"{self._path}: expected the part {expected!r} of {self._tag}, got another"
            )


def limited(response: httpx.Response, limit: int, path: str) -> Iterator[bytes]:
    """The body's chunks within ``limit`` bytes; never packed ones, which are in memory before they count."""
    if (coding := response.headers.get("content-encoding", "identity")) != "identity":
        raise MalformedMessage(f"{path}: expected a body as it is, got one in {coding}")
    received = 0
    for chunk in response.iter_bytes(CHUNK_BYTES):
        received += len(chunk)
        if received > limit:
            raise TooLarge(f"{path}: expected at most {limit} bytes, got more")
        yield chunk
