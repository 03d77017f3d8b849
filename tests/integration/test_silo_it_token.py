"""A silo whose identity key never leaves its token: it enrols, connects, signs, renews (real SoftHSM2)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives import serialization

from aggregator.enrolment.certificates import CertificateAuthority, Subject
from aggregator.enrolment.messages import EnrolRequest
from aggregator.operators.callers import certificate_key
from policies.health.certificate import renew
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.key_reference import parse_reference
from privacy.keystore import KeyPlaces, load_identity
from privacy.renewal import SignedRenewal
from privacy.tls_delegation import LIFE, delegate
from privacy.token_key import open_token
from sealsum.enrolment import enrol
from tests.enrolment import DAY, NOW, found, guest, invited, registrar_of
from tests.softhsm import PIN, Token, make_token


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Token:
    return make_token(tmp_path, monkeypatch, "hospital")


@pytest.mark.e2e
def test_a_silo_with_its_key_in_a_token_enrols_signs_and_renews(token: Token, tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    registrar = registrar_of(authority)

    def handle(request: httpx.Request) -> httpx.Response:
        answer = registrar.enrol(EnrolRequest.model_validate_json(request.content), NOW)
        return httpx.Response(201, content=canonical_bytes(answer))

    places = KeyPlaces(identity_key=parse_reference(token.reference()))
    state = tmp_path / "a"
    enrolled = enrol(invited(authority, guest("hospital-a")), state, httpx.MockTransport(handle), places)
    identity = load_identity(state)

    assert not (state / "identity.key").exists()
    assert identity.signing.verify_key == enrolled.identity.signing.verify_key
    verify_signature(identity.signing.verify_key, b"envelope", identity.signing.sign(b"envelope"))
    [party] = authority.register.parties()
    assert party.verify_key == identity.signing.verify_key, "the charter pins the key in the token"
    pem = (state / "identity.pem").read_text()
    assert certificate_key(pem) == identity.signing.verify_key, "and a server takes the TLS key for it"
    assert identity.tls.verify_key != identity.signing.verify_key
    assert identity.client_context.get_ca_certs()

    def post(asked: SignedRenewal) -> bytes:
        return canonical_bytes(registrar.renew(asked, authority.authorities(), NOW))

    renew(identity, post, NOW)
    assert certificate_key((state / "identity.pem").read_text()) == identity.signing.verify_key
    assert PIN not in json.dumps([repr(identity), (state / "keys.json").read_text()])
    with pytest.raises(ConfigurationError, match="stays in its token"):
        identity.signing.to_pem()


@pytest.mark.e2e
def test_a_wrong_pin_or_key_or_token_is_named_without_the_pin(token: Token, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("00000000")
    for reference, named in (
        (token.reference(pin_source=f"file:{wrong}"), "PinIncorrect"),
        (token.reference(key="other"), "NoSuchKey"),
        (token.reference().replace("token=hospital", "token=elsewhere"), "NoSuchToken"),
    ):
        with pytest.raises(ConfigurationError, match=named) as caught:
            open_token(parse_reference(reference))
        assert "00000000" not in str(caught.value)


def test_a_ca_alone_makes_no_certificate_that_is_taken_for_a_party() -> None:
    """The delegation is the identity key's own signature: the registrar, broken into, cannot write one."""
    ca, victim, thief, tls = (SigningKey.generate() for _ in range(4))
    authority = CertificateAuthority.found("testfed", ca, NOW)
    subject = Subject("testfed", "hospital-a", ())
    party = "sealsum://testfed/hospital-a"

    def certificate(statement: bytes, life: timedelta = DAY) -> str:
        leaf = authority.issue(subject, tls.private.public_key(), NOW, life, statement)
        return leaf.public_bytes(serialization.Encoding.PEM).decode()

    honest = delegate(victim, party, tls.private.public_key(), NOW)
    assert certificate_key(certificate(honest)) == victim.verify_key
    forged = bytes.fromhex(victim.verify_key) + delegate(thief, party, tls.private.public_key(), NOW)[32:]
    with pytest.raises(SignatureRejected):
        certificate_key(certificate(forged))
    for wrong in (
        delegate(victim, party, ca.private.public_key(), NOW),  # for another TLS key
        delegate(victim, "sealsum://testfed/hospital-b", tls.private.public_key(), NOW),  # as another party
        honest[:-1],
        honest[:32]
        + (int.from_bytes(honest[32:40], "big") + 1).to_bytes(8, "big")
        + honest[40:],  # for longer
        honest[:32] + b"\xff" * 8 + honest[40:],
    ):
        with pytest.raises(SignatureRejected):
            certificate_key(certificate(wrong))


def test_a_stolen_tls_key_is_good_no_longer_than_it_was_vouched_for_even_with_the_ca() -> None:
    ca, victim, tls = (SigningKey.generate() for _ in range(3))
    authority = CertificateAuthority.found("testfed", ca, NOW)
    subject, party = Subject("testfed", "hospital-a", ()), "sealsum://testfed/hospital-a"
    statement = delegate(victim, party, tls.private.public_key(), NOW)
    for life, holds in ((LIFE, True), (LIFE + timedelta(seconds=1), False)):
        leaf = authority.issue(subject, tls.private.public_key(), NOW, life, statement)
        pem = leaf.public_bytes(serialization.Encoding.PEM).decode()
        if holds:
            assert certificate_key(pem) == victim.verify_key
        else:
            with pytest.raises(SignatureRejected, match="longer than its key was vouched for"):
                certificate_key(pem)
