"""nginx passes TLS on by name: the client's certificate arrives, an unknown name arrives nowhere."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from privacy.keystore import Identity
from tests.deploy.validators import DEPLOY, ran, tool
from tests.federation import Federation

pytestmark = pytest.mark.slow
CONFIG = DEPLOY / "nginx" / "sealsum-passthrough.conf"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _config(folder: Path, listen: int, aggregator: int) -> Path:
    """nginx.conf around the shipped file, with ports and log moved to where a test may have them."""
    shipped = CONFIG.read_text("utf-8")
    shipped = shipped.replace("listen 443;", f"listen 127.0.0.1:{listen};").replace("listen [::]:443;", "")
    shipped = shipped.replace("127.0.0.1:7410", f"127.0.0.1:{aggregator}")
    shipped = shipped.replace("/var/log/nginx/sealsum.log", f"{folder}/sealsum.log")
    module = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
    assert module.exists(), "nginx's stream module is not here; run: apt-get install libnginx-mod-stream"
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        f"load_module {module};\nevents {{}}\n{shipped}"
    )
    return path


def test_nginx_accepts_the_file(tmp_path: Path) -> None:
    ran([tool("nginx", "nginx"), "-t", "-c", str(_config(tmp_path, 1443, 7410))])


@contextlib.contextmanager
def _listening(identity: Identity) -> Iterator[tuple[int, list[bytes | None]]]:
    """A server of the federation that only notes whose certificate it was shown."""
    context = identity.server_context
    shown: list[bytes | None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def answer() -> None:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as peer:
                shown.append(peer.getpeercert(binary_form=True))
                peer.sendall(b"seen")

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1], shown
        thread.join(20)


def _connect(port: int) -> socket.socket:
    until = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_a_silos_certificate_passes_and_an_unknown_name_does_not(tmp_path: Path) -> None:
    federation = Federation()
    aggregator = federation.identity("aggregator", tmp_path / "aggregator")
    silo = federation.identity("silo-1", tmp_path / "silo-1")
    context = silo.client_context
    context.check_hostname = (
        False  # the shipped name is an example; the certificate is still the federation's
    )
    port = _free_port()
    with _listening(aggregator) as (upstream, shown):
        process = subprocess.Popen([tool("nginx", "nginx"), "-c", str(_config(tmp_path, port, upstream))])
        try:
            with (
                _connect(port) as plain,
                pytest.raises((ssl.SSLError, ConnectionError)),
                context.wrap_socket(plain, server_hostname="unknown.example.org"),
            ):
                pass
            with (
                _connect(port) as plain,
                context.wrap_socket(plain, server_hostname="aggregator.example.org") as through,
            ):
                assert through.recv(4) == b"seen"
        finally:
            process.terminate()
            process.wait(20)
    own = ssl.PEM_cert_to_DER_cert(
        (tmp_path / "silo-1" / "identity.pem").read_text().partition("-----END")[0]
        + "-----END CERTIFICATE-----"
    )
    assert shown == [own]
    assert '"aggregator.example.org" 200' in (tmp_path / "sealsum.log").read_text()
