"""Free ports on loopback, chosen before the servers that will listen there are enrolled under them."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

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
