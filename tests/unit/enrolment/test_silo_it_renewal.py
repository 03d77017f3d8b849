"""A certificate is renewed by the identity key alone, under a CA that may be replaced meanwhile."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from hypothesis import given
from hypothesis import strategies as st

from aggregator.enrolment.authority import Authority, load_authority
from aggregator.enrolment.certificates import Subject, chain_pem
from aggregator.enrolment.messages import EnrolRequest
from aggregator.enrolment.registrar import Registrar
from aggregator.enrolment.replacing_ca import own_issuer, replace_ca
from policies.health.certificate import due_at, renew, retry_after
from policies.health.meters import Meters
from policies.health.renewal import Upkeep
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, SealsumError, SignatureRejected
from privacy.identity import SigningKey
from privacy.keystore import Identity, load_identity
from privacy.renewal import Renewed, SignedRenewal, ask_renewal, believe_renewed
from sealsum.enrolment import enrol
from tests.enrolment import DAY, NOW, found, guest, invited, registrar_of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return found(tmp_path / "fed")


def enrolled(authority: Authority, state: Path, party: str = "hospital-a", now: datetime = NOW) -> Identity:
    """A silo with the certificate it got then."""
    registrar = registrar_of(authority)

    def handle(request: httpx.Request) -> httpx.Response:
        answer = registrar.enrol(EnrolRequest.model_validate_json(request.content), now)
        return httpx.Response(201, content=canonical_bytes(answer))

    return enrol(invited(authority, guest(party), now), state, httpx.MockTransport(handle)).identity


def post(authority: Authority, now: datetime = NOW) -> Callable[[SignedRenewal], bytes]:
    """The registrar, in process, as it is after a restart."""
    fresh = load_authority(authority.directory)
    registrar: Registrar = registrar_of(fresh)

    def answer(asked: SignedRenewal) -> bytes:
        return canonical_bytes(registrar.renew(asked, fresh.authorities(), now))

    return answer


def issued(leaf: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, InvalidSignature):
        return False
    return True


def leaf_of(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate((identity.directory / "identity.pem").read_bytes())


def test_a_renewed_certificate_is_for_the_same_key_and_name_and_lives_on(
    authority: Authority, tmp_path: Path
) -> None:
    identity = enrolled(authority, tmp_path / "a")
    before = leaf_of(identity)
    late = NOW + 100 * DAY  # the certificate has ended: the identity key has not
    assert renew(identity, post(authority, late), late) == late + 90 * DAY
    after = leaf_of(identity)
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert load_identity(tmp_path / "a").client_context.get_ca_certs()


def test_contexts_in_use_show_the_new_certificate(authority: Authority, tmp_path: Path) -> None:
    identity = enrolled(authority, tmp_path / "a")
    context = identity.client_context
    loaded: list[ssl.SSLContext] = []
    original = Identity.load_certificate

    def note(self: Identity, which: ssl.SSLContext) -> None:
        loaded.append(which)
        original(self, which)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Identity, "load_certificate", note)
        renew(identity, post(authority), NOW)
    assert loaded == [context]


@pytest.mark.parametrize(
    ("alter", "match"),
    [
        (lambda asked, other: ask_renewal(other, NOW), "party"),
        (
            lambda asked, other: asked.model_copy(update={"signature": other.signing.sign(b"renewal").hex()}),
            "not over these bytes",
        ),
        (
            lambda asked, other: asked.model_copy(
                update={
                    "renewal": asked.renewal.model_copy(update={"csr": ask_renewal(other, NOW).renewal.csr})
                }
            ),
            "not over these bytes",
        ),
    ],
    ids=["a stranger", "another's signature", "another's key slipped in"],
)
def test_only_the_enrolled_identity_key_renews(
    authority: Authority,
    tmp_path: Path,
    alter: Callable[[SignedRenewal, Identity], SignedRenewal],
    match: str,
) -> None:
    identity = enrolled(authority, tmp_path / "a")
    stranger = enrolled(found(tmp_path / "elsewhere"), tmp_path / "s", "hospital-z")
    with pytest.raises(SignatureRejected, match=match):
        post(authority)(alter(ask_renewal(identity, NOW), stranger))


def test_an_old_request_and_a_wrong_clock_renew_nothing(authority: Authority, tmp_path: Path) -> None:
    identity = enrolled(authority, tmp_path / "a")
    with pytest.raises(SignatureRejected, match="set the party's clock"):
        post(authority, NOW + timedelta(hours=1))(ask_renewal(identity, NOW))


def test_a_revoked_party_is_renewed_no_more(authority: Authority, tmp_path: Path) -> None:
    identity = enrolled(authority, tmp_path / "a")
    known = authority.authorities()
    revoked = type(known)(known.pem, known.rollover_pem, {identity.signing.verify_key})
    with pytest.raises(SignatureRejected, match="no party hospital-a is enrolled"):
        registrar_of(authority).renew(ask_renewal(identity, NOW), revoked, NOW)
    authority.register.forget_keys([identity.signing.verify_key])
    with pytest.raises(SignatureRejected, match="no party hospital-a is enrolled"):
        post(authority)(ask_renewal(identity, NOW))


def test_a_ca_is_replaced_with_an_overlap(authority: Authority, tmp_path: Path) -> None:
    """Two parties go through it; at no time does one show a certificate that the other does not believe."""
    one, two = enrolled(authority, tmp_path / "a"), enrolled(authority, tmp_path / "b", "hospital-b")

    def believed(identity: Identity, shown: Identity) -> bool:
        known = x509.load_pem_x509_certificates((identity.directory / "ca.pem").read_bytes())
        leaf = leaf_of(shown)
        return any(issued(leaf, ca) for ca in known)

    original = leaf_of(one).issuer
    for step in ("begin", "switch", "retire"):
        replace_ca(load_authority(authority.directory), step, NOW)  # type: ignore[arg-type]
        for identity in (one, two):
            renew(identity, post(authority), NOW)
            assert believed(one, two)
            assert believed(two, one)
    fresh = load_authority(authority.directory)
    [ca] = x509.load_pem_x509_certificates((one.directory / "ca.pem").read_bytes())
    assert ca.issuer == original
    assert ca != x509.load_pem_x509_certificate(authority.ca_pem.encode())
    assert own_issuer(fresh).certificate == ca
    assert not (authority.directory / "ca-old.key").exists()


def test_the_steps_of_a_replacement_come_in_order(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match="expected begin, got switch"):
        replace_ca(authority, "switch", NOW)
    after = replace_ca(authority, "begin", NOW)
    with pytest.raises(ConfigurationError, match="expected switch, got begin"):
        replace_ca(after, "begin", NOW)
    switched = replace_ca(after, "switch", NOW)
    old = x509.load_pem_x509_certificate(authority.ca_pem.encode())
    assert own_issuer(switched).certificate == old, "a party that was away still knows the registrar"


def test_a_ca_that_ours_has_not_certified_is_not_believed(authority: Authority, tmp_path: Path) -> None:
    """A registrar that was broken into cannot slip in a CA of its own."""
    identity = enrolled(authority, tmp_path / "a")
    thief = found(tmp_path / "thief")
    honest = Renewed.model_validate_json(post(authority)(ask_renewal(identity, NOW)))
    with pytest.raises(SignatureRejected, match="got a stranger"):
        believe_renewed(identity, honest.model_copy(update={"authorities": thief.ca_pem + authority.ca_pem}))
    replaced = replace_ca(thief, "begin", NOW).authorities()
    forged = honest.model_copy(
        update={"authorities": authority.ca_pem + replaced.pem, "rollover": replaced.rollover_pem}
    )
    with pytest.raises(SignatureRejected, match="got a stranger"):
        believe_renewed(identity, forged)
    other = ask_renewal(enrolled(authority, tmp_path / "b", "hospital-b"), NOW)
    swapped = Renewed.model_validate_json(post(authority)(other))
    with pytest.raises(SignatureRejected, match="names another party"):
        believe_renewed(identity, swapped)


def test_a_party_cannot_pass_its_own_certificate_off_as_the_word_for_a_ca(
    authority: Authority, tmp_path: Path
) -> None:
    """The CA has certified every party's name and key; whoever carries the answer adds a CA of the same."""
    identity = enrolled(authority, tmp_path / "a")
    thief = enrolled(authority, tmp_path / "b", "hospital-b")
    leaf = x509.load_pem_x509_certificate((thief.directory / "identity.pem").read_bytes())
    forged = (
        x509.CertificateBuilder()
        .subject_name(leaf.subject)
        .issuer_name(leaf.subject)
        .public_key(leaf.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 1000 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(thief.signing.private, None)
    )
    honest = Renewed.model_validate_json(post(authority)(ask_renewal(identity, NOW)))
    answer = honest.model_copy(
        update={"authorities": authority.ca_pem + chain_pem([forged]), "rollover": chain_pem([leaf])}
    )
    with pytest.raises(SignatureRejected, match="got a stranger"):
        believe_renewed(identity, answer)


LIFE = st.timedeltas(min_value=timedelta(hours=1), max_value=timedelta(days=400))


@given(life=LIFE, jitter=st.floats(0, 1, exclude_max=True))
def test_renewal_is_due_between_two_thirds_of_the_life_and_its_end(life: timedelta, jitter: float) -> None:
    due = due_at(NOW, NOW + life, jitter)
    assert NOW + life * 0.66 <= due <= NOW + life * 0.72


@given(left=st.timedeltas(min_value=timedelta(-1), max_value=timedelta(days=400)), jitter=st.floats(0, 1))
def test_a_failed_renewal_is_tried_again_within_the_hour_and_not_at_once(
    left: timedelta, jitter: float
) -> None:
    assert timedelta(seconds=30) <= retry_after(left, jitter) <= timedelta(hours=1)


def test_upkeep_renews_what_is_due_by_itself_and_counts_failures(
    authority: Authority, tmp_path: Path
) -> None:
    identity = enrolled(authority, tmp_path / "a", now=datetime.now(UTC) - 100 * DAY)  # it is over
    meters = Meters("silo", tmp_path / "a")
    calls: list[SignedRenewal] = []

    def refuse(asked: SignedRenewal) -> bytes:
        calls.append(asked)
        raise SealsumError("registrar: it does not answer")

    upkeep = Upkeep(identity, meters, refuse)
    with pytest.raises(SealsumError, match="does not answer"):
        upkeep.renew_if_ended()
    assert timedelta(0) < upkeep._look(0.0) <= timedelta(hours=1)
    assert meters.registry.get_sample_value("sealsum_certificate_renewals_total", {"outcome": "failed"}) == 1
    assert len(calls) == 2


def test_a_certificate_of_another_key_is_refused_by_name(authority: Authority, tmp_path: Path) -> None:
    identity = enrolled(authority, tmp_path / "a")
    other = authority.certificate_authority()
    leaf = other.issue(
        Subject("cardio-net", "hospital-a", ()), SigningKey.generate().private.public_key(), NOW, DAY
    )
    (identity.directory / "identity.pem").write_text(chain_pem([leaf]))
    with pytest.raises(ConfigurationError, match=r"identity\.pem: expected the certificate of our own key"):
        _ = identity.client_context
