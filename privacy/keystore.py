"""A party's identity directory: its keys, certificate, CA and pinned officers, read and written in one place.

This is the one module below the siblings that touches the disk and builds TLS contexts, so that the
rule "a key that others can read is refused" is written once (ADR 0005). It opens no connection.

    identity.key   Ed25519 PKCS#8 PEM, 0600      signs envelopes and authenticates TLS
    identity.pem   its certificate (chain)       issued by the federation's CA
    sealing.key    96 raw bytes, 0600            silos and share servers
    ca.pem         the federation's CA           the only CA we accept (two while it is being replaced)
    revoked.txt, crl.pem                         certificates that count no more (``privacy/standing.py``)
    federation.json  {"federation","party","role","officers","registrar"}
    keys.json      {"identity_key","sealing_key","tls_key"}: where keys lie that are not in this directory
"""

from __future__ import annotations

import json
import os
import ssl
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints, ValidationError

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.identity import SealingKey, SigningKey
from privacy.ids import HexDigest, Name, PartyName
from privacy.judged_tls import judging
from privacy.key_reference import KeyReference, Reference
from privacy.roster import SEALED_TO, Charter, Role
from privacy.secret_files import read_file as read_file  # others import these from here
from privacy.secret_files import read_secret as read_secret
from privacy.secret_files import write_secret as write_secret
from privacy.standing import Standing


class FederationPin(Frozen):
    """What was pinned at enrolment: which federation, who we are in it, and whose signatures rule it."""

    federation: Name
    party: PartyName
    role: Role
    officers: HexDigest
    """Digest of the officers' document as it was then; later ones follow from it."""
    registrar: Annotated[str, StringConstraints(pattern=r"^(https://[^\s/]+)?$", max_length=300)] = ""
    """Where certificates are renewed; nowhere known to parties enrolled by earlier releases."""


class KeyPlaces(Frozen):
    """``keys.json``: references to keys that lie elsewhere."""

    identity_key: KeyReference | None = None
    sealing_key: KeyReference | None = None
    tls_key: KeyReference | None = None
    """The certificate's own key where ``identity_key`` is in a token (``privacy/tls_delegation.py``)."""


@dataclass(frozen=True)
class Identity:
    """A party's loaded keys and pins."""

    directory: Path
    pin: FederationPin
    signing: SigningKey
    sealing: SealingKey | None = field(repr=False)
    places: KeyPlaces = field(default_factory=KeyPlaces)
    _contexts: weakref.WeakSet[ssl.SSLContext] = field(
        default_factory=weakref.WeakSet, repr=False, compare=False
    )
    """Those in use, which follow a renewal."""

    @property
    def tls(self) -> SigningKey:
        """The key of the certificate: the identity key itself, unless that is in a token.

        Raises:
            ConfigurationError: it is in a token, and ``keys.json`` names no TLS key; or that cannot be read.
        """
        return self.signing if self.places.tls_key is None else _signing_key(self.places.tls_key, "tls_key")

    @cached_property
    def standing(self) -> Standing:
        """Which certificates count no more; follows ``reload``.

        Raises:
            ConfigurationError: as ``read_believed``.
        """
        return Standing(self.directory)

    @property
    def client_context(self) -> ssl.SSLContext:
        """TLS 1.3 client context: our certificate, the federation's CA and nobody else's; a server whose
        certificate counts no more is not spoken to."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.directory / "ca.pem"))
        return self._with_certificate(judging(context, self.standing))

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
        self.load_certificate(context)
        self._contexts.add(context)
        return context

    def reload(self) -> None:
        """Have every context in use show and believe what is on disk now; open connections stay as they are.

        OpenSSL takes no CA back: ``standing`` refuses what one issued that is in ``ca.pem`` no more, and what
        was revoked, also at connections that are open already.

        Raises:
            ConfigurationError: certificate and key do not belong together, or as ``read_believed``.
        """
        believed = self.standing.read()
        for context in tuple(self._contexts):
            self.load_certificate(context)
            try:
                context.load_verify_locations(cafile=str(self.directory / "ca.pem"))
            except (ssl.SSLError, OSError) as error:
                raise ConfigurationError(
                    f"{self.directory / 'ca.pem'}: expected CA certificates ({error.strerror})"
                ) from error
        self.standing.take(believed)

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Have a context show the certificate as it is on disk now; connections from now on see it."""
        reference = self.places.tls_key or self.places.identity_key
        path = self.directory / "identity.key" if reference is None else reference.path("identity_key")
        certificate = self.directory / "identity.pem"
        try:
            if path is not None:
                context.load_cert_chain(certificate, path)
            else:
                with _in_memory(self.tls.to_pem()) as anonymous:
                    context.load_cert_chain(certificate, anonymous)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"{certificate}: expected the certificate of our own key ({error.strerror}); restore "
                "both, or renew it: sealsum keys renew"
            ) from error


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
    places = _key_places(directory / "keys.json")
    in_directory = Reference("file", str(directory / "identity.key"))
    signing = _signing_key(places.identity_key or in_directory, "identity_key")
    if places.tls_key is not None:
        _signing_key(places.tls_key, "tls_key")  # OpenSSL would read one that others can read, too
    sealing = None
    if pin.role in SEALED_TO:
        sealing = _sealing_key(directory / "sealing.key", places.sealing_key)
    for name in ("identity.pem", "ca.pem"):
        read_file(directory / name)
    identity = Identity(directory, pin, signing, sealing, places)
    identity.standing.read()
    return identity


def _key_places(path: Path) -> KeyPlaces:
    if not path.exists():
        return KeyPlaces()
    try:
        places = KeyPlaces.model_validate_json(read_file(path))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(step) for step in fault["loc"]) or "keys"
        raise ConfigurationError(f"{path}: {field}: {fault['msg'].removeprefix('Value error, ')}") from None
    in_token = places.identity_key is not None and places.identity_key.kind == "pkcs11"
    if in_token and places.tls_key is None:
        raise ConfigurationError(
            f"{path}: tls_key: expected a key for TLS beside an identity key in a token, which OpenSSL "
            "cannot use; enrol with --identity-key, which makes one"
        )
    return places


def _signing_key(reference: Reference, field: str) -> SigningKey:
    if reference.kind == "pkcs11":
        # Imported where a token is used: the extra hsm, and its native library, are for those who have one.
        from privacy.token_key import open_token

        return SigningKey(open_token(reference))
    return SigningKey.from_pem(reference.read(field))


def read_signing_key(reference: Reference, field: str) -> SigningKey:
    """The signing key that a reference names, be it in a token.

    Raises:
        ConfigurationError: it is not there, not an Ed25519 key, or readable by others.
    """
    return _signing_key(reference, field)


def read_sealing_key(reference: Reference) -> SealingKey:
    """The sealing key that a reference names; hex in an environment variable, which holds no zero bytes.

    Raises:
        ConfigurationError: it is not there, not of that form, or readable by others.
    """
    raw = reference.read("sealing_key")
    if reference.kind == "env":
        try:
            raw = bytes.fromhex(raw.decode("ascii", "replace"))
        except ValueError:
            raise ConfigurationError(f"sealing_key: expected hex in {reference}") from None
    return SealingKey.from_bytes(raw)


@contextmanager
def _in_memory(pem: bytes) -> Iterator[str]:
    """A file that is on no disk, for OpenSSL, which reads keys from files only; gone when the block ends."""
    descriptor = os.memfd_create("tls-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _sealing_key(path: Path, elsewhere: Reference | None) -> SealingKey:
    if elsewhere is not None:
        return read_sealing_key(elsewhere)
    if not path.exists():
        raise ConfigurationError(
            f"{path}: expected the key that enrolment makes, found none (older releases made none for "
            "silos); restore it, or enrol anew with another --state: docs/operating.md, Enrolling anew"
        )
    return SealingKey.from_bytes(read_secret(path))
