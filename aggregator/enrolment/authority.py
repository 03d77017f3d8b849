"""The federation authority's directory: founded once, read by the commands of the officer and the registrar.

ca.key ca.pem      the CA; after it, in ca.pem, CAs that it replaces, while they are still believed
ca-rollover.pem    new CAs' keys certified by those before them
federation.json    name, and the digest of the first officers
officers.json      all versions of the officers, oldest first; the first unsigned until a charter is in force
officer.key        only where one officer founded the federation for herself: elsewhere each keeps her own
policy.yaml        the federation's threat model, as its authors wrote it
register.db        invited and enrolled parties
charter.json       the endorsed charter, once there is one
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from pydantic import ValidationError

from aggregator.enrolment.certificates import CertificateAuthority, chain_pem
from aggregator.enrolment.register import Register
from aggregator.enrolment.registrar import Authorities
from policies.loader import LoadedPolicy, load_threat_model
from privacy.canonical import Frozen, canonical_bytes
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import HexDigest, Name, PartyId
from privacy.keystore import read_file, read_secret, write_secret
from privacy.officers import Endorsed, Officer, Officers, read_body, unsigned
from privacy.wire.charter import EndorsedCharter, VerifiedCharter, open_charter, parse_charter


class AuthorityCard(Frozen):
    """``federation.json`` of the authority: what is public about it."""

    federation: Name
    officers: HexDigest
    """Digest of version 1 of the officers: where the trust of every party begins."""


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

    def authorities(self) -> Authorities:
        """CAs in force, and the keys that are renewed no more."""
        path = self.directory / "ca-rollover.pem"
        charter = self.in_force()
        return Authorities(
            pem=read_file(self.directory / "ca.pem").decode(),
            rollover_pem=read_file(path).decode() if path.exists() else "",
            revoked=frozenset() if charter is None else frozenset(charter.charter.revoked),
        )

    def officers(self) -> tuple[Endorsed, ...]:
        """All versions of the officers, oldest first; the last one is in force.

        Raises:
            ConfigurationError: the file is not as founding or adopting wrote it.
        """
        path = self.directory / "officers.json"
        try:
            return tuple(Endorsed.model_validate(one) for one in json.loads(read_file(path)))
        except ValueError as error:
            raise ConfigurationError(f"{path}: expected the officers written by 'federation init'") from error

    def officers_in_force(self) -> Officers:
        """The officers whose endorsement the next charter needs."""
        return read_body(self.officers()[-1], Officers)

    def officer(self) -> SigningKey:
        """The one officer's key, where it lies here.

        Raises:
            ConfigurationError: it does not, or it is not the key of an officer.
        """
        path = self.directory / "officer.key"
        if not path.exists():
            raise ConfigurationError(
                f"{path}: there is none; officers keep their own keys: use 'sealsum federation propose', "
                "'sealsum officer sign' and 'sealsum federation endorse'"
            )
        officer = SigningKey.from_pem(read_secret(path))
        if officer.verify_key not in self.officers_in_force().keys.values():
            raise ConfigurationError(
                f"{path}: expected an officer's key, got another; parties would refuse a charter it signs"
            )
        return officer

    def policy(self) -> LoadedPolicy:
        """The federation's threat model, checked again."""
        above = sorted(self.directory.glob("policy-parent-*.yaml"))
        parents = [read_file(path).decode() for path in above]
        return load_threat_model(read_file(self.directory / "policy.yaml").decode(), parents)

    def store_policy(self, text: str, parents: Sequence[str]) -> None:
        """Keep the threat model of the charter in force as the one to start the next from."""
        _write_policy(self.directory, text, parents)

    def endorsed_charter(self) -> EndorsedCharter | None:
        """The charter in force as it is served; ``None`` before the first."""
        path = self.directory / "charter.json"
        return parse_charter(read_file(path)) if path.exists() else None

    def in_force(self) -> VerifiedCharter | None:
        """The charter in force, checked again; ``None`` before the first."""
        endorsed = self.endorsed_charter()
        return None if endorsed is None else open_charter(endorsed, self.card.officers, self.federation)

    def store_charter(self, endorsed: EndorsedCharter) -> Path:
        """Put an endorsed charter in force; readers see the old one or the new one, never half."""
        path = self.directory / "charter.json"
        write_atomically(path, canonical_bytes(endorsed))
        write_atomically(self.directory / "officers.json", _listed(endorsed.officers))
        return path


def found_authority(directory: Path, officers: Officers, policy: LoadedPolicy, now: datetime) -> Authority:
    """Make a federation of these officers: CA, policy and an empty register. Never overwrites.

    Raises:
        ConfigurationError: the directory holds something.
    """
    if officers.version != 1:
        raise ConfigurationError(f"officers.version: expected 1, got {officers.version}")
    federation, ca_key = officers.federation, SigningKey.generate()
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
    write_atomically(directory / "ca.pem", chain_pem([authority.certificate]).encode())
    _write_policy(directory, policy.text, policy.parents)
    write_atomically(directory / "officers.json", _listed([unsigned(officers, "officers", federation)]))
    Register(directory / "register.db").create()
    card = AuthorityCard(federation=federation, officers=officers.digest)
    write_atomically(directory / "federation.json", canonical_bytes(card))
    return load_authority(directory)


def found_alone(directory: Path, federation: str, policy: LoadedPolicy, now: datetime) -> Authority:
    """A federation with one officer whose key lies in the authority's directory: one person rules it alone.

    Raises:
        ConfigurationError: the directory holds something, or the name is not a name.
    """
    officer = SigningKey.generate()
    try:
        alone = Officer(name=PartyId("officer"), legal_entity=federation, verify_key=officer.verify_key)
        officers = Officers(
            federation=federation, version=1, threshold=1, officers=(alone,), one_institution="allowed"
        )
    except ValidationError as error:
        raise ConfigurationError(
            f"name: expected lower-case letters, digits, '.', '_' or '-' (at most 63), got {federation!r}"
        ) from error
    authority = found_authority(directory, officers, policy, now)
    write_secret(directory / "officer.key", officer.to_pem())
    return authority


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


def _write_policy(directory: Path, text: str, parents: Sequence[str]) -> None:
    write_atomically(directory / "policy.yaml", text.encode())
    for stale in directory.glob("policy-parent-*.yaml"):
        stale.unlink()
    for generation, parent in enumerate(parents, 1):
        write_atomically(directory / f"policy-parent-{generation}.yaml", parent.encode())


def _listed(officers: Iterable[Endorsed]) -> bytes:
    return canonical_bytes([one.model_dump(mode="json") for one in officers])


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
