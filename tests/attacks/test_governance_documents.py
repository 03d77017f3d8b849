"""Who cannot change a federation: fewer officers than it takes, old ones, strangers, and whoever replays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from aggregator.held_charter import hold_charter, later_charter
from policies.findings import PolicyRefusal
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, Conflict, OutOfOrder, SignatureRejected
from privacy.identity import SealingKey, SigningKey
from privacy.ids import PartyId
from privacy.officers import Endorsed, Officer, Officers, unsigned
from privacy.roster import Charter
from privacy.wire.charter import EndorsedCharter, open_charter, succeed_charter
from privacy.wire.proposal import Endorsement, assemble, endorse
from sealsum.charter_sentences import judged
from silo_agent.charter_pin import CharterPin
from tests.federation import Federation, policy_digest

ONE, TWO, THREE = (PartyId(f"officer-{number}") for number in (1, 2, 3))


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation()


def opened(federation: Federation, endorsed: EndorsedCharter) -> Charter:
    return open_charter(endorsed, federation.officers.digest, federation.name).charter


def loosened(federation: Federation) -> Charter:
    """A roster that stays, under a threat model that admits more than twice the budget."""
    text = federation.policy_text.replace("epsilon: {round: 1.0, job: 3.0", "epsilon: {round: 1.0, job: 7.5")
    assert text != federation.policy_text
    return federation.next_charter(policy_text=text)


def test_a_policy_loosened_by_one_officer_of_three_is_refused_by_every_party(
    federation: Federation, tmp_path: Path
) -> None:
    forged = federation.endorse(loosened(federation), by=["officer-1"])
    with pytest.raises(SignatureRejected, match="got 1; ask one of officer-2, officer-3"):
        opened(federation, forged)
    identity = federation.identity("silo-1", tmp_path / "silo")
    pin = CharterPin(tmp_path / "silo" / "charter.json", identity.pin)
    with pytest.raises(SignatureRejected, match="got 1"):
        pin.offer(forged)
    assert pin.charter == federation.charter
    server = federation.identity("server-0", tmp_path / "server")
    with pytest.raises(SignatureRejected, match="got 1"):
        hold_charter(server, "share_server", canonical_bytes(forged))


def test_one_officer_counts_once_under_however_many_names(federation: Federation) -> None:
    one = federation.endorse(federation.charter, by=["officer-1"])
    again = one.charter.signed_by(TWO, federation.officer_keys[ONE])
    with pytest.raises(SignatureRejected, match="signature of officer-2 is not over these bytes"):
        opened(federation, one.model_copy(update={"charter": again}))
    stranger = one.charter.signed_by(PartyId("officer-9"), federation.officer_keys[ONE])
    with pytest.raises(SignatureRejected, match="officer-9 signed it, and is not an officer"):
        opened(federation, one.model_copy(update={"charter": stranger}))


def test_a_signature_over_another_document_does_not_count(federation: Federation) -> None:
    other = federation.endorse(loosened(federation), by=["officer-2"]).charter.signatures[TWO]
    one = federation.endorse(federation.charter, by=["officer-1"])
    mixed = one.charter.model_copy(update={"signatures": {**one.charter.signatures, TWO: other}})
    with pytest.raises(SignatureRejected, match="officer-2"):
        opened(federation, one.model_copy(update={"charter": mixed}))
    handed = Endorsement(
        officer=TWO, officers=federation.officers.digest, charter="0" * 64, signatures={"charter": other}
    )
    with pytest.raises(SignatureRejected, match="let her sign this proposal"):
        assemble(one, [handed])


def test_a_signature_on_officers_is_none_on_a_charter(federation: Federation) -> None:
    """The kind is signed, so one document cannot be passed off as another of the same bytes."""
    charter = unsigned(federation.charter, "charter", federation.name)
    as_officers = charter.model_copy(update={"kind": "officers"})
    for name in (ONE, TWO):
        as_officers = as_officers.signed_by(name, federation.officer_keys[name])
    passed_off = charter.model_copy(update={"signatures": as_officers.signatures})
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        opened(federation, federation.endorsed_charter.model_copy(update={"charter": passed_off}))


def test_one_bad_signature_among_enough_good_ones_refuses_the_whole(federation: Federation) -> None:
    good = federation.endorse(federation.charter, by=["officer-1", "officer-2"])
    bad = good.charter.signed_by(THREE, SigningKey.generate())
    with pytest.raises(SignatureRejected, match="signature of officer-3"):
        opened(federation, good.model_copy(update={"charter": bad}))


def test_forged_officers_are_not_those_pinned(federation: Federation) -> None:
    keys = {name: SigningKey.generate() for name in federation.officer_keys}
    forged = Officers(
        federation=federation.name,
        version=1,
        threshold=2,
        officers=tuple(
            Officer(
                name=officer.name, legal_entity=officer.legal_entity, verify_key=keys[officer.name].verify_key
            )
            for officer in federation.officers.officers
        ),
    )
    charter = Charter.model_validate(federation.charter.model_dump() | {"officers": forged.digest})
    officers = unsigned(forged, "officers", federation.name)
    endorsed = unsigned(charter, "charter", federation.name)
    for name, key in keys.items():
        officers, endorsed = officers.signed_by(name, key), endorsed.signed_by(name, key)
    with pytest.raises(SignatureRejected, match="not among the versions shown"):
        opened(federation, EndorsedCharter(officers=(officers,), charter=endorsed))
    # Behind the true ones they would need the true ones' signatures.
    later = forged.model_copy(update={"version": 2})
    with pytest.raises((SignatureRejected, Conflict)):
        opened(
            federation,
            EndorsedCharter(
                officers=(
                    *federation.endorsed_charter.officers,
                    unsigned(later, "officers", federation.name),
                ),
                charter=endorsed,
            ),
        )


# --- rotation ---


def rotated(federation: Federation) -> tuple[Officers, dict[PartyId, SigningKey]]:
    """Version 2: officer-1 leaves, officer-4 comes, two of three."""
    keys = {name: key for name, key in federation.officer_keys.items() if name != ONE}
    keys[PartyId("officer-4")] = SigningKey.generate()
    return (
        Officers(
            federation=federation.name,
            version=2,
            threshold=2,
            officers=tuple(
                Officer(name=name, legal_entity=f"Hospital {name[-1]}", verify_key=key.verify_key)
                for name, key in sorted(keys.items())
            ),
        ),
        keys,
    )


def rotation(federation: Federation) -> tuple[EndorsedCharter, dict[PartyId, SigningKey]]:
    second, keys = rotated(federation)
    charter = federation.next_charter(officers=second.digest)
    proposal = EndorsedCharter(
        officers=(*federation.endorsed_charter.officers, unsigned(second, "officers", federation.name)),
        charter=unsigned(charter, "charter", federation.name),
    )
    return proposal, keys


def test_rotated_officers_rule_and_those_who_left_do_not(federation: Federation, tmp_path: Path) -> None:
    proposal, keys = rotation(federation)
    by_all = [endorse(proposal, key) for key in (federation.officer_keys[ONE], *keys.values())]
    after = assemble(proposal, by_all)
    pin = CharterPin(tmp_path / "silo" / "charter.json", federation.identity("silo-1", tmp_path / "silo").pin)
    pin.offer(federation.endorsed_charter)
    assert pin.offer(after).epoch == 2

    third = Charter.model_validate(
        federation.charter.model_dump() | {"epoch": 3, "previous": pin.charter.digest}
    )
    old_set = federation.endorse(third)  # signed by officers 1 and 2 as of version 1
    with pytest.raises(OutOfOrder, match=r"officers\.version: expected 2 or later, got 1"):
        pin.offer(old_set)
    behind_new = old_set.model_copy(update={"officers": after.officers})
    with pytest.raises(SignatureRejected, match="officer-1 signed it, and is not an officer"):
        pin.offer(behind_new)


@pytest.mark.parametrize("by", [("officer-1", "officer-2"), ("officer-3", "officer-4")])
def test_neither_set_rotates_the_officers_alone(federation: Federation, by: tuple[str, ...]) -> None:
    proposal, keys = rotation(federation)
    every = {**federation.officer_keys, **keys}
    with pytest.raises(SignatureRejected, match="officers: expected signatures of 2 of 3"):
        opened(federation, assemble(proposal, [endorse(proposal, every[PartyId(name)]) for name in by]))


def test_officers_are_not_rolled_back_to_a_set_that_was_replaced(federation: Federation) -> None:
    proposal, keys = rotation(federation)
    after = assemble(proposal, [endorse(proposal, k) for k in (federation.officer_keys[ONE], *keys.values())])
    held = open_charter(after, federation.officers.digest, federation.name)
    before = open_charter(federation.endorsed_charter, federation.officers.digest, federation.name)
    with pytest.raises(OutOfOrder, match="officers who were replaced are never taken back"):
        succeed_charter(held, before)


# --- replay and split ---


def test_an_old_charter_is_never_taken_back(federation: Federation, tmp_path: Path) -> None:
    identity = federation.identity("server-0", tmp_path / "server")
    later = federation.endorse(federation.next_charter())
    assert hold_charter(identity, "share_server", canonical_bytes(later)).charter.epoch == 2
    # At a start an older file that the settings still name is passed over; a running server refuses it.
    old = canonical_bytes(federation.endorsed_charter)
    started = hold_charter(identity, "share_server", old)
    assert started.charter.epoch == 2
    with pytest.raises(OutOfOrder, match="an older charter is never taken back"):
        later_charter(identity, started, old)
    assert hold_charter(identity, "share_server", None).charter.epoch == 2


def test_two_charters_of_one_epoch_come_to_light_at_once_and_also_afterwards(federation: Federation) -> None:
    """Officers who sign two charters of one epoch, for two audiences, are found out by who sees both,
    or by who holds one and is shown the successor of the other."""
    mine = federation.next_charter()
    other = loosened(federation)
    held = open_charter(federation.endorse(mine), federation.officers.digest, federation.name)
    with pytest.raises(Conflict, match="two different ones are signed for epoch 2"):
        succeed_charter(
            held, open_charter(federation.endorse(other), federation.officers.digest, federation.name)
        )
    after = Charter.model_validate(other.model_dump() | {"epoch": 3, "previous": other.digest})
    with pytest.raises(Conflict, match="two charters of that epoch are signed"):
        succeed_charter(
            held, open_charter(federation.endorse(after), federation.officers.digest, federation.name)
        )


def test_a_share_server_is_not_swapped_by_who_alters_the_file(federation: Federation) -> None:
    body = federation.endorsed_charter.charter.body
    key = federation.charter.member(PartyId("server-0")).verify_key
    altered = federation.endorsed_charter.charter.model_copy(
        update={"body": body.replace(key, SigningKey.generate().verify_key)}
    )
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        opened(federation, federation.endorsed_charter.model_copy(update={"charter": altered}))


def test_a_key_that_left_the_roster_is_revoked_for_good(federation: Federation) -> None:
    silo = federation.charter.member(PartyId("silo-4"))
    fewer = tuple(member for member in federation.charter.members if member != silo)
    held = open_charter(federation.endorsed_charter, federation.officers.digest, federation.name)

    def after(held_charter: Charter, **changes: object) -> EndorsedCharter:
        follows = {"epoch": held_charter.epoch + 1, "previous": held_charter.digest}
        return federation.endorse(Charter.model_validate(held_charter.model_dump() | follows | changes))

    forgot = open_charter(after(held.charter, members=fewer), federation.officers.digest, federation.name)
    with pytest.raises(Conflict, match=r"charter\.revoked: expected every key"):
        succeed_charter(held, forgot)
    revoked = open_charter(
        after(held.charter, members=fewer, revoked=(silo.verify_key,)),
        federation.officers.digest,
        federation.name,
    )
    assert succeed_charter(held, revoked) is revoked
    back = open_charter(after(revoked.charter, revoked=()), federation.officers.digest, federation.name)
    with pytest.raises(Conflict, match=r"charter\.revoked"):
        succeed_charter(revoked, back)
    with pytest.raises(ValueError, match="silo-4 has a key that was revoked"):
        after(revoked.charter, members=federation.charter.members)


def test_an_officers_key_on_a_members_machine_is_refused(federation: Federation) -> None:
    members = tuple(
        member.model_copy(update={"verify_key": federation.officer_keys[ONE].verify_key})
        if member.id == "silo-1"
        else member
        for member in federation.charter.members
    )
    charter = Charter.model_validate(federation.charter.model_dump() | {"members": members})
    with pytest.raises(SignatureRejected, match="an officer's key is a member's too"):
        opened(federation, federation.endorse(charter))


# --- what an officer's own program refuses to have signed ---


def proposal_of(federation: Federation, charter: Charter) -> EndorsedCharter:
    document: Endorsed = unsigned(charter, "charter", federation.name)
    return EndorsedCharter(officers=federation.endorsed_charter.officers, charter=document)


def test_an_officer_is_shown_what_changes_and_from_what(federation: Federation) -> None:
    changed = loosened(federation)
    changed = Charter.model_validate(changed.model_dump() | {"policy": policy_digest(changed.policy_text)})
    sentences = judged(proposal_of(federation, changed), federation.endorsed_charter)
    assert "  loosened limits.epsilon.job: 3 → 7.5" in sentences
    assert any(line.strip().startswith("-") and "job: 3.0" in line for line in sentences)
    assert any(line.strip().startswith("+") and "job: 7.5" in line for line in sentences)
    assert f"Members stay: {len(changed.members)}." in sentences
    assert "Running jobs end; researchers sign them again." in sentences


def test_a_proposal_whose_policy_is_not_the_one_it_names_is_not_shown_for_signing(
    federation: Federation,
) -> None:
    with pytest.raises(SignatureRejected, match=r"charter\.policy: expected the digest"):
        judged(proposal_of(federation, loosened(federation)), federation.endorsed_charter)


def test_a_roster_that_cannot_keep_the_policy_is_not_shown_for_signing(federation: Federation) -> None:
    gone = federation.charter.with_role("silo")[:2]
    fewer = tuple(member for member in federation.charter.members if member not in gone)
    revoked = tuple(sorted(member.verify_key for member in gone))
    charter = federation.next_charter(members=fewer, revoked=revoked)
    with pytest.raises(PolicyRefusal, match=r"roster\.silos"):
        judged(proposal_of(federation, charter), federation.endorsed_charter)


def test_a_registrar_does_not_slip_in_a_sealing_key_of_its_own(
    federation: Federation, tmp_path: Path
) -> None:
    """Enough officers signed it, since none can tell whose sealing key it is; its owner's server can."""
    others = SealingKey.generate().public_hex
    members = [
        {**member.model_dump(), "sealing_key": others} if member.id in ("server-1", "silo-1") else member
        for member in federation.charter.members
    ]
    swapped = federation.endorse(federation.next_charter(members=members))
    server = federation.identity("server-1", tmp_path / "server")
    held = hold_charter(server, "share_server", canonical_bytes(federation.endorsed_charter))
    with pytest.raises(Conflict, match="expected the sealing key"):
        later_charter(server, held, canonical_bytes(swapped))
    with pytest.raises(ConfigurationError, match="expected the sealing key"):
        hold_charter(server, "share_server", canonical_bytes(swapped))
    silo = federation.identity("silo-1", tmp_path / "silo")
    pin = CharterPin(tmp_path / "silo" / "charter.json", silo.pin)
    with pytest.raises(ConfigurationError, match="expected the sealing key"):
        silo.recognised_in(pin.offer(swapped))


def test_a_members_name_cannot_hide_a_change_from_the_officer_who_signs(federation: Federation) -> None:
    cover = "Hospital 1\x1b[1A\x1b[2K\rThreat model stays.\n\u202e"
    members = [
        {**member.model_dump(), "legal_entity": cover} if member.id == "silo-1" else member
        for member in federation.charter.members
    ]
    proposal = federation.endorse(federation.next_charter(members=members), by=[])
    sentences = judged(proposal, federation.endorsed_charter)
    assert any("Changed (legal_entity): silo-1" in sentence for sentence in sentences)
    assert all(sentence.isprintable() for sentence in sentences)


def test_a_power_cut_does_not_bring_back_a_charter_that_was_replaced(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename is on disk once its directory is: else whom the later charter revokes is let in again."""
    identity = federation.identity("server-0", tmp_path / "server")
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append(f"{kind} {(tmp_path / 'server' / 'charter.json').exists()}")

    (tmp_path / "server" / "charter.json").unlink(missing_ok=True)
    monkeypatch.setattr(os, "fsync", fsync)
    hold_charter(identity, "share_server", canonical_bytes(federation.endorsed_charter))
    assert synced == ["file False", "directory True"]
