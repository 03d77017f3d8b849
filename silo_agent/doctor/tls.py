"""The doctor's look at who answers by TLS: the issuer it sees, the names in the certificate, its dates."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from privacy.keystore import Identity
from privacy.secret_files import read_file
from silo_agent.doctor.finding import REMOTE, Report
from silo_agent.egress import Egress, issuer_of


def look_at_tls(
    name: str,
    host: str,
    connection: socket.socket,
    identity: Identity,
    egress: Egress,
    report: Report,
    now: datetime,
) -> bool:
    """Whether the server's certificate is one that the agent will believe; why not is reported."""
    check, where = f"tls:{name}", f"certificate of {host}"
    shown = _shown(connection, host)
    if shown is None:
        told = "check that the federation's server, and nothing else, listens there"
        report.fault(check, where, "TLS 1.3", "no certificate", told, REMOTE)
        return False
    ours = x509.load_pem_x509_certificates(read_file(identity.directory / "ca.pem"))
    issuer = issuer_of(shown)
    wanted = f"issued by {issuer_of(ours[0])} ({identity.pin.federation})"
    if not any(_issued(shown, ca) for ca in ours):
        _inspected(check, where, wanted, issuer, shown, egress, report)
        return False
    if not _names(shown, host):
        told = "correct aggregator_url (or the charter), or enrol it under the name that is dialled"
        report.fault(
            check, where, f"one for {host}", f"one for {', '.join(_hosts(shown)) or 'no host'}", told, REMOTE
        )
        return False
    if not shown.not_valid_before_utc <= now < shown.not_valid_after_utc:
        dates = (
            f"{shown.not_valid_before_utc:%Y-%m-%d %H:%M} to {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )
        told = "compare this machine's clock; if it is right, the server's operator renews its certificate"
        report.fault(check, where, f"in force at {now:%Y-%m-%d %H:%M}", dates, told, REMOTE)
        return False
    report.ok(
        check, where, wanted, f"issued by {issuer}, until {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    )
    return True


def _inspected(
    check: str, where: str, wanted: str, issuer: str, shown: x509.Certificate, egress: Egress, report: Report
) -> None:
    """Somebody else answers: another server, or a proxy that opens TLS."""
    known = ""
    if egress.ca_bundle is not None:
        bundle = x509.load_pem_x509_certificates(read_file(egress.ca_bundle))
        if any(_issued(shown, ca) for ca in bundle):
            known = ", which ca_bundle knows: it is this site's own TLS inspection"
    told = (
        "TLS is opened on the way: have this host exempted from inspection; the silo proves itself by a "
        "client certificate, which an inspecting proxy cannot pass on"
    )
    report.fault(check, where, wanted, f"issued by {issuer}{known}", told, REMOTE)


def _shown(connection: socket.socket, host: str) -> x509.Certificate | None:
    """The certificate that is shown, believed or not.

    This handshake alone verifies nothing, because what is wrong with the certificate is the question. Nothing
    is sent through it, no certificate of ours is shown, and it is closed at once.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(connection, server_hostname=host) as opened:
            der = opened.getpeercert(binary_form=True)
        return None if der is None else x509.load_der_x509_certificate(der)
    except (OSError, ValueError):
        return None


def _issued(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _hosts(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(one) for one in names.get_values_for_type(x509.IPAddress)]
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def _names(certificate: x509.Certificate, host: str) -> bool:
    try:
        return str(ipaddress.ip_address(host)) in _hosts(certificate)
    except ValueError:
        return any(_fits(pattern.lower(), host.lower()) for pattern in _hosts(certificate))


def _fits(pattern: str, host: str) -> bool:
    """RFC 6125, section 6.4.3: a wildcard is the whole leftmost label."""
    if pattern.startswith("*."):
        return host.partition(".")[2] == pattern[2:]
    return pattern == host
