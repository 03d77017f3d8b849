"""What each catalogued scheme promises, put to the test: one sum, of enough silos, unread by others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from policies.findings import PolicyRefusal
from policies.gates import admit_plan, check_survivors, clear_cohort
from privacy.errors import NotAllowed, OutOfOrder, SealsumError
from privacy.ids import ServerId, SiloId
from privacy.secagg.additive import AdditiveSiloHalf, SeedSumHalf, ring_from_bytes, ring_to_bytes, unseal_seed
from privacy.secagg.catalogue import SCHEMES as CARRIED
from privacy.secagg.he.framing import he_stretch
from privacy.secagg.he.silo_half import admit_sum
from privacy.secagg.he.sum_half import HeSumHalf
from privacy.secagg.keystream import CHUNK_ELEMENTS
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation
from privacy.secagg.pairwise.masks import Mask, agree, own_mask, pair_mask
from privacy.secagg.pairwise.silo_masking import masker
from privacy.secagg.pairwise.silo_opening import agree_survivors
from privacy.secagg.threshold.silo_encrypting import Encrypter
from privacy.secagg.threshold.silo_opening import PartialOpener
from privacy.secagg.validity.coins import Coin
from privacy.secagg.validity.server import ValidityServerHalf
from privacy.wire.messages import SurvivorSet
from tests.conformance.additive_scheme import SEALING, SERVERS
from tests.conformance.he_scheme import HeRound
from tests.conformance.pairwise_scheme import PairwiseRound, known
from tests.conformance.scheme import (
    MODEL,
    InMemoryScheme,
    Leaves,
    Network,
    Opened,
    assert_honest,
    assert_sum,
    play_step,
    setting,
)
from tests.conformance.table import EVERY, SCHEMES, THRESHOLD
from tests.conformance.threshold_scheme import ThresholdRound
from tests.conformance.validity_scheme import ValidityRound
from tests.unit.policies.policies_terms import honest_round

COVERS = {"bfv wide": "bfv", "additive with validity": "additive"}
"""Which catalogued scheme a line of the table stands for, where the names differ."""


def test_every_catalogued_scheme_runs_through_both_suites() -> None:
    assert set(CARRIED) <= {COVERS.get(name, name) for name in SCHEMES}


# --- a second opening ---


def second_at_the_phases(scheme: InMemoryScheme) -> None:
    with pytest.raises(OutOfOrder, match="release cannot follow in phase released"):
        scheme.opened()


def second_set_of_survivors(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, PairwiseRound)
    masked = known(scheme.masked)
    for member in scheme.members.values():
        others = [silo for silo in masked.survivors if silo != member.silo]
        fewer = [item.envelope for silo, item in masked.manifests.items() if silo != others[0]]
        with pytest.raises(Equivocation, match="signs no second"):
            agree_survivors(member.state, member.key, fewer)


def second_decryption(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, HeRound)
    for half in scheme.halves.values():
        with pytest.raises(OutOfOrder, match="a round opens one sum"):
            half.open(0, scheme.summed[0], len(scheme.manifests))


def second_partial_decryption(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, ThresholdRound)
    manifests = known(scheme.manifests).relay
    for member in scheme.members.values():
        with pytest.raises(OutOfOrder, match="its one partial decryption"):
            PartialOpener(member.state, member.worker, scheme.summed, manifests)


def second_word_about_a_silo(scheme: InMemoryScheme) -> None:
    """A server that spoke about a silo at two points would show a line through its rows."""
    assert isinstance(scheme, ValidityRound)
    coins: tuple[Coin, Coin] = (scheme._coin(), scheme._toss(2, MODEL))
    silo = scheme.setting.cohort[0]
    half = ValidityServerHalf(scheme.terms, scheme._seeds[silo][1], coins, first=False)
    half.absorb(0)
    half.message()
    with pytest.raises(OutOfOrder, match="expected once"):
        half.message()
    with pytest.raises(OutOfOrder, match="expected once"):
        scheme.halves[silo].prove()
    with pytest.raises(OutOfOrder, match="only one"):
        scheme.halves[silo].open_coin(coins[0])


SECOND: dict[str, Callable[[InMemoryScheme], None]] = {
    "additive": second_at_the_phases,
    "additive with validity": second_word_about_a_silo,
    "pairwise": second_set_of_survivors,
    "bfv": second_decryption,
    "bfv wide": second_decryption,
    "ckks": second_decryption,
    "threshold_bfv": second_partial_decryption,
    "threshold_ckks": second_partial_decryption,
}


@EVERY
def test_a_round_opens_once(name: str) -> None:
    scheme = SCHEMES[name](setting(4))
    assert_sum(scheme, Network().play(scheme), scheme.setting.cohort)
    SECOND[name](scheme)


def test_the_gate_of_shares_clears_no_second_sum() -> None:
    honest = honest_round()
    admitted = admit_plan([honest.policy], honest.offer(), honest.signed_job(), honest.charter)
    sets = honest.survivors(*honest.plan.silos)
    clear_cohort(admitted, sets, honest.charter, honest.policy, opened_before=False)
    with pytest.raises(PolicyRefusal, match="opened"):
        clear_cohort(admitted, sets, honest.charter, honest.policy, opened_before=True)


# --- two updates under one mask ---


def additive_twice(_: InMemoryScheme) -> None:
    half = AdditiveSiloHalf(
        setting().context, MODEL, SiloId("a"), {server: key.public_hex for server, key in SEALING.items()}
    )
    half.share(0, np.zeros(CHUNK_ELEMENTS, dtype=np.uint32))
    half.share(CHUNK_ELEMENTS, np.zeros(8, dtype=np.uint32))
    for start in (0, CHUNK_ELEMENTS):
        with pytest.raises(OutOfOrder, match="is shared already"):
            half.share(start, np.ones(8, dtype=np.uint32))


def validity_twice(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, ValidityRound)
    half, update = scheme.halves[scheme.setting.cohort[0]], scheme.updates[scheme.setting.cohort[0]]
    with pytest.raises(OutOfOrder, match="part: expected"):
        half.share(0, update)


def pairwise_twice(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, PairwiseRound)
    member = scheme.members[scheme.setting.cohort[0]]
    with pytest.raises(OutOfOrder, match="has signed its masked update"):
        masker(member.state, MODEL)


def he_twice(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, HeRound)
    silo = scheme.setting.cohort[0]
    with pytest.raises(OutOfOrder, match="is encrypted already"):
        scheme.halves[silo].encrypt(0, scheme.updates[silo])


def threshold_twice(scheme: InMemoryScheme) -> None:
    assert isinstance(scheme, ThresholdRound)
    member = scheme.members[scheme.setting.cohort[0]]
    with pytest.raises(OutOfOrder, match="has signed its update"):
        Encrypter(member.state, member.worker, MODEL)


TWICE: dict[str, Callable[[InMemoryScheme], None]] = {
    "additive": additive_twice,
    "additive with validity": validity_twice,
    "pairwise": pairwise_twice,
    "bfv": he_twice,
    "bfv wide": he_twice,
    "ckks": he_twice,
    "threshold_bfv": threshold_twice,
    "threshold_ckks": threshold_twice,
}


@EVERY
def test_no_silo_half_hides_a_second_update_under_the_first_ones_mask(name: str) -> None:
    scheme = SCHEMES[name](setting(3))
    while scheme.step != scheme.counted:
        play_step(scheme)
    if name in THRESHOLD:
        play_step(scheme)
    play_step(scheme)
    TWICE[name](scheme)


# --- below the minimum ---


@EVERY
def test_a_round_below_the_minimum_never_opens(name: str) -> None:
    steps = SCHEMES[name](setting()).steps
    for step in steps[: steps.index(SCHEMES[name](setting()).counted) + 1]:
        scheme = SCHEMES[name](setting(4, minimum=4))
        left = {scheme.setting.cohort[3]: Leaves(step, "before")}
        ending = Network(left).play(scheme)
        assert isinstance(ending, NotAllowed | BelowThreshold), repr(ending)
        assert_honest(scheme, ending)
        with pytest.raises(SealsumError):
            scheme.opened()


def test_a_silo_refuses_a_set_below_the_minimum_whatever_the_server_says() -> None:
    pairwise = PairwiseRound(setting(4, minimum=4))
    for _ in pairwise.steps[:3]:
        play_step(pairwise)
    member = pairwise.members[pairwise.setting.cohort[0]]
    with pytest.raises(BelowThreshold, match="expected at least 4, got 3"):
        agree_survivors(member.state, member.key, known(pairwise.masked).relay[:3])

    he = HeRound("bfv-2048-40", setting(4))
    assert isinstance(Network().play(he), Opened)
    own = he.manifests[he.setting.cohort[0]]
    few = he.sum.model_copy(update={"survivors": he.sum.survivors[:1], "manifests": he.sum.manifests[:1]})
    with pytest.raises(NotAllowed, match="expected at least 2, got 1"):
        admit_sum(few, own.message, own.envelope.body_digest, he.setting.cohort, 2)


def test_a_share_server_refuses_a_set_below_the_minimum_whatever_the_others_say() -> None:
    honest = honest_round()
    admitted = admit_plan([honest.policy], honest.offer(), honest.signed_job(), honest.charter)
    few = SurvivorSet(
        server=honest.charter.share_servers[0], survivors=honest.plan.silos[:2], manifests=(MODEL, MODEL)
    )
    with pytest.raises(PolicyRefusal, match="survivors"):
        check_survivors(admitted, few, honest.charter, honest.policy)


# --- whom a scheme withstands ---


def assert_uniform(elements: np.ndarray) -> None:
    """Bytes pass a chi-square test at six standard deviations."""
    counts = np.bincount(np.frombuffer(ring_to_bytes(elements), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - 255) < 6 * (2 * 255) ** 0.5


@pytest.mark.parametrize("honest", SERVERS)
def test_all_share_servers_but_any_one_see_noise(honest: ServerId) -> None:
    """``additive`` withstands k − 1 servers: an update of zeros, less all that they can take off."""
    silo = SiloId("a")
    context = setting().context
    half = AdditiveSiloHalf(context, MODEL, silo, {server: key.public_hex for server, key in SEALING.items()})
    length = 1 << 16
    share = half.share(0, np.zeros(length, dtype=np.uint32))
    masks = {
        server: SeedSumHalf(
            [(silo, unseal_seed(half.sealed_seeds[server], key, context, MODEL, silo, server))],
            context,
            MODEL,
            server,
        ).total(0, length)
        for server, key in SEALING.items()
    }
    assert not (share + sum(masks.values())).any()
    for server, mask in masks.items():
        if server != honest:
            share += mask
    if honest == SERVERS[0]:  # whose share they lack: they hold seeds, drawn without the update
        share = sum(masks.values(), np.zeros(length, dtype=np.uint32))
    assert_uniform(share)


@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_the_server_and_silos_that_collude_with_it_see_noise_in_pairwise(colluders: int) -> None:
    """An update of zeros, less every mask that colluders share with its silo: its own one stays, and more."""
    scheme = PairwiseRound(setting(4, dimension=(1 << 16) - 1))
    for member in scheme.members.values():
        member.update = np.zeros(1 << 16, dtype="<u4")
    secrets = {}
    for step in scheme.steps[:3]:
        for silo in scheme.setting.cohort:
            if step == "masked":
                secrets[silo] = scheme.members[silo].state.own_secrets()
            scheme.act(silo)
        play_step(scheme)
    victim, *others = scheme.setting.cohort
    view = ring_from_bytes(scheme.members[victim].parts[0], 1 << 16).copy()
    keys = known(scheme.keys)
    bound = (keys.key_set, scheme.terms.context, MODEL)

    def pair(peer: SiloId) -> Mask:
        private = X25519PrivateKey.from_private_bytes(bytes.fromhex(secrets[peer].mask_key))
        shared = agree(private, victim, keys.adverts[victim].message.mask_key)
        return pair_mask(shared, *bound, victim, peer).inverse()

    for peer in others[:colluders]:
        pair(peer).apply(0, view)
    assert_uniform(view)
    for peer in others[colluders:]:
        pair(peer).apply(0, view)
    assert_uniform(view)  # all peers together, and still the silo's own mask
    own_mask(bytes.fromhex(secrets[victim].seed), *bound, victim).inverse().apply(0, view)
    assert not view.any()


@pytest.mark.parametrize("row", ["bfv-2048-40", "ckks-4096-36"])
def test_one_silo_that_colludes_with_the_server_reads_an_update_under_one_key(row: str) -> None:
    """Why ``bfv`` and ``ckks`` promise nothing against collusion, and who fears it refuses them."""
    scheme = HeRound(row, setting(3))
    victim, accomplice = scheme.setting.cohort[:2]
    upload = scheme.act(victim)[1].raw
    piece = he_stretch(scheme.parameters, 0, scheme.setting.length)
    alone = HeSumHalf(row, 3).total([upload], piece)
    assert np.array_equal(scheme.halves[accomplice].open(0, alone, 1), scheme.updates[victim])
    catalogued = CARRIED[scheme.parameters.scheme]
    assert "that no silo colludes with" in catalogued.withstands


@EVERY
def test_a_promise_about_dropouts_is_kept(name: str) -> None:
    """As many silos may go as the scheme says, and with one more the round ends."""
    scheme = SCHEMES[name](setting(5))
    bears = len(scheme.setting.cohort) - max(scheme.needed(step, 2) for step in scheme.steps)
    for gone, opens in ((bears, True), (bears + 1, False)):
        scheme = SCHEMES[name](setting(5))
        left = {silo: Leaves(scheme.counted, "before") for silo in scheme.setting.cohort[:gone]}
        ending = Network(left).play(scheme)
        assert isinstance(ending, Opened) == opens
        assert_honest(scheme, ending)
    assert bears == (2 if name == "pairwise" else 3)
