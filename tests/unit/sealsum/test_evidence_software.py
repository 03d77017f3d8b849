"""What a pack says of what made it: OpenSSL and its FIPS state, and the image where that is known."""

from __future__ import annotations

import pytest
from cryptography.hazmat.backends.openssl.backend import backend

from privacy.errors import ConfigurationError
from sealsum.evidence_software import IMAGE_VARIABLE, fips_mode, versions


def test_openssl_is_named_with_its_fips_state(monkeypatch: pytest.MonkeyPatch) -> None:
    said = versions()["openssl"]
    assert said == {"version": backend.openssl_version_text(), "fips": fips_mode()}
    assert said["version"].startswith("OpenSSL ")
    monkeypatch.setattr(type(backend), "hash_supported", lambda _self, algorithm: algorithm.name != "md5")
    assert versions()["openssl"]["fips"] is True


def test_the_image_is_what_its_operator_says_and_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IMAGE_VARIABLE, raising=False)
    assert versions()["image"] is None
    monkeypatch.setenv(IMAGE_VARIABLE, "sha256:" + "ab" * 32)
    assert versions()["image"] == "sha256:" + "ab" * 32
    monkeypatch.setenv(IMAGE_VARIABLE, "latest")
    with pytest.raises(ConfigurationError, match="expected sha256: and 64 hex digits"):
        versions()
