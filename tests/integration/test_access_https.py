"""Real TLS: people by certificates of their own CA, and `sealsum token`; no other CA lets one in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from privacy.identity import SigningKey
from privacy.keystore import write_secret
from tests.authority import CertificateAuthority
from tests.federation import Federation
from tests.integration.test_aggregator_https import _start

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def _person(directory: Path, name: str, ca: CertificateAuthority) -> SigningKey:
    key = SigningKey.generate()
    write_secret(directory / f"{name}.key", key.to_pem())
    leaf = ca.leaf(name, key.private.public_key())
    (directory / f"{name}.pem").write_bytes(leaf.public_bytes(Encoding.PEM))
    return key


def _sealsum(root: Path, url: str, *words: str, by: str) -> subprocess.CompletedProcess[str]:
    proof = ["--server", url, "--ca", str(root / "aggregator" / "ca.pem")]
    proof += ["--cert", str(root / f"{by}.pem"), "--key", str(root / f"{by}.key")]
    return subprocess.run(
        [sys.executable, "-m", "sealsum", *words, *proof, "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"XDG_STATE_HOME": str(root / "home")},
    )


def test_a_person_comes_by_a_certificate_of_the_operators_ca_and_of_no_other(tmp_path: Path) -> None:
    Federation().identity("aggregator", tmp_path / "aggregator")
    hospital = CertificateAuthority("hospital")
    (tmp_path / "operators-ca.pem").write_bytes(hospital.certificate.public_bytes(Encoding.PEM))
    eve = _person(tmp_path, "eve", hospital)
    mallory = _person(tmp_path, "mallory", CertificateAuthority("hospital"))
    _person(tmp_path, "unknown", hospital)
    config = tmp_path / "server.yaml"
    config.write_text(
        "state_dir: aggregator\nlisten: 127.0.0.1:0\noperators:\n  ca: operators-ca.pem\n  people:\n"
        f"    eve: {{roles: [site_admin], verify_key: {eve.verify_key}}}\n"
        f"    mallory: {{roles: [site_admin], verify_key: {mallory.verify_key}}}\n"
    )
    process, url = _start("aggregator", config)
    try:
        who = _sealsum(tmp_path, url, "whoami", by="eve")
        assert (who.returncode, json.loads(who.stdout)["roles"]) == (0, ["site_admin"]), who.stderr
        asked = ("--role", "auditor", "--scope", "jobs", "--expires", "1", "--label", "x")
        out = tmp_path / "api.token"
        issued = _sealsum(tmp_path, url, "token", "new", *asked, "--out", str(out), by="eve")
        assert issued.returncode == 0, issued.stderr
        assert out.stat().st_mode & 0o777 == 0o600
        assert out.read_text().strip() not in issued.stdout + issued.stderr
        assert len(json.loads(_sealsum(tmp_path, url, "token", "list", by="eve").stdout)) == 1
        assert json.loads(_sealsum(tmp_path, url, "read", "jobs", by="eve").stdout) == {"jobs": []}
        got = _sealsum(tmp_path, url, "read", "log", "--out", str(tmp_path / "log.jsonl"), by="eve")
        lines = (tmp_path / "log.jsonl").read_bytes().splitlines()
        assert (got.returncode, json.loads(got.stdout)["entries"]) == (0, len(lines)), got.stderr

        refused = _sealsum(tmp_path, url, "whoami", by="unknown")
        assert (refused.returncode, "nor an operator's" in refused.stderr) == (2, True)
        stranger = _sealsum(tmp_path, url, "whoami", by="mallory")
        assert (stranger.returncode, "no answer" in stranger.stderr) == (2, True), stranger.stderr
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
