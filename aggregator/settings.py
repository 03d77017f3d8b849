"""``server.yaml``: what an operator decides about a server. Everything about trust is in the charter."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from aggregator.blob_settings import BlobSettings
from aggregator.database import checked_url
from aggregator.operators.settings import OidcSettings, OperatorsSettings
from policies.audit_sinks.settings import WAIT_S, Sinks, WaitSeconds, sinks_or_default
from policies.health.settings import HealthSettings
from policies.settings_yaml import parse_settings
from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.keystore import read_file
from privacy.secagg.threshold.interpreter import ThresholdHeSettings, anchored

Seconds = Annotated[float, Field(gt=0, le=3600)]
Bytes = Annotated[int, Field(ge=1024)]
_HOST_PORT = r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}$"
_GIB = 1 << 30
_DAYS_90_S = 90 * 24 * 3600.0


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False  # a name


def _openable(url: str) -> str:
    checked_url(url)
    return url


class ServerSettings(Frozen):
    """What both kinds of server are told."""

    state_dir: Path
    """Keys, charter, database and parts; relative to this file."""
    listen: Annotated[str, Field(pattern=_HOST_PORT)]
    """``host:port``; port 0 takes a free one and prints it."""
    database_url: Annotated[str, AfterValidator(_openable)] | None = None
    """SQLAlchemy URL without a password (``aggregator/database.py``); SQLite in ``state_dir`` if left out."""
    charter: Path | None = None
    """A sealed charter to take over at start, if newer than the one held."""
    charter_url: Annotated[str, Field(pattern=r"^https://.+")] | None = None
    """Where to fetch it from instead: the registrar's ``/v1/charter``."""
    registrar_url: Annotated[str, Field(pattern=r"^https://[^\s/]+$")] | None = None
    """Where the certificate is renewed; what the invitation said if left out."""
    blobs: BlobSettings | None = None
    """A bucket for parts and models instead of folders in ``state_dir``."""
    storage_bytes_max: Bytes = 64 * _GIB
    """Of parts and models."""
    silo_bytes_max: Bytes | None = None
    """Of parts of one silo at a time; no limit of its own if left out."""
    silo_parts_max: Annotated[int, Field(ge=1)] | None = None
    """How many parts of one silo at a time."""
    collect_after_s: Annotated[float, Field(ge=60, le=_DAYS_90_S)] = 24 * 3600.0
    """A file that nothing in the database knows is deleted once it is so old."""
    collect_every_s: Annotated[float, Field(ge=1, le=_DAYS_90_S)] = 3600.0
    drain_s: Seconds = 20.0
    """Longest wait for requests in flight at SIGTERM."""
    operators: OperatorsSettings | None = None
    """People who come by client certificate, and API tokens (``docs/access.md``)."""
    oidc: OidcSettings | None = None
    """The issuer whose access tokens are taken; none if left out."""
    audit_sinks: Sinks = ()
    """Where copies of the log go (``docs/logs.md``); ``audit.jsonl`` in ``state_dir`` if left out."""
    audit_wait_s: WaitSeconds = WAIT_S
    """How long an opening waits for a sink to take what was logged before it."""
    health: HealthSettings | None = None
    """Where ``/metrics``, ``/livez`` and ``/readyz`` are answered without TLS; nowhere if left out."""
    log_level: Annotated[str, Field(pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def database(self) -> str:
        """Where the database is."""
        return self.database_url or f"sqlite:///{self.state_dir / 'server.db'}"

    @model_validator(mode="after")
    def _port_is_a_port(self) -> Self:
        if self.address[1] > 65535:
            raise ValueError(f"listen: expected a port up to 65535, got {self.address[1]}")
        if self.charter is not None and self.charter_url is not None:
            raise ValueError("charter: expected a file or a url, got both")
        return self


class AggregatorSettings(ServerSettings):
    """What an aggregator is told besides."""

    model_bytes_max: Bytes = 4 * _GIB
    presence_s: Seconds = 15.0
    """A silo counts as present this long after its last call."""
    grace_s: Seconds = 5.0
    """Wait for the rest of the roster once enough silos are present."""
    approval_wait_s: Annotated[float, Field(gt=0, le=_DAYS_90_S)] = 7 * 24 * 3600.0
    """How long silos may take to approve a job, or to approve it again, before it ends."""
    lease_s: Annotated[float, Field(ge=3, le=300)] | None = None
    """Several aggregator processes share one PostgreSQL database and one ``state_dir``: one of them works,
    the others hand connections on to it, and take over once its lease of so many seconds is not renewed."""
    reached_at: Annotated[str, Field(pattern=_HOST_PORT)] | None = None
    """Where those others reach this process, as ``host:port``; ``listen`` if left out."""
    database_wait_s: Seconds = 900.0
    """How long a database may be away before this process ends; until then it is not ready, and waits."""
    aborts_max: Annotated[int, Field(ge=1, le=100)] = 2
    """Rounds that may abort in a row before the job fails."""
    threshold_he: ThresholdHeSettings | None = None
    """The Python that runs OpenFHE for threshold_bfv and threshold_ckks; this one if left out."""

    @model_validator(mode="after")
    def _processes_share_a_database(self) -> Self:
        if self.lease_s is not None and not self.database.startswith("postgresql"):
            raise ValueError("lease_s: expected a PostgreSQL database_url, which several processes can share")
        host = self.address[0]
        if self.lease_s is not None and self.reached_at is None and _is_everywhere(host):
            raise ValueError(
                "reached_at: expected host:port where other processes reach this one, got none and listen "
                f"{host}, which is every machine's own address; add it"
            )
        return self


class ShareServerSettings(ServerSettings):
    """What a share server is told: nothing more."""


S = TypeVar("S", bound=ServerSettings)


def load_settings(path: Path, model: type[S]) -> S:
    """Read a settings file; relative paths in it are relative to it.

    Raises:
        ConfigurationError: it cannot be read, or a field is wrong; every fault is named.
    """
    try:
        raw = parse_settings(read_file(path))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: expected YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(raw, dict):
        raise ConfigurationError(f"{path}: expected a mapping of settings, got {type(raw).__name__}")
    base = path.resolve().parent
    try:
        settings = model.model_validate(_resolved(raw, base))
    except ValidationError as error:
        lines = [f"  {_told(fault)}" for fault in error.errors(include_url=False)]
        raise ConfigurationError("\n".join([f"{path}:", *lines])) from error
    sinks = sinks_or_default(settings.audit_sinks, settings.state_dir, base)
    settings = settings.model_copy(update={"audit_sinks": sinks})
    if isinstance(settings, AggregatorSettings):
        return settings.model_copy(update={"threshold_he": anchored(settings.threshold_he, base)})
    return settings


def _told(fault: ErrorDetails) -> str:
    """What was expected of which field, what came, what to do; no database URL: it may hold a password."""
    field = ".".join(str(step) for step in fault["loc"]) or "file"
    told = fault["msg"].removeprefix("Value error, ")
    told = told.replace("String should match pattern", "expected text like")
    told = f"{field}: {told}"
    if fault["type"] == "missing":
        return f"{told}; add it"
    if fault["type"] == "extra_forbidden":
        return f"{told}; correct its name or leave it out"
    plain = isinstance(fault["input"], str | int | float) and "database_url" not in fault["loc"]
    return f"{told}; got {str(fault['input'])[:80]!r}" if plain else told


def _resolved(raw: dict[str, Any], base: Path) -> dict[str, Any]:
    paths: dict[str, Any] = {
        name: str(base / raw[name]) for name in ("state_dir", "charter") if isinstance(raw.get(name), str)
    }
    for section in ("operators", "oidc", "blobs"):
        given = raw.get(section)
        if isinstance(given, dict) and isinstance(given.get("ca"), str):
            paths[section] = {**given, "ca": str(base / given["ca"])}
    return {**raw, **paths}
