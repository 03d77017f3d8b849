"""``health:`` of ``silo.yaml`` and ``server.yaml``: where a process says how it is."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen

Bytes = Annotated[int, Field(ge=0)]
STATE_FREE_BYTES: int = 256 << 20
"""Below this much room in the state directory no training begins."""


class HealthSettings(Frozen):
    """The health listener. It speaks HTTP without TLS and asks nobody who she is, so it stays on loopback."""

    listen: Annotated[str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[0-9.]+|localhost):\d{1,5}$")]
    """``127.0.0.1:9464``; port 0 takes a free one and the log says which."""
    exposed: bool = False
    """Whether an address beyond loopback is meant, as in a pod that only Prometheus may reach."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @model_validator(mode="after")
    def _is_on_loopback_or_says_otherwise(self) -> Self:
        host, port = self.address
        if port > 65535:
            raise ValueError(f"listen: expected a port up to 65535, got {port}")
        try:
            local = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError as error:
            raise ValueError(f"listen: expected an IP address or localhost, got {host}") from error
        if not local and not self.exposed:
            raise ValueError(
                f"listen: expected a loopback address such as 127.0.0.1:9464, got {self.listen}; "
                "whoever reaches it reads it: add exposed: true if a firewall decides who that is"
            )
        return self
