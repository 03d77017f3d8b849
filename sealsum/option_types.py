"""What options of several commands accept: durations and addresses, read once and refused with an example."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_DURATION = re.compile(r"([1-9]\d{0,3})([mhd])", re.ASCII)


class Duration(click.ParamType[timedelta]):
    """``30m``, ``24h`` or ``90d``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read a number and a unit."""
        if isinstance(value, timedelta):
            return value
        match = _DURATION.fullmatch(value)
        if match is None:
            self.fail(f"expected a number and m, h or d, such as 24h; got {value!r}", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


class Address(click.ParamType[tuple[str, int]]):
    """``HOST:PORT``; an IPv6 host in brackets."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Split host and port."""
        if isinstance(value, tuple):
            return value
        host, _, port = value.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and int(port) <= 65535):
            self.fail(f"expected HOST:PORT, got {value!r}", param, ctx)
        return host.strip("[]"), int(port)
