"""``audit_sinks`` of ``server.yaml`` and ``silo.yaml``: where copies of a log go, and in which form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError

Format = Literal["record", "ocsf"]
SinkName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
SINKS_MAX: Final = 8
SYSLOG_TLS_PORT: Final = 6514
"""RFC 5425, section 4.1."""
SYSLOG_TCP_PORT: Final = 601


class JsonlSinkSettings(Frozen):
    """A file, one JSON object a line."""

    name: SinkName
    type: Literal["jsonl"]
    path: Path
    """Relative to the settings file. Whoever rotates it renames it; a new one is begun."""
    format: Format = "record"
    fsync: bool = True
    """Whether each batch is flushed to disk before it counts as taken; else it is once a second."""

    @property
    def place(self) -> str:
        """What makes it another sink than the others."""
        return f"file {self.path}"


class SyslogSinkSettings(Frozen):
    """A syslog receiver (RFC 5424): ``unix:///dev/log``, ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""

    name: SinkName
    type: Literal["syslog"]
    url: Annotated[str, StringConstraints(pattern=r"^(unix:///.+|(tcp|tls)://[^/?#@]+)$", max_length=300)]
    ca: Path | None = None
    """Certificates (PEM) to verify a ``tls`` receiver by; the system's if left out."""
    format: Format = "record"

    @property
    def place(self) -> str:
        """What makes it another sink than the others."""
        return self.url

    @property
    def socket_path(self) -> str | None:
        """Of a receiver on this machine."""
        parts = urlsplit(self.url)
        return parts.path if parts.scheme == "unix" else None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a receiver on the network."""
        parts = urlsplit(self.url)
        default = SYSLOG_TLS_PORT if self.tls else SYSLOG_TCP_PORT
        return parts.hostname or "", parts.port or default

    @property
    def tls(self) -> bool:
        """Whether the receiver shows a certificate, which is verified."""
        return self.url.startswith("tls://")

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.socket_path is None:
            try:
                host, _ = self.address
            except ValueError as error:
                raise ValueError(
                    f"url: expected HOST:PORT with a port up to 65535, got {self.url}"
                ) from error
            if not host:
                raise ValueError(f"url: expected a host, got {self.url}")
        if self.ca is not None and not self.tls:
            raise ValueError(f"ca: expected it with a tls:// url only, got {self.url}")
        return self


SinkSettings = Annotated[JsonlSinkSettings | SyslogSinkSettings, Field(discriminator="type")]
Sinks = Annotated[tuple[SinkSettings, ...], Field(max_length=SINKS_MAX)]
WaitSeconds = Annotated[float, Field(gt=0, le=300)]
WAIT_S: Final = 10.0
"""How long an opening or a training waits for a sink to take what comes before it."""


def sinks_or_default(sinks: Sequence[SinkSettings], state_dir: Path, base: Path) -> tuple[SinkSettings, ...]:
    """What is configured, its paths anchored at ``base``; left out, one file in the state directory.

    That file needs no flush at each batch: the log itself lies on the same disk, and is what lasts.

    Raises:
        ConfigurationError: two of them have one name or one place.
    """
    if not sinks:
        return (JsonlSinkSettings(name="file", type="jsonl", path=state_dir / "audit.jsonl", fsync=False),)
    anchored = tuple(_anchored(sink, base) for sink in sinks)
    for what, values in (
        ("name", [sink.name for sink in anchored]),
        ("place", [sink.place for sink in anchored]),
    ):
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ConfigurationError(
                f"audit_sinks: expected each {what} once, got {', '.join(twice)} twice; a copy in the same "
                "place is none"
            )
    return anchored


def _anchored(sink: SinkSettings, base: Path) -> SinkSettings:
    if isinstance(sink, JsonlSinkSettings):
        return sink.model_copy(update={"path": base / sink.path})
    return sink if sink.ca is None else sink.model_copy(update={"ca": base / sink.ca})
