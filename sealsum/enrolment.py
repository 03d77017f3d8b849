"""Enrolment from the party's side: make the key here, prove the invitation, keep the certificate.

    sealsum silo enroll --token-file FILE --state DIR        (aggregator, share-server and job likewise)

The private key is made in the state directory and stays there; the secret comes from a file, never from
the command line. What is pinned is what the token named: the federation's officers and its CA.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click
import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from pydantic import ValidationError

from aggregator.enrolment.certificates import party_uri
from aggregator.enrolment.messages import EnrolRequest, Invitation
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, PeerFault, SignatureRejected
from privacy.keystore import FederationPin, Identity, KeyPlaces, load_identity, read_secret
from privacy.renewal import certificate_request
from privacy.roster import Role
from privacy.tls_delegation import identity_key_of
from sealsum.enrolment_keys import MADE, NO_PLACES, EnrolmentKeys, make_keys, places_of
from sealsum.registrar_client import AnswerLost, request_certificate
from silo_agent.durable import write_durably

_LOST = """{cause}
The invitation may be used up. To start over: remove {state}, and ask the officer to run
    sealsum federation invite … --party {party} --replace"""


@dataclass(frozen=True)
class Enrolled:
    """What an enrolment left on disk."""

    identity: Identity
    certificate: x509.Certificate


def read_invitation(path: Path) -> Invitation:
    """Read a token file.

    Raises:
        ConfigurationError: others can read it, or it is not a token. The message never shows its content.
    """
    raw = read_secret(path)
    try:
        return Invitation.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(step) for step in fault["loc"])
        raise ConfigurationError(f"{path}: {field or 'token'}: {fault['msg']}") from None


def enrol(
    invitation: Invitation,
    state: Path,
    transport: httpx.BaseTransport | None = None,
    places: KeyPlaces = NO_PLACES,
) -> Enrolled:
    """Turn an invitation into an identity directory, in this order:

    (1) the state directory, private, without a key; (2) keys made and stored before anything is sent;
    (3) the request, signed by the key; (4) the answer checked: for our key, our name, by the CA that the
    token named; (5) certificate, CA and pins stored, ``federation.json`` last, which marks it complete.

    Raises:
        ConfigurationError: (1). PeerFault: (3), the registrar's refusal or none. SignatureRejected: (4).
    """
    _make_private(state)  # (1)
    keys = make_keys(invitation, state, places)  # (2)
    request = EnrolRequest(
        party=invitation.party,
        secret=invitation.secret,
        csr=certificate_request(keys.tls, invitation.party),
        sealing_key=keys.sealing.public_hex if keys.sealing is not None else "",
        delegation=keys.delegation.hex(),
    )
    try:
        chain = request_certificate(invitation, request, transport).chain  # (3)
    except AnswerLost as error:
        raise AnswerLost(_LOST.format(cause=error, state=state, party=invitation.party)) from error
    except (PeerFault, ConfigurationError):
        # Nothing was issued for these keys, so they are worth nothing: the same command may be run again.
        for name in MADE:
            (state / name).unlink(missing_ok=True)
        raise
    leaf = _check_chain(chain, invitation, keys)  # (4)
    pin = FederationPin(  # (5)
        federation=invitation.federation,
        party=invitation.party,
        role=invitation.role,
        officers=invitation.officers,
        registrar=invitation.registrar,
    )
    write_durably(state / "identity.pem", chain.encode())
    write_durably(state / "ca.pem", invitation.ca.encode())
    write_durably(state / "federation.json", canonical_bytes(pin))
    return Enrolled(load_identity(state), leaf)


def _make_private(state: Path) -> None:
    if (state / "federation.json").exists():
        raise ConfigurationError(f"{state}: it is enrolled already; choose another --state to enrol anew")
    if (state / "identity.key").exists():
        raise ConfigurationError(
            f"{state / 'identity.key'}: a key is here already, perhaps of an interrupted enrolment; "
            "remove it or choose another --state, and ask for a new invitation if this one is used"
        )
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"{state}: cannot be made a private directory ({error.strerror})") from error


def _check_chain(chain: str, invitation: Invitation, keys: EnrolmentKeys) -> x509.Certificate:
    try:
        leaf = x509.load_pem_x509_certificate(chain.encode())
        ca = x509.load_pem_x509_certificate(invitation.ca.encode())
        leaf.verify_directly_issued_by(ca)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise SignatureRejected(
            "certificate: expected one issued by the federation's CA; ask the officer what answered"
        ) from error
    if leaf.public_key() != keys.tls.private.public_key():
        raise SignatureRejected("certificate: it is for another key than the one made here")
    if keys.delegation and identity_key_of(leaf) != keys.signing.verify_key:
        raise SignatureRejected("certificate: expected the identity key's word for the TLS key in it")
    if uris != [party_uri(invitation.federation, invitation.party)]:
        raise SignatureRejected("certificate: it names another party than the invitation")
    return leaf


def _enroll_command(role: Role) -> click.Command:
    """``enroll`` for one role: the token must be of that role, so that nobody enrols as what it is not."""

    @click.command("enroll", help=f"Enrol this {role.replace('_', ' ')} with a one-time token.")
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="Token from the officer, mode 0600.",
    )
    @click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        help="This party's own directory; its key is made there.",
    )
    @click.option(
        "--identity-key",
        metavar="REFERENCE",
        help="An Ed25519 key that is there already: file:, env:, systemd-creds: or pkcs11: (the key stays in "
        "its token, and a TLS key of its own is made). Made here if left out.",
    )
    @click.option(
        "--sealing-key",
        metavar="REFERENCE",
        help="A sealing key that is there already: file:, env: or systemd-creds:.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
    def enroll(
        token_file: Path, state: Path, identity_key: str | None, sealing_key: str | None, as_json: bool
    ) -> None:
        invitation = read_invitation(token_file)
        if invitation.role != role:
            raise ConfigurationError(
                f"{token_file}: expected an invitation as {role}, got one as {invitation.role}"
            )
        enrolled = enrol(invitation, state, places=places_of(identity_key, sealing_key))
        pin = enrolled.identity.pin
        not_after = enrolled.certificate.not_valid_after_utc.isoformat()
        if as_json:
            report = {
                **pin.model_dump(mode="json"),
                "state": str(state),
                "verify_key": enrolled.identity.signing.verify_key,
                "certificate_until": not_after,
            }
            click.echo(json.dumps(report))
        else:
            click.echo(
                f"{pin.party} is enrolled in {pin.federation} as {pin.role}; certificate until {not_after}"
            )
            click.echo(f"officers (compare this digest with what an officer tells you): {pin.officers}")

    return enroll


silo = _enroll_command("silo")
aggregator = _enroll_command("aggregator")
share_server = _enroll_command("share_server")
researcher = _enroll_command("researcher")
