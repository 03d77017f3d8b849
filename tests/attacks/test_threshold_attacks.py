"""Whoever lies in a round of threshold encryption opens nothing but the one sum; most are named."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from privacy.canonical import sha256_hex
from privacy.errors import MalformedMessage, NotAllowed, OutOfOrder, SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation
from privacy.secagg.threshold.collecting import (
    accept_commit,
    accept_manifest,
    accept_reveal,
    check_upload,
    close_commits,
    close_manifests,
)
from privacy.secagg.threshold.faults import BadJointKey, BadSum, KeyholderMissing, WorkerFailed
from privacy.secagg.threshold.messages import (
    CiphertextManifest,
    KeyCommit,
    KeyReveal,
    PartialDecryption,
    SumManifest,
    open_from_silo,
    open_sum,
    sign_silo,
    sign_sum,
)
from privacy.secagg.threshold.parameters import PARAMETERS
from privacy.secagg.threshold.parts import ThresholdStretch
from privacy.secagg.threshold.polynomials import add, added, from_wire, to_wire
from privacy.secagg.threshold.silo_encrypting import Encrypter, admit_cohort
from privacy.secagg.threshold.silo_keys import join, reveal
from privacy.secagg.threshold.silo_opening import PartialOpener, sign_partial
from privacy.secagg.threshold.silo_state import text_to_polynomial, to_text
from privacy.secagg.threshold.summing import Adder, Fuser, accept_partial
from privacy.secagg.threshold.worker import Worker
from privacy.wire.envelope import Envelope
from tests.threshold_cohort import Cohort, openfhe_python, sent, workers

CKKS, BFV = "tckks-4096-60", "tbfv-8192-168"
ROW = PARAMETERS[CKKS]
pytestmark = pytest.mark.slow
"""A worker takes a second or two to start."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[str], Worker]]:
    yield from workers()


@pytest.fixture
def cohort(worker: Callable[[str], Worker]) -> Cohort:
    return Cohort.of(CKKS, worker(CKKS), 3)


def test_a_key_share_chosen_after_seeing_the_others_is_refused(cohort: Cohort) -> None:
    """The rogue key: b* − Σ others makes the joint key the attacker's own."""
    commits = cohort.commits()
    honest, victim, rogue = cohort.silos
    shown = {silo: cohort.members[silo].reveal(commits.relay)[0] for silo in cohort.silos}
    _, target = cohort.worker.keygen(np.zeros((1, 1, ROW.degree), dtype=np.uint64))
    others = added(
        ROW,
        (
            text_to_polynomial("share", cohort.terms, cohort.members[silo].state.share)
            for silo in (honest, victim)
        ),
    )
    primes = np.array(ROW.moduli, dtype=np.uint64)[:, None]
    mine = target.copy()
    add(ROW, mine, (primes - others) % primes)
    known = open_from_silo(shown[rogue], KeyReveal, cohort.terms).message.commits
    lie = sign_silo(
        KeyReveal(commits=known, share=to_text(to_wire(ROW, mine))),
        cohort.terms,
        rogue,
        cohort.members[rogue].key,
    )
    cohort.tampers = {(rogue, "reveal"): lambda _: lie}
    closed = cohort.reveals(commits)
    assert closed.key.holders == (honest, victim)
    assert isinstance(cohort.refused[rogue, "reveal"], BadJointKey)
    with pytest.raises(BadJointKey, match=f"silo {rogue}: its key share is not the one it committed to"):
        join(cohort.members[honest].state, [shown[honest], shown[victim], lie])


def test_a_silo_shows_its_share_against_one_set_of_commitments_only(cohort: Cohort) -> None:
    commits = cohort.commits()
    member = cohort.members[cohort.silos[0]]
    member.reveal(commits.relay)
    with pytest.raises(Equivocation, match="signs no second"):
        reveal(member.state, member.key, commits.relay[:2])


def test_a_joint_key_without_a_silos_own_share_is_not_used_by_it(cohort: Cohort) -> None:
    commits = cohort.commits()
    shown = [cohort.members[silo].reveal(commits.relay)[0] for silo in cohort.silos]
    state = cohort.members[cohort.silos[0]].state
    with pytest.raises(SignatureRejected, match="own message among them"):
        join(state, shown[1:])
    with pytest.raises(BelowThreshold, match="expected at least 2 silos, got 1"):
        join(state, shown[:1])
    joined = join(state, shown[:2])
    with pytest.raises(Equivocation, match="joined another key"):
        join(joined, shown)


def test_a_silo_that_was_shown_another_joint_key_ends_the_round_by_name(cohort: Cohort) -> None:
    reveals = cohort.reveals(cohort.commits())
    first, second, fooled = cohort.silos
    everything = cohort.members[fooled].encrypt(reveals.relay)
    cohort.members[second].encrypt(reveals.relay)
    partial_view = [e for e in reveals.relay if e.sender in (first, second)]
    other = cohort.members[first].encrypt(partial_view)
    with pytest.raises(BadJointKey, match=f"manifest of silo {first}: its joint key is not the sum"):
        accept_manifest(reveals, other[0])
    state = cohort.members[fooled].state
    with pytest.raises(BadJointKey, match=f"silo {first}"):
        admit_cohort(state, [*everything, *other, *cohort.members[second].state.sent("manifest")])


def test_nothing_is_uploaded_before_every_manifest_is_known(cohort: Cohort) -> None:
    reveals = cohort.reveals(cohort.commits())
    closed = cohort.manifests(reveals)
    state = cohort.members[cohort.silos[0]].state
    with pytest.raises(OutOfOrder, match="the manifests of the others are not known yet"):
        state.assert_may_upload()
    with pytest.raises(KeyholderMissing, match="hold shares of the joint key and are gone"):
        admit_cohort(state, closed.relay[:2])
    with pytest.raises(KeyholderMissing, match="start another round"):
        close_manifests(reveals, list(closed.manifests.values())[:2])


def test_a_ciphertext_made_to_cancel_the_others_comes_too_late(cohort: Cohort) -> None:
    """BFV and CKKS are malleable: victim − Σ others would open as the victim's update alone."""
    closed = cohort.until_uploaded()
    victim, other, attacker = cohort.silos
    primes = np.array(ROW.moduli, dtype=np.uint64)[:, None]
    crafted = []
    for half in (0, 1):
        theirs = from_wire("part", ROW, cohort.members[other].parts[0][half], 1)
        crafted.append(to_wire(ROW, (primes - theirs) % primes))
    bodies, masks = crafted
    # What it would have done: the "sum" is the victim's ciphertext.
    sums = added(
        ROW,
        (
            from_wire("part", ROW, raw, 1)
            for raw in (cohort.members[victim].parts[0][1], cohort.members[other].parts[0][1], masks)
        ),
    )
    assert to_wire(ROW, sums) == cohort.members[victim].parts[0][1]
    # The server refuses the upload, and a silo any other manifest of the attacker's.
    with pytest.raises(BadSum, match=f"part 0 of silo {attacker}: its bodies are not the ones it signed"):
        check_upload(closed.manifests[attacker], cohort.terms, 0, bodies, masks)
    mine = closed.manifests[attacker].message
    late = mine.model_copy(update={"bodies": (sha256_hex(bodies),), "masks": (sha256_hex(masks),)})
    late_manifest = sign_silo(late, cohort.terms, attacker, cohort.members[attacker].key)
    manifests = [*(m for m in closed.relay if m.sender != attacker), late_manifest]
    with pytest.raises(Equivocation, match="admitted another set"):
        admit_cohort(cohort.members[victim].state, manifests)
    summed, _ = cohort.add(closed)
    claim = open_sum(summed, cohort.terms).message
    digests = tuple(
        late_manifest.body_digest if silo == attacker else digest
        for silo, digest in zip(claim.silos, claim.manifests, strict=True)
    )
    lie = sign_sum(
        claim.model_copy(
            update={"manifests": digests, "masks": (sha256_hex(cohort.members[victim].parts[0][1]),)}
        ),
        cohort.terms,
        cohort.server_key,
    )
    member = cohort.members[victim]
    with pytest.raises(BadSum, match="not the ones that this silo admitted"):
        PartialOpener(member.state, member.worker, lie, manifests)
    with pytest.raises(BadSum, match="not over exactly the updates that this silo admitted"):
        PartialOpener(member.state, member.worker, lie, closed.relay)


def test_a_copied_commitment_ends_the_round(cohort: Cohort) -> None:
    copied = [cohort.members[silo].begin(cohort.terms, cohort.pinned)[0] for silo in cohort.silos[:2]]
    thief = cohort.silos[2]
    told = open_from_silo(copied[0], KeyCommit, cohort.terms).message
    lie = sign_silo(told, cohort.terms, thief, cohort.members[thief].key)
    accepted = [accept_commit(cohort.terms, envelope) for envelope in (*copied, lie)]
    with pytest.raises(Equivocation, match="two silos with one commitment"):
        close_commits(cohort.terms, accepted)


def test_a_share_shown_against_other_commitments_is_refused(cohort: Cohort) -> None:
    """The server showed one silo fewer commitments than the others."""
    commits = cohort.commits()
    fooled, other = cohort.silos[0], cohort.silos[1]
    (shown,) = cohort.members[fooled].reveal([e for e in commits.relay if e.sender != cohort.silos[2]])
    with pytest.raises(Equivocation, match=f"reveal of silo {fooled}: it was shown other commitments"):
        accept_reveal(commits, shown)
    (mine,) = cohort.members[other].reveal(commits.relay)
    with pytest.raises(Equivocation, match=f"reveal of silo {fooled}"):
        join(cohort.members[other].state, [shown, mine])


@pytest.mark.parametrize(
    "change",
    [{"model": Digest("55" * 32)}, {"parameters": BFV}, {"vector_length": 6}],
    ids=["model", "row", "length"],
)
def test_a_manifest_of_another_model_row_or_length_is_refused(
    cohort: Cohort, change: dict[str, object]
) -> None:
    reveals = cohort.reveals(cohort.commits())
    closed = cohort.manifests(reveals)
    liar, other = cohort.silos[:2]
    message = closed.manifests[liar].message.model_copy(update=change)
    lie = sign_silo(message, cohort.terms, liar, cohort.members[liar].key)
    with pytest.raises(
        Equivocation, match=f"silo {liar}: it is of another model, row of parameters or length"
    ):
        accept_manifest(reveals, lie)
    with pytest.raises(Equivocation, match=f"silo {liar}: it is of another model"):
        admit_cohort(cohort.members[other].state, [lie, *(m for m in closed.relay if m.sender != liar)])


def test_a_cohort_without_a_silos_own_manifest_is_refused_by_it(cohort: Cohort) -> None:
    closed = cohort.manifests(cohort.reveals(cohort.commits()))
    me = cohort.silos[0]
    member = cohort.members[me]
    other = closed.manifests[me].message.model_copy(update={"bodies": (Digest("66" * 32),)})
    mine = sign_silo(other, cohort.terms, me, member.key)
    with pytest.raises(SignatureRejected, match=f"expected silo {me}'s own among them, as it was sent"):
        admit_cohort(member.state, [mine, *(m for m in closed.relay if m.sender != me)])


def test_a_copy_of_another_silos_ciphertext_is_refused(cohort: Cohort) -> None:
    closed = cohort.manifests(cohort.reveals(cohort.commits()))
    victim, other, attacker = cohort.silos
    theirs = closed.manifests[victim].message
    copied = theirs.model_copy(update={"silo": attacker})
    lie = sign_silo(copied, cohort.terms, attacker, cohort.members[attacker].key)
    manifests = [*(m for m in closed.relay if m.sender != attacker), lie]
    with pytest.raises(BadSum, match="a part is named twice"):
        admit_cohort(cohort.members[other].state, manifests)


def claim_of(cohort: Cohort, summed: Envelope, **changes: object) -> Envelope:
    """The server's manifest of the sum with other words, properly signed."""
    message: SumManifest = open_sum(summed, cohort.terms).message.model_copy(update=changes)
    return sent([sign_sum(message, cohort.terms, cohort.server_key)])[0]


def test_a_silo_decrypts_nothing_but_the_sum_that_it_added_up_itself(cohort: Cohort) -> None:
    closed = cohort.until_uploaded()
    summed, _ = cohort.add(closed)
    me, victim, third = cohort.silos
    member, theirs = cohort.members[me], cohort.members[victim].parts[0][1]
    # The victim's single update as "the sum".
    single = claim_of(cohort, summed, masks=(sha256_hex(theirs),))
    opener = PartialOpener(member.state, member.worker, single, closed.relay)
    with pytest.raises(BadSum, match="the server's sum is not the sum of the cohort's ciphertexts"):
        opener.decrypt(0, cohort.masks(0))
    # The same, with masks to match.
    zeros = bytes(len(theirs))
    with pytest.raises(BadSum, match=f"the masks of silo {me} are not the ones it signed"):
        opener.decrypt(0, [(me, zeros), (victim, theirs), (third, zeros)])
    with pytest.raises(BadSum, match="expected the masks of 3 silos, got 1"):
        opener.decrypt(0, [(victim, theirs)])
    with pytest.raises(BadSum, match=f"the masks of silo {victim} are not the ones it signed, once"):
        opener.decrypt(0, [(victim, theirs), (victim, theirs)])
    # Fewer silos than were admitted.
    fewer = claim_of(
        cohort, summed, silos=(me, victim), manifests=open_sum(summed, cohort.terms).message.manifests[:2]
    )
    with pytest.raises(BadSum, match="not over exactly the updates"):
        PartialOpener(member.state, member.worker, fewer, closed.relay)
    with pytest.raises(BadSum, match="expected 1 parts, got 2"):
        PartialOpener(
            member.state,
            member.worker,
            claim_of(cohort, summed, masks=(Digest("00" * 32), Digest("11" * 32))),
            closed.relay,
        )
    # Nobody but the server speaks for it.
    forged = sign_silo(
        open_sum(summed, cohort.terms).message, cohort.terms, victim, cohort.members[victim].key
    )
    with pytest.raises(NotAllowed, match="expected the server aggregator"):
        PartialOpener(member.state, member.worker, forged, closed.relay)


def test_there_is_one_partial_decryption_also_after_a_restart(cohort: Cohort) -> None:
    closed = cohort.until_uploaded()
    summed, _ = cohort.add(closed)
    member = cohort.members[cohort.silos[0]]
    opener = PartialOpener(member.state, member.worker, summed, closed.relay)
    opener.decrypt(0, cohort.masks(0))
    with pytest.raises(OutOfOrder, match="decrypted already"):
        opener.decrypt(0, cohort.masks(0))
    second = PartialOpener(member.state, member.worker, summed, closed.relay)
    second.decrypt(0, cohort.masks(0))
    before = member.state
    member.keep(sign_partial(before, member.key, opener))
    with pytest.raises(Equivocation, match="signs no second"):
        sign_partial(member.state, member.key, second)
    with pytest.raises(OutOfOrder, match="signed its one partial decryption"):
        PartialOpener(member.state, member.worker, summed, closed.relay)
    assert before.secret is not None
    assert before.secret[:60].encode() not in member.stored


def test_a_partial_decryption_that_is_altered_on_its_way_is_named(cohort: Cohort) -> None:
    closed = cohort.until_uploaded()
    summed, bodies = cohort.add(closed)
    partials = cohort.partials(closed, summed)
    liar = cohort.silos[1]
    altered = bytearray(cohort.members[liar].partials[0])
    altered[0] ^= 1
    cohort.members[liar].partials[0] = bytes(altered)
    with pytest.raises(BadSum, match=f"partial, part 0 of silo {liar}: not the bytes it signed"):
        cohort.fuse(partials, bodies)


@pytest.mark.parametrize("row", [CKKS, BFV])
def test_a_wrong_partial_decryption_opens_nothing(worker: Callable[[str], Worker], row: str) -> None:
    """Signed by its maker, but made with another secret: noise, not a wrong sum."""
    cohort = Cohort.of(row, worker(row), 3)
    closed = cohort.until_uploaded()
    summed, bodies = cohort.add(closed)
    liar = cohort.members[cohort.silos[1]]
    partials = cohort.partials(closed, summed)
    wrong = to_wire(
        cohort.terms.row, from_wire("x", cohort.terms.row, cohort.members[cohort.silos[0]].partials[0], 1)
    )
    liar.partials[0] = wrong
    told = PartialDecryption(sum=summed.body_digest, parts=(sha256_hex(wrong),))
    lie = open_from_silo(sign_silo(told, cohort.terms, liar.silo, liar.key), PartialDecryption, cohort.terms)
    lying = type(partials)(closed, summed, {**partials.partials, liar.silo: lie})
    with pytest.raises(BadSum, match=r"does not decrypt to integers|does not open to 3 updates"):
        cohort.fuse(lying, bodies)


def test_without_one_silos_partial_decryption_the_sum_stays_closed(worker: Callable[[str], Worker]) -> None:
    """n − 1 silos and the server together: what they have is noise, for the sum and for a single update."""
    cohort = Cohort.of(BFV, worker(BFV), 3)
    closed = cohort.until_uploaded()
    summed, bodies = cohort.add(closed)
    cohort.partials(closed, summed)
    row = cohort.terms.row
    known = [from_wire("partial", row, cohort.members[silo].partials[0], 1) for silo in cohort.silos[:2]]
    opened = worker(BFV).fuse(added(row, [from_wire("sum", row, bodies[0], 1), *known]))
    total = cohort.oracle(cohort.silos).view(np.int32)
    assert np.count_nonzero(opened[0, 1:6] == total) <= 1
    assert np.abs(opened).max() > row.plain_modulus // 4


def test_an_upload_that_is_no_polynomial_or_not_the_signed_one_reaches_no_sum(cohort: Cohort) -> None:
    closed = cohort.until_uploaded()
    silo = cohort.silos[0]
    bodies, masks = cohort.members[silo].parts[0]
    with pytest.raises(BadSum, match="its masks are not the ones it signed"):
        check_upload(closed.manifests[silo], cohort.terms, 0, bodies, masks[:-1] + bytes([masks[-1] ^ 1]))
    junk = b"\xff" * len(masks)
    signed = closed.manifests[silo]
    junk_signed = replace(signed, message=signed.message.model_copy(update={"masks": (sha256_hex(junk),)}))
    with pytest.raises(MalformedMessage, match="not below its prime"):
        check_upload(junk_signed, cohort.terms, 0, bodies, junk)
    adder = Adder(closed)
    swapped = [(cohort.silos[0], cohort.members[cohort.silos[1]].parts[0][0])]
    with pytest.raises(BadSum, match=f"part 0 of silo {silo}: not the bytes it signed"):
        adder.total(0, swapped, cohort.masks(0))
    with pytest.raises(BadSum, match=f"nothing of {cohort.silos[2]}"):
        adder.total(0, cohort.bodies(0)[:2], cohort.masks(0))
    with pytest.raises(BadSum, match="not the bytes it signed, once"):
        adder.total(0, [*cohort.bodies(0), cohort.bodies(0)[0]], cohort.masks(0))
    with pytest.raises(OutOfOrder, match="expected 1 parts, got 0"):
        adder.sign(cohort.server_key)


def test_messages_of_another_round_or_signer_are_refused(worker: Callable[[str], Worker]) -> None:
    one, other = (Cohort.of(CKKS, worker(CKKS), 2) for _ in range(2))
    commits = other.commits()
    with pytest.raises(SignatureRejected, match=r"envelope\.context"):
        accept_commit(one.terms, commits.relay[0])
    silo = one.silos[0]
    member = one.members[silo]
    (mine,) = member.begin(one.terms, one.pinned)
    forged = mine.model_copy(update={"sender": one.silos[1]})
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        accept_commit(one.terms, forged)


def test_a_manifest_in_another_silos_name_is_refused(cohort: Cohort) -> None:
    reveals = cohort.reveals(cohort.commits())
    me, victim, _ = cohort.silos
    (mine,) = cohort.members[me].encrypt(reveals.relay)
    message = open_from_silo(mine, CiphertextManifest, cohort.terms).message
    lie = sign_silo(message.model_copy(update={"silo": victim}), cohort.terms, me, cohort.members[me].key)
    with pytest.raises(Equivocation, match=f"silo {me}: it speaks for silo {victim}"):
        accept_manifest(reveals, lie)
    outsider = SigningKey.generate()
    with pytest.raises(NotAllowed, match="not in this round's cohort"):
        accept_manifest(reveals, sign_silo(message, cohort.terms, SiloId("stranger"), outsider))


def test_a_worker_that_dies_ends_the_round_by_name_and_nothing_was_sent(
    worker: Callable[[str], Worker],
) -> None:
    with Worker(ROW, openfhe_python()) as doomed:
        cohort = Cohort.of(CKKS, worker(CKKS), 2)
        reveals = cohort.reveals(cohort.commits())
        member = cohort.members[cohort.silos[0]]
        member.worker = doomed
        os.kill(doomed.process_id, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match=r"it ended, or did not answer.*this round ends"):
            member.encrypt(reveals.relay)
        assert "manifest" not in member.state.signed
        member.worker = worker(CKKS)
        member.encrypt(reveals.relay)  # a new process takes up where the stored state is


def test_a_worker_that_hangs_is_ended() -> None:
    with Worker(ROW, openfhe_python(), limit_s=5.0) as doomed:
        os.kill(doomed.process_id, signal.SIGSTOP)
        with pytest.raises(WorkerFailed, match=r"within 5 s"):
            doomed.keygen(np.zeros((1, 1, ROW.degree), dtype=np.uint64))


def test_no_key_is_seen_in_a_workers_arguments_or_environment(worker: Callable[[str], Worker]) -> None:
    running = worker(CKKS)
    with open(f"/proc/{running.process_id}/cmdline", "rb") as file:
        arguments = file.read().split(b"\x00")
    assert [a for a in arguments[1:] if a] == [b"-I", b"-B", arguments[3]]
    assert arguments[3].endswith(b"/privacy/secagg/threshold/openfhe_worker.py")
    with open(f"/proc/{running.process_id}/environ", "rb") as file:
        names = {entry.split(b"=")[0] for entry in file.read().split(b"\x00") if entry}
    assert names == {b"PATH", b"OMP_NUM_THREADS"}


def test_a_polynomial_beyond_its_prime_is_refused_by_the_worker_too(worker: Callable[[str], Worker]) -> None:
    high = np.full((1, 1, ROW.degree), 2**61, dtype=np.uint64)
    with pytest.raises(WorkerFailed, match="a coefficient is not below its modulus"):
        worker(CKKS).fuse(high)
    worker(CKKS).keygen(np.zeros((1, 1, ROW.degree), dtype=np.uint64))  # and goes on


def test_a_sum_is_opened_once_and_only_by_partial_decryptions_of_it(cohort: Cohort) -> None:
    closed = cohort.until_uploaded()
    summed, bodies = cohort.add(closed)
    partials = cohort.partials(closed, summed)
    fuser = Fuser(partials, cohort.worker)
    each = [(silo, cohort.members[silo].partials[0]) for silo in cohort.silos]
    fuser.open(0, bodies[0], each)
    with pytest.raises(OutOfOrder, match="it is open already"):
        fuser.open(0, bodies[0], each)
    other = claim_of(cohort, summed, bodies=(Digest("77" * 32),))
    with pytest.raises(BadSum, match="it is of another sum"):
        accept_partial(closed, other, partials.partials[cohort.silos[0]].envelope)


def test_a_ciphertext_that_hides_something_in_its_padding_is_refused(
    cohort: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Encrypter._blocks

    def padded(self: Encrypter, stretch: ThresholdStretch, signed: np.ndarray) -> np.ndarray:
        blocks = honest(self, stretch, signed)
        blocks[-1, -1] = 1
        return blocks

    monkeypatch.setattr(Encrypter, "_blocks", padded)
    with pytest.raises(BadSum, match="expected zeros after the last element"):
        cohort.run()


def test_an_update_beyond_the_bound_that_shows_in_the_sum_is_refused(
    cohort: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Encrypter._blocks

    def beyond(self: Encrypter, stretch: ThresholdStretch, signed: np.ndarray) -> np.ndarray:
        blocks = honest(self, stretch, signed)
        blocks[0, 1] = -self._largest - 1
        return blocks

    monkeypatch.setattr(Encrypter, "_blocks", beyond)
    with pytest.raises(BadSum, match="an element is beyond 3 times the bound"):
        cohort.run()
