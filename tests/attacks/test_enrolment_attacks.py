"""Who is not invited does not get a certificate, and an invitation is worth one certificate for one key."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.enrolment.messages import EnrolAnswer
from aggregator.enrolment.registrar import WRONG_SECRETS_MAX
from privacy.errors import Conflict, MalformedMessage, NotAllowed, SignatureRejected, Unprocessable
from privacy.identity import SigningKey
from privacy.ids import PartyId
from tests.enrolment import DAY, NOW, Applicant, csr, enrol_all, found, guest, invited, registrar_of

WRONG = "ab" * 32


def test_a_wrong_secret_and_an_unknown_party_get_the_same_answer(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    messages = []
    for change in ({"secret": WRONG}, {"party": "hospital-z"}):
        with pytest.raises(SignatureRejected, match="there is none for party") as refusal:
            registrar_of(authority).enrol(applicant.request.model_copy(update=change), NOW)
        messages.append(str(refusal.value).replace("hospital-z", "hospital-a"))
    assert len(set(messages)) == 1


def test_a_token_does_not_enrol_another_invited_party(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    mine = Applicant.of(invited(authority, guest("hospital-a")))
    invited(authority, guest("hospital-b"))
    with pytest.raises(SignatureRejected, match="hospital-b"):
        registrar_of(authority).enrol(mine.request.model_copy(update={"party": "hospital-b"}), NOW)


def test_an_expired_token_is_refused_at_the_second_it_expires(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    registrar = registrar_of(authority)
    with pytest.raises(NotAllowed, match="it expired"):
        registrar.enrol(applicant.request, NOW + DAY)
    registrar.enrol(applicant.request, NOW + DAY - dt.timedelta(seconds=1))


def test_a_token_is_used_once_even_with_the_same_key(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    registrar = registrar_of(authority)
    registrar.enrol(applicant.request, NOW)
    with pytest.raises(NotAllowed, match="used already"):
        registrar.enrol(applicant.request, NOW)


def test_of_eight_at_once_with_one_token_exactly_one_enrols(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    invitation = invited(authority, guest("hospital-a"))
    rivals = [Applicant.of(invitation) for _ in range(8)]
    registrar = registrar_of(authority)
    gate = threading.Barrier(len(rivals))
    outcomes: list[EnrolAnswer | NotAllowed] = []

    def compete(rival: Applicant) -> None:
        gate.wait()
        try:
            outcomes.append(registrar.enrol(rival.request, NOW))
        except NotAllowed as refusal:
            outcomes.append(refusal)

    threads = [threading.Thread(target=compete, args=(rival,)) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [outcome for outcome in outcomes if isinstance(outcome, EnrolAnswer)]
    assert len(outcomes) == 8
    assert len(won) == 1
    leaf = x509.load_pem_x509_certificate(won[0].chain.encode())
    registered = authority.register.find(PartyId("hospital-a"))
    assert registered is not None
    assert leaf.public_key().public_bytes_raw().hex() == registered.verify_key  # type: ignore[union-attr] # Ed25519


def test_the_register_itself_lets_one_of_two_through_whatever_was_checked_before(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    invited(authority, guest("hospital-a"))
    row = authority.register.find(PartyId("hospital-a"))
    assert row is not None
    authority.register.use_up(row.party, row.secret_digest, "11" * 32, "", NOW.isoformat())
    with pytest.raises(NotAllowed, match="used already"):
        authority.register.use_up(row.party, row.secret_digest, "22" * 32, "", NOW.isoformat())


def test_after_five_wrong_secrets_the_right_one_is_void(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    registrar = registrar_of(authority)
    for _ in range(WRONG_SECRETS_MAX):
        with pytest.raises(SignatureRejected):
            registrar.enrol(applicant.request.model_copy(update={"secret": WRONG}), NOW)
    with pytest.raises(NotAllowed, match="too many wrong secrets"):
        registrar.enrol(applicant.request, NOW)


def test_a_request_signed_by_another_key_is_refused_and_uses_nothing_up(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    registrar = registrar_of(authority)
    with pytest.raises(SignatureRejected, match="not signed by the key"):
        registrar.enrol(applicant.request.model_copy(update={"csr": _foreign_signature()}), NOW)
    registrar.enrol(applicant.request, NOW)


def test_only_ed25519_keys_are_certified(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    pem = request.public_bytes(Encoding.PEM).decode()
    with pytest.raises(Unprocessable, match="expected an Ed25519 key"):
        registrar_of(authority).enrol(applicant.request.model_copy(update={"csr": pem}), NOW)


def test_bytes_that_are_no_request_are_refused(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    with pytest.raises(MalformedMessage, match="PKCS#10"):
        registrar_of(authority).enrol(applicant.request.model_copy(update={"csr": "no"}), NOW)


def test_two_parties_cannot_enrol_one_key(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    first = Applicant.of(invited(authority, guest("hospital-a")))
    second = Applicant.of(invited(authority, guest("hospital-b")))
    registrar = registrar_of(authority)
    registrar.enrol(first.request, NOW)
    with pytest.raises(Conflict, match="another party has enrolled this key"):
        registrar.enrol(second.request.model_copy(update={"csr": first.request.csr}), NOW)


def test_the_subject_of_a_request_is_ignored(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    forged = applicant.request.model_copy(update={"csr": csr(applicant.key, "coordinator")})
    leaf = x509.load_pem_x509_certificate(registrar_of(authority).enrol(forged, NOW).chain.encode())
    assert "coordinator" not in leaf.subject.rfc4514_string()
    assert "CN=hospital-a" in leaf.subject.rfc4514_string()


@pytest.mark.parametrize(
    ("role", "sealing_key"), [("researcher", "00" * 1216), ("silo", ""), ("share_server", "")]
)
def test_a_sealing_key_comes_with_silos_and_share_servers_and_only_with_them(
    tmp_path: Path, role: str, sealing_key: str
) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("party", role)))  # type: ignore[arg-type] # a parameter
    with pytest.raises(Unprocessable, match="expected one from silo and share_server only"):
        registrar_of(authority).enrol(applicant.request.model_copy(update={"sealing_key": sealing_key}), NOW)


def test_no_file_of_the_authority_holds_a_token_secret(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    secrets = [applicant.invitation.secret for applicant in enrol_all(authority).values()]
    stored = b"".join(path.read_bytes() for path in authority.directory.iterdir())
    for secret in secrets:
        assert secret.encode() not in stored
        assert bytes.fromhex(secret) not in stored


def test_secrets_do_not_print(tmp_path: Path) -> None:
    authority = found(tmp_path / "fed")
    applicant = Applicant.of(invited(authority, guest("hospital-a")))
    row = authority.register.find(PartyId("hospital-a"))
    shown = f"{applicant.invitation!r} {applicant.request!r} {row!r} {authority.certificate_authority()!r}"
    assert applicant.invitation.secret not in shown
    assert row is not None
    assert row.secret_digest not in shown


def _foreign_signature() -> str:
    """A request for one key with a signature by another: the last 64 bytes of the DER are the signature."""
    honest, foreign = SigningKey.generate(), SigningKey.generate()
    der = x509.load_pem_x509_csr(csr(honest).encode()).public_bytes(Encoding.DER)
    body = x509.load_der_x509_csr(der).tbs_certrequest_bytes
    forged = der[:-64] + foreign.sign(body)
    return x509.load_der_x509_csr(forged).public_bytes(Encoding.PEM).decode()
