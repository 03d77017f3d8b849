"""A certificate that was revoked, or whose CA is retired, opens nothing: also where a connection is older."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.operators.api_tokens import ApiTokens
from aggregator.operators.callers import People, identify
from aggregator.operators.operator import Pseudonyms
from policies.health.meters import Meters
from policies.health.renewal import Upkeep
from privacy.errors import ConfigurationError, SignatureRejected
from privacy.keystore import Identity, load_identity
from privacy.roster import Member
from privacy.standing import Standing
from silo_agent.problems import Unreachable
from silo_agent.transport import FederationClient
from tests.authority import CertificateAuthority
from tests.federation import Federation
from tests.unit.silo_agent.loopback import SILO, Loopback

NOW = datetime.now(UTC)
WAYS = ["by certificate", "by key", "by list", "by a retired CA"]


def _revoke(way: str, directory: Path, shown: x509.Certificate, ca: CertificateAuthority) -> None:
    """Have whoever reads this directory believe this certificate no more."""
    if way == "by certificate":
        digest = shown.fingerprint(hashes.SHA256()).hex(":").upper()
        (directory / "revoked.txt").write_text(f"# stolen on Monday\n\nsha256:{digest}  # hospital 1\n")
    elif way == "by key":
        key = shown.public_key().public_bytes_raw().hex()  # type: ignore[union-attr]  # Ed25519
        (directory / "revoked.txt").write_text(f"key:{key}\n")
    elif way == "by list":
        (directory / "crl.pem").write_bytes(_list(ca, shown.serial_number))
    else:
        pem = CertificateAuthority("testfed").certificate.public_bytes(Encoding.PEM)
        (directory / "ca.pem").write_bytes(pem)


def _list(ca: CertificateAuthority, *serials: int) -> bytes:
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.certificate.subject)
    builder = builder.last_update(NOW).next_update(NOW + timedelta(days=1))
    for serial in serials:
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW).build()
        builder = builder.add_revoked_certificate(one)
    return builder.sign(ca.key.private, None).public_bytes(Encoding.PEM)


def _certificate(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate((identity.directory / "identity.pem").read_bytes())


# --- at a server ---


def _called(federation: Federation, caller: Identity, standing: Standing, directory: Path) -> Member:
    pem = _certificate(caller).public_bytes(Encoding.PEM).decode()
    scope = {"type": "http", "headers": [], "extensions": {"tls": {"client_cert_chain": [pem]}}}
    pseudonyms = Pseudonyms.kept(directory / "pseudonym.key")
    tokens: ApiTokens = None  # type: ignore[assignment]  # nobody sends one
    people = People({}, pseudonyms, tokens, standing=standing, other_authorities=True)
    found = asyncio.run(identify(scope, federation.charter, people))
    assert isinstance(found, Member)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_server_refuses_a_revoked_certificate_from_the_reload_on(tmp_path: Path, way: str) -> None:
    federation = Federation()
    server = federation.identity("aggregator", tmp_path / "server")
    silo = federation.identity("silo-1", tmp_path / "silo")
    other = federation.identity("silo-2", tmp_path / "other")
    assert _called(federation, silo, server.standing, tmp_path).id == "silo-1"
    _revoke(way, server.directory, _certificate(silo), federation.ca)
    assert _called(federation, silo, server.standing, tmp_path).id == "silo-1", "nothing was reloaded"
    server.standing.take(server.standing.read())
    with pytest.raises(SignatureRejected, match=r"revoke|retired"):
        _called(federation, silo, server.standing, tmp_path)
    if way != "by a retired CA":
        assert _called(federation, other, server.standing, tmp_path).id == "silo-2"


def test_a_ca_that_comes_back_is_believed_again(tmp_path: Path) -> None:
    federation = Federation()
    server = federation.identity("aggregator", tmp_path / "server")
    silo = federation.identity("silo-1", tmp_path / "silo")
    mine = (server.directory / "ca.pem").read_bytes()
    _revoke("by a retired CA", server.directory, _certificate(silo), federation.ca)
    server.standing.take(server.standing.read())
    (server.directory / "ca.pem").write_bytes((server.directory / "ca.pem").read_bytes() + mine)
    server.standing.take(server.standing.read())
    assert _called(federation, silo, server.standing, tmp_path).id == "silo-1"


def test_a_strangers_list_revokes_nobody_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation()
    server = federation.identity("aggregator", tmp_path / "server")
    silo = federation.identity("silo-1", tmp_path / "silo")
    stranger = CertificateAuthority("testfed")
    (server.directory / "crl.pem").write_bytes(_list(stranger, _certificate(silo).serial_number))
    upkeep = Upkeep(server, Meters("aggregator", tmp_path), None)
    upkeep.reload()
    assert _called(federation, silo, server.standing, tmp_path).id == "silo-1"
    assert [one for one in caplog.records if one.getMessage() == "revocation_lists_passed_over"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("revoked.txt", "sha256:12\n"),
        ("revoked.txt", "serial:" + "0" * 64),
        ("crl.pem", "nothing"),
        ("crl.pem", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"),
    ],
)
def test_what_is_no_revocation_stops_the_start_and_leaves_a_running_process_as_it_was(
    tmp_path: Path, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation = Federation()
    server = federation.identity("aggregator", tmp_path / "server")
    silo = federation.identity("silo-1", tmp_path / "silo")
    _revoke("by key", server.directory, _certificate(silo), federation.ca)
    upkeep = Upkeep(server, Meters("aggregator", tmp_path), None)
    upkeep.reload()
    (server.directory / name).write_text(text)
    upkeep.reload()
    assert [one for one in caplog.records if one.getMessage() == "reload_failed"]
    with pytest.raises(SignatureRejected):
        _called(federation, silo, server.standing, tmp_path)
    with pytest.raises(ConfigurationError, match=name):
        load_identity(server.directory)


# --- at a silo, and at the aggregator as a client ---


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Loopback]:
    loopback = Loopback(tmp_path)
    yield loopback
    loopback.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_silo_sends_nothing_more_over_an_open_connection_to_a_server_that_was_revoked(
    servers: Loopback, tmp_path: Path, way: str
) -> None:
    silo = servers.federation.identity(SILO, tmp_path / "silo")
    shown = x509.load_pem_x509_certificate((tmp_path / "aggregator" / "identity.pem").read_bytes())
    with FederationClient(silo, servers.url, patience_s=1) as client:
        client.get_bytes("/v1/charter", limit=1 << 20)
        _revoke(way, silo.directory, shown, servers.federation.ca)
        silo.reload()
        for _ in ("the open connection", "a new one"):
            with pytest.raises(Unreachable, match=r"revoke|retired"):
                client.put_bytes("/v1/rounds/0/parts/0", b"secret")
    assert not servers.uploads


def test_an_asynchronous_client_neither(servers: Loopback, tmp_path: Path) -> None:
    """As the aggregator calls share servers."""
    caller = servers.federation.identity("aggregator", tmp_path / "caller")
    shown = x509.load_pem_x509_certificate((tmp_path / "aggregator" / "identity.pem").read_bytes())

    async def call() -> None:
        async with httpx.AsyncClient(verify=caller.client_context, trust_env=False) as client:
            assert (await client.get(f"{servers.url}/v1/charter")).status_code == 200
            _revoke("by key", caller.directory, shown, servers.federation.ca)
            caller.reload()
            for _ in ("the open connection", "a new one"):
                with pytest.raises((httpx.TransportError, ssl.SSLError)):
                    await client.put(f"{servers.url}/v1/rounds/0/parts/0", content=b"secret")

    anyio.run(call)
    assert not servers.uploads
