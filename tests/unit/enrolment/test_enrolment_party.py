"""The party's side: its key stays with it, its token is a private file, an interruption is explained."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from aggregator.enrolment.authority import Authority
from aggregator.enrolment.certificates import Subject, chain_pem, requested_key
from aggregator.enrolment.messages import EnrolAnswer, EnrolRequest, Invitation
from aggregator.enrolment.registrar import Registrar
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, NotAllowed, PeerFault, SignatureRejected
from privacy.ids import PartyId
from privacy.keystore import load_identity, write_secret
from sealsum.enrolment import aggregator, enrol, read_invitation, silo
from sealsum.registrar_client import AnswerLost
from silo_agent.problems import Unreachable
from tests.enrolment import DAY, NOW, Applicant, found, guest, invited, registrar_of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return found(tmp_path / "fed")


@pytest.fixture
def invitation(authority: Authority) -> Invitation:
    return invited(authority, guest("hospital-a"))


def answering(
    registrar: Registrar, alter: Callable[[EnrolAnswer], EnrolAnswer] = lambda answer: answer
) -> httpx.MockTransport:
    """The registrar, in process; ``alter`` is what a liar in between does."""

    def handle(request: httpx.Request) -> httpx.Response:
        wanted = EnrolRequest.model_validate_json(request.content)
        try:
            answer = alter(registrar.enrol(wanted, NOW))
        except PeerFault as fault:
            problem = {"type": f"urn:sealsum:{fault.kind}", "title": "refused", "detail": str(fault)}
            return httpx.Response(fault.status, json=problem)
        return httpx.Response(201, content=canonical_bytes(answer))

    return httpx.MockTransport(handle)


def test_what_is_sent_holds_no_private_key(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    sent: list[bytes] = []
    inner = answering(registrar_of(authority))

    def record(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return inner.handle_request(request)

    state = tmp_path / "a"
    enrolled = enrol(invitation, state, httpx.MockTransport(record))
    raw = enrolled.identity.signing.private.private_bytes_raw()
    assert b"PRIVATE" not in sent[0]
    assert raw not in sent[0]
    assert raw.hex().encode() not in sent[0]
    assert stat.S_IMODE((state / "identity.key").stat().st_mode) == 0o600
    assert invitation.secret.encode() not in b"".join(path.read_bytes() for path in state.iterdir())


def test_a_refused_party_may_run_the_same_command_again(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    registrar = registrar_of(authority)
    registrar.enrol(Applicant.of(invitation).request, NOW)
    with pytest.raises(NotAllowed, match="used already"):
        enrol(invitation, tmp_path / "a", answering(registrar))
    fresh = invited(authority, guest("hospital-a"), replace=True)
    assert enrol(fresh, tmp_path / "a", answering(registrar)).identity.pin.party == "hospital-a"


def test_a_lost_answer_says_what_to_do_and_keeps_the_key(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    inner = answering(registrar_of(authority))

    def lose(request: httpx.Request) -> httpx.Response:
        inner.handle_request(request)
        raise httpx.ReadError("gone")

    state = tmp_path / "a"
    with pytest.raises(AnswerLost, match="--party hospital-a --replace"):
        enrol(invitation, state, httpx.MockTransport(lose))
    row = authority.register.find(PartyId("hospital-a"))
    assert row is not None
    assert row.enrolled_at is not None
    with pytest.raises(ConfigurationError, match="perhaps of an interrupted enrolment"):
        enrol(invitation, state, inner)


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_failing_proxy_counts_as_a_lost_answer(invitation: Invitation, tmp_path: Path, status: int) -> None:
    with pytest.raises(AnswerLost, match="may be used up"):
        enrol(invitation, tmp_path / "a", httpx.MockTransport(lambda _request: httpx.Response(status)))
    assert (tmp_path / "a" / "identity.key").exists()


def test_a_sent_request_is_never_sent_twice(invitation: Invitation, tmp_path: Path) -> None:
    attempts = []

    def fail(request: httpx.Request) -> httpx.Response:
        attempts.append(request)
        raise httpx.ReadTimeout("slow")

    with pytest.raises(AnswerLost):
        enrol(invitation, tmp_path / "a", httpx.MockTransport(fail))
    assert len(attempts) == 1


def test_an_unreachable_registrar_leaves_nothing_behind(
    invitation: Invitation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    attempts = []

    def fail(request: httpx.Request) -> httpx.Response:
        attempts.append(request)
        raise httpx.ConnectError("refused")

    with pytest.raises(Unreachable, match="nothing was sent"):
        enrol(invitation, tmp_path / "a", httpx.MockTransport(fail))
    assert len(attempts) == 5
    assert list((tmp_path / "a").iterdir()) == []


def test_a_certificate_for_another_key_is_refused(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    registrar = registrar_of(authority)
    rival = registrar.enrol(Applicant.of(invited(authority, guest("hospital-b"))).request, NOW)
    with pytest.raises(SignatureRejected, match="for another key"):
        enrol(invitation, tmp_path / "a", answering(registrar, lambda _answer: rival))


def test_a_certificate_that_names_another_party_is_refused(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    ca = authority.certificate_authority()

    def handle(request: httpx.Request) -> httpx.Response:
        key = requested_key(EnrolRequest.model_validate_json(request.content).csr)
        misnamed = ca.issue(Subject("cardio-net", "hospital-b", ()), key, NOW, DAY)
        return httpx.Response(201, content=canonical_bytes(EnrolAnswer(chain=chain_pem([misnamed]))))

    with pytest.raises(SignatureRejected, match="names another party"):
        enrol(invitation, tmp_path / "a", httpx.MockTransport(handle))


def test_a_certificate_of_another_ca_is_refused(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    elsewhere = found(tmp_path / "elsewhere")
    stranger = Registrar("cardio-net", elsewhere.certificate_authority(), authority.register)
    with pytest.raises(SignatureRejected, match="issued by the federation's CA"):
        enrol(invitation, tmp_path / "a", answering(stranger))


def test_a_state_directory_is_enrolled_once(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    enrol(invitation, tmp_path / "a", answering(registrar_of(authority)))
    with pytest.raises(ConfigurationError, match="enrolled already"):
        enrol(invitation, tmp_path / "a", answering(registrar_of(authority)))


def test_a_silo_without_the_sealing_key_of_its_enrolment_is_told_what_to_do(
    authority: Authority, invitation: Invitation, tmp_path: Path
) -> None:
    state = tmp_path / "a"
    enrol(invitation, state, answering(registrar_of(authority)))
    (state / "sealing.key").unlink()
    with pytest.raises(ConfigurationError, match=r"sealing\.key: expected the key .* enrol anew"):
        load_identity(state)


def test_a_token_that_others_can_read_is_refused(invitation: Invitation, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(canonical_bytes(invitation))
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="expected mode 0600"):
        read_invitation(path)


def test_a_damaged_token_is_refused_without_showing_it(invitation: Invitation, tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_secret(path, canonical_bytes({**invitation.model_dump(mode="json"), "secret": "hush" * 3}))
    with pytest.raises(ConfigurationError, match="secret") as refusal:
        read_invitation(path)
    assert "hush" not in str(refusal.value)


def test_a_token_for_one_role_does_not_enrol_another(invitation: Invitation, tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_secret(path, canonical_bytes(invitation))
    result = CliRunner().invoke(aggregator, ["--token-file", str(path), "--state", str(tmp_path / "state")])
    assert isinstance(result.exception, ConfigurationError)
    assert "expected an invitation as aggregator, got one as silo" in str(result.exception)
    assert not (tmp_path / "state").exists()


def test_no_option_takes_a_secret() -> None:
    assert {option for parameter in silo.params for option in parameter.opts} == {
        "--token-file",
        "--state",
        "--identity-key",  # a reference to a key: what is none is refused, and not repeated
        "--sealing-key",
        "--json",
    }
