"""The registrar's process: its TLS certificate, its log, and serving until a signal comes."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from aggregator.enrolment.authority import Authority, write_atomically
from aggregator.enrolment.certificates import Subject, chain_pem
from aggregator.enrolment.invitations import REGISTRAR
from aggregator.enrolment.registrar import Registrar
from aggregator.enrolment.replacing_ca import own_issuer
from aggregator.enrolment.web import LOG, registrar_app
from aggregator.web_server import bind, serve
from privacy.identity import SigningKey
from privacy.keystore import write_secret

_DRAIN_S = 10.0
_OWN_LIFE = timedelta(days=30)
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}
"""What every log record has; the rest is what the event says."""
_LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Listen:
    """Where the registrar listens, and under which names parties dial it."""

    host: str
    port: int
    """0: a free one; the log's ``listening`` line says which."""
    names: tuple[str, ...] = ()


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OWN_FIELDS},
        }
        return json.dumps(line, ensure_ascii=False, default=str)


def serve_registrar(authority: Authority, listen: Listen, leaf_life: timedelta) -> None:
    """Answer enrolments until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    _log_to_stderr()
    ca = authority.certificate_authority()
    context = _tls_context(authority, listen, datetime.now(UTC))
    registrar = Registrar(authority.federation, ca, authority.register, leaf_life)
    app = registrar_app(authority, registrar, lambda: datetime.now(UTC))
    listener = bind((listen.host, listen.port))
    asyncio.run(serve(app, context, listener, drain_s=_DRAIN_S, on_drain=_nothing_waits))
    LOG.info("stopped")


def _tls_context(authority: Authority, listen: Listen, now: datetime) -> ssl.SSLContext:
    """TLS 1.3 with a certificate made for this run; parties show none, for they have none yet."""
    key = SigningKey.generate()
    hosts = tuple(dict.fromkeys((listen.host, *listen.names, *_LOOPBACK)))
    subject = Subject(authority.federation, REGISTRAR, hosts)
    leaf = own_issuer(authority).issue(subject, key.private.public_key(), now, _OWN_LIFE)
    key_path, leaf_path = authority.directory / "registrar.key", authority.directory / "registrar.pem"
    key_path.unlink(missing_ok=True)
    write_secret(key_path, key.to_pem())
    write_atomically(leaf_path, chain_pem([leaf]).encode())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(leaf_path, key_path)
    return context


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    ours = logging.getLogger("sealsum")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False


def _nothing_waits() -> None:
    """No call of the registrar is held open, so there is nobody to send home before a drain."""
