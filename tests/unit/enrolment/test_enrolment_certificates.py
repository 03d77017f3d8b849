"""What the CA issues: leaves for the names the registrar chose, that OpenSSL-based TLS accepts."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from aggregator.enrolment.certificates import CA_LIFE, CertificateAuthority, Subject, chain_pem
from privacy.identity import SigningKey
from tests.enrolment import DAY, NOW

NOW_IS = dt.datetime.now(dt.UTC)


@pytest.fixture(scope="module")
def ca() -> CertificateAuthority:
    return CertificateAuthority.found("cardio-net", SigningKey.generate(), NOW)


def leaf(ca: CertificateAuthority, *hosts: str, life: dt.timedelta = 90 * DAY) -> x509.Certificate:
    key = SigningKey.generate().private.public_key()
    return ca.issue(Subject("cardio-net", "party", hosts), key, NOW, life)


def test_the_ca_may_issue_leaves_and_no_further_cas(ca: CertificateAuthority) -> None:
    constraints = ca.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = ca.certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature


def test_a_party_that_only_dials_out_gets_no_server_certificate(ca: CertificateAuthority) -> None:
    usage = leaf(ca).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_server_is_named_by_its_host_and_every_party_by_its_uri(ca: CertificateAuthority) -> None:
    names = leaf(ca, "share.example.org", "192.0.2.7").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["share.example.org"]
    assert names.value.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("192.0.2.7")]
    assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == ["sealsum://cardio-net/party"]


def served_key_and_leaf(ca: CertificateAuthority, directory: Path, *hosts: str) -> tuple[Path, Path]:
    key = SigningKey.generate()
    issued = ca.issue(Subject("cardio-net", "party", hosts), key.private.public_key(), NOW_IS, 90 * DAY)
    (directory / "key.pem").write_bytes(key.to_pem())
    (directory / "leaf.pem").write_text(chain_pem([issued]))
    return directory / "leaf.pem", directory / "key.pem"


def shake_hands(trusted: CertificateAuthority, leaf_path: Path, key_path: Path, host: str) -> None:
    """A TLS 1.3 handshake in memory, the client believing one CA."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(leaf_path, key_path)
    client_context = ssl.create_default_context(cadata=chain_pem([trusted.certificate]))
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT  # what Python 3.13 does by default
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.version() == "TLSv1.3"


@pytest.fixture
def ca_today() -> CertificateAuthority:
    return CertificateAuthority.found("cardio-net", SigningKey.generate(), NOW_IS)


@pytest.mark.parametrize("host", ["share.example.org", "127.0.0.1"])
def test_openssl_accepts_a_server_under_the_hosts_it_was_enrolled_with(
    ca_today: CertificateAuthority, tmp_path: Path, host: str
) -> None:
    shake_hands(ca_today, *served_key_and_leaf(ca_today, tmp_path, host), host)


def test_openssl_refuses_a_server_under_another_host(ca_today: CertificateAuthority, tmp_path: Path) -> None:
    files = served_key_and_leaf(ca_today, tmp_path, "share.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(ca_today, *files, "other.example.org")


def test_openssl_refuses_a_silos_certificate_as_a_server(
    ca_today: CertificateAuthority, tmp_path: Path
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        shake_hands(ca_today, *served_key_and_leaf(ca_today, tmp_path), "share.example.org")


def test_openssl_refuses_a_server_of_another_ca(ca_today: CertificateAuthority, tmp_path: Path) -> None:
    other = CertificateAuthority.found("cardio-net", SigningKey.generate(), NOW_IS)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ca_today, *served_key_and_leaf(other, tmp_path, "share.example.org"), "share.example.org")


def test_no_leaf_outlives_its_ca(ca: CertificateAuthority) -> None:
    assert leaf(ca, life=2 * CA_LIFE).not_valid_after_utc == ca.certificate.not_valid_after_utc
