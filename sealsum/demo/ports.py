"""Loopback: free ports, chosen before the servers that listen there are enrolled; never through a proxy."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from privacy.errors import SealsumError

_LOWEST, _HIGHEST = 20_000, 32_000
"""Below the range from which systems draw the local ports of outgoing connections."""
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """``count`` distinct ports on 127.0.0.1 that nobody listens on now.

    Raises:
        SealsumError: too few are free.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_TRIES):
            if len(ports) == count:
                return ports
            port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    raise SealsumError(f"ports: expected {count} free ones on 127.0.0.1 between {_LOWEST} and {_HIGHEST}")


@contextmanager
def loopback_without_proxy() -> Iterator[None]:
    """A proxy of the user's environment must not be asked to reach the demo's own machine."""
    names = ("NO_PROXY", "no_proxy")
    before = {name: os.environ.get(name) for name in names}
    for name in names:
        os.environ[name] = ",".join(part for part in (before[name], "127.0.0.1", "localhost") if part)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
