"""Syslog receivers (RFC 5424): a datagram socket of this machine, TCP (RFC 6587), TLS (RFC 5425).

Receivers on the network are written to, never read from. What TCP was given counts once the receiver's
machine has acknowledged it: syslog itself has no answer.
"""

from __future__ import annotations

import errno
import fcntl
import re
import select
import socket
import ssl
import struct
import termios
import time
from typing import Final

from policies.audit_sinks.entry import Entry
from policies.audit_sinks.ocsf import severity_of
from policies.audit_sinks.settings import SyslogSinkSettings

TIMEOUT_S: Final = 5.0
"""Of connecting, of a write, of the acknowledgement of what was written."""
_FACILITY_AUDIT: Final = 13
"""RFC 5424, table 1: log audit."""
_SYSLOG_SEVERITY: Final = {1: 6, 2: 5, 3: 4, 4: 3}
"""OCSF severity → RFC 5424's, table 2: informational, notice, warning, error."""
_SD_ID: Final = "sealsum@32473"
"""Structured data of our own; 32473 is the enterprise number for use in documents (RFC 5612)."""


def syslog_message(entry: Entry, hostname: str, text: bytes) -> bytes:
    """One message: PRI, header, structured data with origin, seq, size and root, and ``text``.

    RFC 5424, section 6. MSG is MSG-ANY, UTF-8 without a byte order mark, so that it is JSON as it stands.
    """
    priority = 8 * _FACILITY_AUDIT + _SYSLOG_SEVERITY[severity_of(entry.record.kind)]
    parameters = {
        "origin": entry.origin,
        "seq": str(entry.record.seq),
        "size": str(entry.head.size),
        "root": entry.head.root,
    }
    structured = " ".join([_SD_ID, *(f'{name}="{_escaped(value)}"' for name, value in parameters.items())])
    header = f"<{priority}>1 {entry.record.at} {hostname} sealsum - {entry.record.kind[:32]} [{structured}] "
    return header.encode() + text


def octet_counted(message: bytes) -> bytes:
    """RFC 6587, section 3.4.1; RFC 5425, section 4.3."""
    return b"%d %s" % (len(message), message)


class SyslogSink:
    """One receiver."""

    def __init__(self, settings: SyslogSinkSettings) -> None:
        self._settings = settings
        self._hostname = re.sub(r"[^\x21-\x7e]", "", socket.gethostname())[:255] or "-"
        self._socket: socket.socket | None = None

    def send(self, entries: list[Entry]) -> None:
        """See ``Sink``."""
        connection = self._socket or self._connected()
        self._socket = connection
        if self._settings.socket_path is None:
            self._assert_open(connection)
            framed = [octet_counted(self._message(entry)) for entry in entries]
            connection.sendall(b"".join(framed))
            return
        for entry in entries:
            try:
                connection.send(self._message(entry))
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                # Too long for a datagram: the commitments of its fields still show what was logged.
                bare = Entry(entry.origin, entry.record.redact(), entry.head)
                connection.send(self._message(bare))

    def settle(self) -> None:
        """See ``Sink``: wait until the receiver's machine has acknowledged every byte."""
        if self._socket is None or self._settings.socket_path is not None:
            return
        until = time.monotonic() + TIMEOUT_S
        while _unacknowledged(self._socket):
            if time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "what was sent is not acknowledged")
            time.sleep(0.005)
        self._assert_open(self._socket)

    def close(self) -> None:
        """See ``Sink``."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _message(self, entry: Entry) -> bytes:
        return syslog_message(entry, self._hostname, entry.text(self._settings.format))

    def _connected(self) -> socket.socket:
        path = self._settings.socket_path
        if path is not None:
            local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                local.settimeout(TIMEOUT_S)
                local.connect(path)
            except BaseException:
                local.close()
                raise
            return local
        host, port = self._settings.address
        # Made anew at each connection, so that a CA file that was replaced counts.
        context = None
        if self._settings.tls:
            context = ssl.create_default_context(cafile=self._settings.ca)
        plain = socket.create_connection((host, port), timeout=TIMEOUT_S)
        if context is None:
            return plain
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    @staticmethod
    def _assert_open(connection: socket.socket) -> None:
        """Whether the receiver has hung up: a first write after that would seem to succeed."""
        if not select.select([connection], [], [], 0)[0]:
            return
        timeout = connection.gettimeout()
        try:
            connection.settimeout(0)
            if connection.recv(4096) == b"":
                raise ConnectionResetError(errno.ECONNRESET, "the receiver has closed the connection")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass  # TLS's own messages, such as session tickets
        finally:
            connection.settimeout(timeout)


def _unacknowledged(connection: socket.socket) -> int:
    """Bytes in the send queue of the socket (Linux, ``tcp(7)``: SIOCOUTQ, which is TIOCOUTQ)."""
    found = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", found)[0])


def _escaped(value: str) -> str:
    """RFC 5424, section 6.3.3."""
    return re.sub(r'(["\\\]])', r"\\\1", value)
