"""The doctor's look at the way out: the proxy rule that applies, names, IPv4 and IPv6, the tunnel.

Sockets of its own rather than httpx, because each step on the way is to be named. Sends nothing but CONNECT.
"""

from __future__ import annotations

import base64
import socket
import ssl
import urllib.request
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from privacy.errors import PeerFault
from silo_agent.doctor.finding import REMOTE, Report
from silo_agent.egress import Egress

TIMEOUT_S: Final = 10.0
_ANSWER_BYTES: Final = 16 << 10
_REMEDIES: Final = {
    407: "give user and password: proxy_credentials in silo.yaml, or in HTTPS_PROXY",
    403: "have the proxy's owner allow CONNECT to this host and port",
    502: "the proxy cannot reach the server: check the server's address and the firewall behind the proxy",
    503: "the proxy cannot reach the server: check the server's address and the firewall behind the proxy",
    504: "the proxy waited in vain for the server: check the firewall behind the proxy",
}


@dataclass(frozen=True)
class Way:
    """How a server is reached, by the same rules as httpx's."""

    rule: str
    """Which rule decided, in words."""
    proxy: str | None = None
    """``http(s)://host:port``, without user and password."""
    authorization: str | None = None
    """Value of ``Proxy-Authorization``; a secret."""

    def __repr__(self) -> str:
        return f"Way({self.rule})"


class Refused(PeerFault):
    """A proxy's answer to CONNECT that is not 200."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status} {words}".strip())
        self.answer = status


def way_to(host: str, egress: Egress) -> Way:
    """Which rule decides about a proxy to ``host``."""
    environment = urllib.request.getproxies_environment()
    if urllib.request.proxy_bypass(host):
        return Way(f"NO_PROXY names {host}: no proxy")
    if egress.proxy is not None:
        return Way("proxy of silo.yaml", egress.proxy, _basic(egress.credentials))
    for name in ("https", "all"):
        if name in environment:
            parts = urlsplit(environment[name])
            port = f":{parts.port}" if parts.port else ""
            pair = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
            rule = f"{name.upper()}_PROXY of the environment"
            return Way(rule, f"{parts.scheme or 'http'}://{parts.hostname}{port}", _basic(pair))
    return Way("no proxy is configured")


def look_at_way(name: str, url: str, way: Way, report: Report) -> socket.socket | None:
    """Resolve, connect, tunnel; a socket that reaches the server, or ``None`` with the reason reported."""
    target = urlsplit(url)
    host, port = target.hostname or "", target.port or 443
    if way.proxy is None:
        report.ok(f"proxy:{name}", f"rules for {host}", "a rule that fits", way.rule)
        return _connected(name, host, port, report, "the server")
    via = urlsplit(way.proxy)
    shown = f"{via.hostname}:{via.port or _port_of(via.scheme)}"
    first = _connected(name, via.hostname or "", via.port or _port_of(via.scheme), report, "the proxy")
    where, expected = f"CONNECT {host}:{port} at {shown} ({way.rule})", "200"
    if first is None:
        report.skip(f"proxy:{name}", where, "the proxy cannot be reached")
        return None
    if via.scheme == "https":
        first.close()
        report.skip(f"proxy:{name}", where, "a proxy dialled by TLS is left to the connection itself")
        return None
    try:
        _tunnel(first, host, port, way.authorization)
    except Refused as error:
        first.close()
        told = _REMEDIES.get(error.answer, "ask the proxy's owner what that answer means")
        report.fault(f"proxy:{name}", where, expected, str(error), told, REMOTE)
        return None
    except OSError as error:
        first.close()
        told = "check that an HTTP proxy listens there"
        report.fault(f"proxy:{name}", where, expected, _words(error), told, REMOTE)
        return None
    report.ok(f"proxy:{name}", where, expected, "200")
    return first


def _connected(name: str, host: str, port: int, report: Report, what: str) -> socket.socket | None:
    where = f"{what} {host}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        told = "correct the address, or this machine's resolver (/etc/resolv.conf); behind a proxy only the "
        told += "proxy's name has to resolve here"
        report.fault(f"dns:{name}", where, "an address", error.strerror or str(error), told, REMOTE)
        return None
    report.ok(f"dns:{name}", where, "an address", ", ".join(sorted({str(one[4][0]) for one in found})))
    connected: socket.socket | None = None
    failed: list[tuple[str, str]] = []
    for family, label in ((socket.AF_INET6, "IPv6"), (socket.AF_INET, "IPv4")):
        for address in [one[4] for one in found if one[0] == family][:1]:
            try:
                tried = socket.create_connection((str(address[0]), port), TIMEOUT_S)
            except OSError as error:
                failed.append((label, _words(error)))
                continue
            if connected is None:
                connected = tried
            else:
                tried.close()
    said = "; ".join(f"{label}: {words}" for label, words in failed)
    where = f"{what} {host}:{port}"
    if connected is None:
        told = f"check the address, and that the firewall lets this machine out to {host}:{port}"
        report.fault(f"connect:{name}", where, "a connection", said or "no address", told, REMOTE)
    elif failed:
        told = (
            "each connection first waits for it: repair it, or take that address out of DNS or routing here"
        )
        report.warn(f"connect:{name}", where, "a connection by each kind of address", said, told)
    else:
        kinds = sorted({"IPv6" if one[0] == socket.AF_INET6 else "IPv4" for one in found})
        report.ok(f"connect:{name}", where, "a connection by each kind of address", " and ".join(kinds))
    return connected


def _tunnel(connection: socket.socket, host: str, port: int, authorization: str | None) -> None:
    """CONNECT (RFC 9110, section 9.3.6).

    Raises:
        Refused: the proxy answers otherwise than 200. OSError: it does not speak HTTP, or hangs up.
    """
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = connection.recv(1)  # one by one: what follows the header belongs to TLS
        if not more or len(answer) > _ANSWER_BYTES:
            raise ConnectionError("it hung up, or answered with no HTTP")
        answer += more
    status, _, _ = answer.partition(b"\r\n")
    version, _, rest = status.decode("latin-1").partition(" ")
    code, _, words = rest.partition(" ")
    if not version.startswith("HTTP/") or not code.isdigit():
        raise ConnectionError("it answered with no HTTP")
    if code != "200":
        raise Refused(int(code), "".join(one for one in words if one.isprintable())[:100])


def _basic(pair: tuple[str, str] | None) -> str | None:
    if pair is None:
        return None
    return "Basic " + base64.b64encode(":".join(pair).encode()).decode()


def _port_of(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, ssl.SSLError):
        return error.reason or "TLS failed"
    return error.strerror or str(error)
