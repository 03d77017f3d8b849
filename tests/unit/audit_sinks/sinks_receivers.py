"""Receivers on real sockets, and a log in memory to deliver from."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from policies.audit_sinks.entry import Entry
from policies.audit_sinks.feed import Feed
from privacy.ids import Digest
from privacy.transparency.checkpoint import LogHead
from privacy.transparency.leaf import Record, new_record

ORIGIN = "sealsum/fed/log/aggregator"
PATIENCE_S = 20.0


def record(seq: int, kind: str = "round_offered", **body: object) -> Record:
    """An entry with fixed salts."""
    fields = body or {"round": seq}
    return new_record(seq, "2026-11-30T10:00:00.123Z", kind, fields, bytes(16 * len(fields)))


def entry(seq: int, kind: str = "round_offered", **body: object) -> Entry:
    """The same on its way to a sink."""
    return Entry(ORIGIN, record(seq, kind, **body), head_of(seq + 1))


def head_of(size: int) -> LogHead:
    """Some head of that size."""
    return LogHead(size=size, root=Digest(f"{size:064x}"))


class Book:
    """A log that lies in memory."""

    def __init__(self, size: int = 0) -> None:
        self.records = [record(seq) for seq in range(size)]
        self.feed = Feed(ORIGIN, size, lambda: head_of(len(self.records)), self._stored)

    def grow(self, count: int) -> None:
        """Add so many entries."""
        fresh = [record(len(self.records) + place) for place in range(count)]
        self.records.extend(fresh)
        self.feed.grown(fresh)

    def _stored(self, first: int, most: int) -> list[bytes]:
        return [one.line() for one in self.records[first : first + most]]


def wait_for(true: Callable[[], bool]) -> None:
    """Until it is so; fails if it never is."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.005)


class Receiver:
    """A stream receiver that collects octet-counted messages; ``close`` hangs up on everybody."""

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.messages: list[bytes] = []
        self._tls = tls
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()
                continue
            self._open.append(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        raw = b""
        with contextlib.suppress(OSError):
            while chunk := connection.recv(65536):
                raw += chunk
                while b" " in raw:
                    count, _, rest = raw.partition(b" ")
                    if len(rest) < int(count):
                        break
                    self.messages.append(rest[: int(count)])
                    raw = rest[int(count) :]

    def close(self) -> None:
        """Hang up and listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE_S)
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@contextlib.contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver for a while."""
    receiver = Receiver(tls)
    try:
        yield receiver
    finally:
        receiver.close()


def server_certificate(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS context for 127.0.0.1, and its self-signed certificate as a CA file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "siem")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = directory / "siem.pem", directory / "siem.key"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, secret)
    return context, chain
