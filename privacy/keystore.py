"""A party's identity directory: its keys, certificate, CA and pinned officers, read and written in one place.

This is the one module below the siblings that touches the disk and builds TLS contexts, so that the
rule "a key that others can read is refused" is written once (ADR 0005). It opens no connection.

    identity.key   Ed25519 PKCS#8 PEM, 0600      signs envelopes and authenticates TLS
    identity.pem   its certificate (chain)       issued by the federation's CA
    sealing.key    96 raw bytes, 0600            silos and share servers
    ca.pem         the federation's CA           the only CA we accept
    federation.json  {"federation","party","role","officers"}
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.identity import SealingKey, SigningKey
from privacy.ids import HexDigest, Name, PartyName
from privacy.roster import SEALED_TO, Charter, Role
from privacy.secret_files import read_file as read_file  # others import these from here
from privacy.secret_files import read_secret as read_secret
from privacy.secret_files import write_secret as write_secret


class FederationPin(Frozen):
    """What was pinned at enrolment: which federation, who we are in it, and whose signatures rule it."""

    federation: Name
    party: PartyName
    role: Role
    officers: HexDigest
    """Digest of the officers' document as it was then; later ones follow from it."""


@dataclass(frozen=True)
class Identity:
    """A party's loaded keys and pins."""

    directory: Path
    pin: FederationPin
    signing: SigningKey
    sealing: SealingKey | None = field(repr=False)

    @property
    def client_context(self) -> ssl.SSLContext:
        """TLS 1.3 client context: our certificate, the federation's CA and nobody else's."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.directory / "ca.pem"))
        return self._with_certificate(context)

    @property
    def server_context(self) -> ssl.SSLContext:
        """TLS 1.3 server context. A certificate is verified if shown; the web layer denies who shows none."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.directory / "ca.pem"))
        context.verify_mode = ssl.CERT_OPTIONAL
        return self._with_certificate(context)

    def recognised_in(self, charter: Charter) -> Charter:
        """The charter, if whatever it says is sealed to us can be opened here, and so by nobody else.

        No signature of ours shows a sealing key: a registrar that was broken into could enter one of its own,
        and officers sign what it proposes.

        Raises:
            ConfigurationError: it lists our signing key with a sealing key that was not made here.
        """
        own = "" if self.sealing is None else self.sealing.public_hex
        for member in charter.members:
            if member.verify_key == self.signing.verify_key and member.sealing_key != own:
                raise ConfigurationError(
                    f"charter: expected the sealing key in {self.directory} for {member.id}, got another, "
                    "whose owner reads what is sealed to us; tell the officers: the registrar may be in "
                    "other hands"
                )
        return charter

    def _with_certificate(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.directory / "identity.pem", self.directory / "identity.key")
        return context


def load_identity(directory: Path) -> Identity:
    """Read an identity directory.

    Raises:
        ConfigurationError: a file is missing, malformed, or a key is readable by others.
    """
    if not (directory / "federation.json").exists():
        raise ConfigurationError(
            f"{directory}: no party is enrolled here (federation.json is missing); enrol first"
        )
    try:
        pin = FederationPin.model_validate(json.loads(read_file(directory / "federation.json")))
    except (ValueError, ValidationError) as error:
        raise ConfigurationError(
            f"{directory / 'federation.json'}: expected the pin written at enrolment"
        ) from error
    signing = SigningKey.from_pem(read_secret(directory / "identity.key"))
    sealing = _sealing_key(directory / "sealing.key") if pin.role in SEALED_TO else None
    for name in ("identity.pem", "ca.pem"):
        read_file(directory / name)
    return Identity(directory, pin, signing, sealing)


def _sealing_key(path: Path) -> SealingKey:
    if not path.exists():
        raise ConfigurationError(
            f"{path}: expected the key that enrolment makes, found none (older releases made none for "
            "silos); restore it, or enrol anew with another --state: docs/operating.md, Enrolling anew"
        )
    return SealingKey.from_bytes(read_secret(path))
