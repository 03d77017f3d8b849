"""Keys by reference: found where they lie, refused where others can read them, shown nowhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from privacy.errors import ConfigurationError
from privacy.identity import SealingKey, SigningKey
from privacy.key_reference import parse_reference
from privacy.keystore import load_identity
from privacy.secret_files import write_secret
from privacy.token_key import open_token
from tests.federation import Federation

CANARY = "canary-8c1f"


@pytest.mark.parametrize(
    "text",
    ["file:/etc/sealsum/key", "env:SEALSUM_KEY", "systemd-creds:identity.key", "pkcs11:token=a;object=b"],
)
def test_a_reference_is_read_and_shown_as_it_was_written(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"file:{CANARY}",
        f"env:{CANARY}",
        f"systemd-creds:../{CANARY}",
        f"vault:{CANARY}",
        "pkcs11:",
        "",
    ],
)
def test_what_is_no_reference_may_be_a_secret_and_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="expected a reference") as caught:
        parse_reference(text)
    assert CANARY not in str(caught.value)


def test_a_secret_is_read_from_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secret(tmp_path / "secret", b"s3cret")
    monkeypatch.setenv("SEALSUM_SECRET", "s3cret")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for text in (f"file:{tmp_path}/secret", "env:SEALSUM_SECRET", "systemd-creds:secret"):
        assert parse_reference(text).read("field") == b"s3cret"


def test_a_secret_that_others_can_read_or_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_secret(tmp_path / "secret", CANARY.encode())
    (tmp_path / "secret").chmod(0o640)
    with pytest.raises(ConfigurationError, match="expected mode 0600 or tighter, got 0640") as caught:
        parse_reference(f"file:{tmp_path}/secret").read("field")
    assert CANARY not in str(caught.value)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(ConfigurationError, match="LoadCredential=secret:/PATH"):
        parse_reference("systemd-creds:secret").read("field")
    with pytest.raises(ConfigurationError, match="environment variable SEALSUM_NONE, got none"):
        parse_reference("env:SEALSUM_NONE").read("field")


def _refer(directory: Path, **places: str) -> None:
    (directory / "keys.json").write_text(json.dumps(places))


def test_an_identity_is_loaded_whose_keys_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, credentials = tmp_path / "state", tmp_path / "credentials"
    here = Federation().identity("silo-1", state)
    assert here.sealing is not None
    credentials.mkdir()
    (state / "identity.key").rename(credentials / "identity.key")
    (state / "sealing.key").unlink()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    monkeypatch.setenv("SEALSUM_SEALING", here.sealing.to_bytes().hex())
    _refer(state, identity_key="systemd-creds:identity.key", sealing_key="env:SEALSUM_SEALING")
    identity = load_identity(state)
    assert identity.signing.verify_key == here.signing.verify_key
    assert identity.sealing is not None
    assert identity.sealing.public_hex == here.sealing.public_hex
    assert identity.client_context.get_ca_certs()


def test_a_key_from_the_environment_serves_tls_without_touching_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Federation().identity("silo-1", tmp_path)
    monkeypatch.setenv("SEALSUM_IDENTITY", here.signing.to_pem().decode())
    (tmp_path / "identity.key").unlink()
    _refer(tmp_path, identity_key="env:SEALSUM_IDENTITY")
    before = sorted(tmp_path.iterdir())
    assert load_identity(tmp_path).client_context.get_ca_certs()
    assert sorted(tmp_path.iterdir()) == before


def test_a_tls_key_that_others_can_read_is_refused_at_the_start(tmp_path: Path) -> None:
    """OpenSSL would take it; whoever has it can be this party at connections."""
    Federation().identity("silo-1", tmp_path)
    write_secret(tmp_path / "tls.key", SigningKey.generate().to_pem())
    _refer(tmp_path, tls_key=f"file:{tmp_path}/tls.key")
    load_identity(tmp_path)
    (tmp_path / "tls.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match="expected mode 0600 or tighter, got 0644"):
        load_identity(tmp_path)


def test_keys_show_in_no_repr_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation()
    identity = federation.identity("silo-1", tmp_path)
    signing, sealing = identity.signing, identity.sealing
    assert isinstance(signing, SigningKey)
    assert isinstance(sealing, SealingKey)
    secrets = [signing.private.private_bytes_raw().hex(), sealing.to_bytes().hex()]
    monkeypatch.setenv("SEALSUM_IDENTITY", f"-----{CANARY}")
    _refer(tmp_path, identity_key="env:SEALSUM_IDENTITY")
    with pytest.raises(ConfigurationError, match="identity key: expected an unencrypted PKCS#8") as caught:
        load_identity(tmp_path)
    _refer(tmp_path, identity_key=CANARY)
    with pytest.raises(ConfigurationError, match=r"keys\.json: identity_key: expected a reference") as second:
        load_identity(tmp_path)
    for text in (repr(identity), repr(caught.value), repr(second.value)):
        assert CANARY not in text
        assert not any(re.search(secret, text) for secret in secrets)


def test_a_token_without_a_tls_key_beside_it_is_refused(tmp_path: Path) -> None:
    Federation().identity("silo-1", tmp_path)
    _refer(tmp_path, identity_key="pkcs11:token=a;object=b?module-path=/x&pin-source=env:PIN")
    with pytest.raises(ConfigurationError, match="tls_key: expected a key for TLS beside"):
        load_identity(tmp_path)


def test_a_pin_in_the_uri_is_refused_unrepeated() -> None:

    with pytest.raises(ConfigurationError, match="expected pin-source in the PKCS#11 URI") as caught:
        open_token(parse_reference(f"pkcs11:token=a;object=b?module-path=/x&pin-value={CANARY}"))
    assert CANARY not in str(caught.value)
    with pytest.raises(ConfigurationError, match="missing: module-path, pin-source; unknown: slot"):
        open_token(parse_reference("pkcs11:token=a;object=b;slot=1"))
