"""The federation authority's directory: founded once, read by the commands of the officer and the registrar.

ca.key ca.pem      the CA                    officer.key       signs charters; read to seal, by nothing else
federation.json    name and officer's public key
policy.yaml        the federation's threat model, as its authors wrote it
register.db        invited and enrolled parties
charter.json       the sealed charter, once there is one
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from pydantic import ValidationError

from aggregator.enrolment.certificates import CertificateAuthority, chain_pem
from aggregator.enrolment.register import Register
from policies.loader import LoadedPolicy, load_threat_model
from privacy.canonical import Frozen, canonical_bytes
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import HexKey, Name
from privacy.keystore import read_file, read_secret, write_secret
from privacy.roster import Charter
from privacy.wire.charter import open_charter
from privacy.wire.envelope import Envelope, parse_envelope


class AuthorityCard(Frozen):
    """``federation.json`` of the authority: what is public about it."""

    federation: Name
    officer_key: HexKey


@dataclass(frozen=True)
class Authority:
    """A founded federation. Private keys are read where they are used, not held here."""

    directory: Path
    card: AuthorityCard
    ca_pem: str
    register: Register

    @property
    def federation(self) -> str:
        """The federation's name."""
        return self.card.federation

    def certificate_authority(self) -> CertificateAuthority:
        """The CA with its key, to issue certificates."""
        key = SigningKey.from_pem(read_secret(self.directory / "ca.key"))
        return CertificateAuthority(x509.load_pem_x509_certificate(self.ca_pem.encode()), key)

    def officer(self) -> SigningKey:
        """The officer's key, to sign a charter.

        Raises:
            ConfigurationError: it is not the key that the parties have pinned.
        """
        officer = SigningKey.from_pem(read_secret(self.directory / "officer.key"))
        if officer.verify_key != self.card.officer_key:
            raise ConfigurationError(
                f"{self.directory / 'officer.key'}: expected the key in federation.json, got another; "
                "parties would refuse a charter it signs"
            )
        return officer

    def policy(self) -> LoadedPolicy:
        """The federation's threat model, checked again."""
        return load_threat_model(read_file(self.directory / "policy.yaml").decode())

    def charter_envelope(self) -> Envelope | None:
        """The sealed charter as it is served; ``None`` before the first sealing."""
        path = self.directory / "charter.json"
        return parse_envelope(read_file(path)) if path.exists() else None

    def charter(self) -> Charter | None:
        """The sealed charter in force; ``None`` before the first sealing."""
        envelope = self.charter_envelope()
        if envelope is None:
            return None
        return open_charter(envelope, self.card.officer_key, self.federation)

    def store_charter(self, envelope: Envelope) -> Path:
        """Put a newly signed charter in force; readers see the old one or the new one, never half."""
        path = self.directory / "charter.json"
        write_atomically(path, canonical_bytes(envelope))
        return path


def found_authority(directory: Path, federation: str, policy: LoadedPolicy, now: datetime) -> Authority:
    """Make a federation: CA, officer, policy and an empty register. Never overwrites.

    Raises:
        ConfigurationError: the directory holds something, or the name is not a name.
    """
    ca_key, officer = SigningKey.generate(), SigningKey.generate()
    try:
        card = AuthorityCard(federation=federation, officer_key=officer.verify_key)
    except ValidationError as error:
        raise ConfigurationError(
            f"name: expected lower-case letters, digits, '.', '_' or '-' (at most 63), got {federation!r}"
        ) from error
    try:
        if directory.exists() and any(directory.iterdir()):
            raise ConfigurationError(
                f"{directory}: expected an empty directory; a federation is founded once"
            )
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be made a directory ({error.strerror})") from error
    authority = CertificateAuthority.found(federation, ca_key, now)
    write_secret(directory / "ca.key", ca_key.to_pem())
    write_secret(directory / "officer.key", officer.to_pem())
    write_atomically(directory / "ca.pem", chain_pem([authority.certificate]).encode())
    write_atomically(directory / "policy.yaml", policy.text.encode())
    Register(directory / "register.db").create()
    write_atomically(directory / "federation.json", canonical_bytes(card))
    return load_authority(directory)


def load_authority(directory: Path) -> Authority:
    """Open a founded federation.

    Raises:
        ConfigurationError: a file is missing or malformed.
    """
    path = directory / "federation.json"
    try:
        card = AuthorityCard.model_validate(json.loads(read_file(path)))
    except ValueError as error:
        raise ConfigurationError(f"{path}: expected the card written by 'sealsum federation init'") from error
    return Authority(
        directory, card, read_file(directory / "ca.pem").decode(), Register(directory / "register.db")
    )


def write_atomically(path: Path, raw: bytes) -> None:
    """Replace a public file as a whole, durably."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
