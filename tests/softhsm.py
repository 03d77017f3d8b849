"""A SoftHSM2 token of a test's own. Where SoftHSM2 is not installed the test fails: CI installs it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pkcs11
import pytest
from pkcs11.util.ec import encode_named_curve_parameters

MODULE: Final = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN: Final = "91827364"
_ED25519_OID: Final = "1.3.101.112"


@dataclass(frozen=True)
class Token:
    """A token with one Ed25519 key pair, and a file with its PIN."""

    label: str
    pin_file: Path

    def reference(self, key: str = "sealsum", pin_source: str | None = None) -> str:
        """What an administrator writes."""
        source = pin_source or f"file:{self.pin_file}"
        return f"pkcs11:token={self.label};object={key}?module-path={MODULE}&pin-source={source}"


def make_token(directory: Path, monkeypatch: pytest.MonkeyPatch, label: str) -> Token:
    """Initialise a token and make a key pair in it, as ``pkcs11-tool --keypairgen`` does."""
    assert MODULE.exists(), "install SoftHSM2: apt-get install softhsm2"
    tokens = directory / "tokens"
    tokens.mkdir()
    config = directory / "softhsm2.conf"
    config.write_text(f"directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(config))
    command = ["softhsm2-util", "--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", PIN]
    subprocess.run(command, check=True, capture_output=True)
    pin_file = directory / "pin"
    pin_file.touch(mode=0o600)
    pin_file.write_text(PIN + "\n")
    library = pkcs11.lib(str(MODULE))
    library.reinitialize()  # it reads its settings once a process
    with library.get_token(token_label=label).open(rw=True, user_pin=PIN) as session:
        curve = {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters(_ED25519_OID)}
        parameters = session.create_domain_parameters(pkcs11.KeyType.EC_EDWARDS, curve, local=True)
        mechanism = pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN
        parameters.generate_keypair(mechanism=mechanism, store=True, label="sealsum")
    return Token(label, pin_file)
