"""The keys a party enrols with: made in its state directory, or already elsewhere and only referred to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aggregator.enrolment.messages import Invitation
from privacy.errors import ConfigurationError
from privacy.identity import SealingKey, SigningKey
from privacy.key_reference import Reference, parse_reference
from privacy.keystore import KeyPlaces, read_sealing_key, read_signing_key, write_secret
from privacy.renewal import party_uri
from privacy.roster import SEALED_TO
from privacy.tls_delegation import delegate
from silo_agent.durable import write_durably

MADE: Final = ("identity.key", "sealing.key", "tls.key", "keys.json")
"""What enrolment writes before anything is sent, and removes if nothing was issued."""
NO_PLACES: Final = KeyPlaces()


@dataclass(frozen=True)
class EnrolmentKeys:
    """What a request for a certificate is made of."""

    signing: SigningKey
    tls: SigningKey
    """The identity key itself, unless that is in a token."""
    sealing: SealingKey | None = field(repr=False)
    delegation: bytes = b""


def places_of(identity_key: str | None, sealing_key: str | None) -> KeyPlaces:
    """The references given on the command line.

    Raises:
        ConfigurationError: one is no reference; it is not repeated.
    """
    return KeyPlaces(
        identity_key=_reference("--identity-key", identity_key),
        sealing_key=_reference("--sealing-key", sealing_key),
    )


def make_keys(invitation: Invitation, state: Path, places: KeyPlaces) -> EnrolmentKeys:
    """Make what is not elsewhere, store it and the references, before anything is sent.

    Raises:
        ConfigurationError: a key that is referred to cannot be read, or one is here already.
    """
    delegation = b""
    if places.identity_key is None:
        signing = tls = SigningKey.generate()
        write_secret(state / "identity.key", signing.to_pem())
    else:
        signing = tls = read_signing_key(places.identity_key, "--identity-key")
        if places.identity_key.kind == "pkcs11":
            tls = SigningKey.generate()
            write_secret(state / "tls.key", tls.to_pem())
            places = places.model_copy(
                update={"tls_key": Reference("file", str((state / "tls.key").resolve()))}
            )
            party = party_uri(invitation.federation, invitation.party)
            delegation = delegate(signing, party, tls.private.public_key(), datetime.now(UTC))
    sealing = None
    if invitation.role in SEALED_TO:
        if places.sealing_key is not None:
            sealing = read_sealing_key(places.sealing_key)
        else:
            sealing = SealingKey.generate()
            write_secret(state / "sealing.key", sealing.to_bytes())
    elsewhere = {name: str(place) for name, place in places if place is not None}
    if elsewhere:
        write_durably(state / "keys.json", json.dumps(elsewhere, indent=2).encode())
    return EnrolmentKeys(signing, tls, sealing, delegation)


def _reference(option: str, text: str | None) -> Reference | None:
    if text is None:
        return None
    try:
        return parse_reference(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None
