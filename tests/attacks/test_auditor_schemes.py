"""What each scheme's parties could sign to make a sum pass that was not one: all of it is caught, by name.

Every message here is signed by whom it names: only what it says, or that it is missing, gives it away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import pytest
from sealsum_verify.verify import verify_pack

from privacy.canonical import canonical_bytes, digest_of
from privacy.ids import Context, PartyId, ServerId, SiloId
from privacy.secagg.validity.coins import Toss, commitment_to
from privacy.wire.envelope import Envelope, sign_message
from privacy.wire.messages import SurvivorSet, survivors_digest
from tests.evidence_pack import Chain, Records, files_of, honest_records, resigned, started_records
from tests.evidence_schemes import PROTOCOLS, Protocol

Change = Callable[[dict[str, Any]], Any]
Attack = Callable[[Records], Any]


@cache
def finished(protocol: Protocol) -> tuple[Records, bytes]:
    """A job of one round, and its pack: made once, as keys and accounting take their time."""
    records = honest_records(1, protocol)
    return records, records.pack()


def one_round(protocol: Protocol) -> Records:
    """A copy that a test may alter."""
    records = copy(finished(protocol)[0])
    records.rounds = [{name: copy(sent) for name, sent in round_.items()} for round_ in records.rounds]
    records.logs, records.ledgers = dict(records.logs), dict(records.ledgers)
    return records


def altered(records: Records) -> bytes:
    """The pack of these records, with the honest ones' claim."""
    protocol: Protocol = "validity" if records.job.validity else records.job.scheme  # type: ignore[assignment]
    honest = finished(protocol)
    same = honest[0].federation is records.federation
    return records.pack_over(honest[1]) if same else records.pack()


def fault_of(records: Records) -> tuple[int, str]:
    report = verify_pack(altered(records), records.federation.officers.digest)
    assert report.fault is not None, "the attack went unnoticed"
    return report.passed + 1, str(report.fault)


def offered(records: Records, **terms: Any) -> None:
    """The aggregator offers round 1 on other terms than the round was run on."""
    old = records.rounds[0]["offer"]
    body = json.loads(old.body)
    body["plan"].update(terms)
    context = digest_of("sealsum/ctx/v1", body["plan"])
    key = records.federation.key(old.sender)
    records.rounds[0]["offer"] = sign_message(body, "offer", context, old.sender, key)


def anew(records: Records, section: str, place: Any, change: Change) -> Envelope:
    """A message of round 1 altered and signed again by its own sender."""
    messages = records.rounds[0][section]
    old: Envelope = messages[place]
    body = json.loads(old.body)
    change(body)
    key = records.federation.key(old.sender)
    messages[place] = sign_message(body, old.kind, old.context, old.sender, key)  # type: ignore[arg-type]
    new: Envelope = messages[place]
    return new


def summed_by_other_manifests(records: Records) -> None:
    """Whoever sums signs the same silos by their manifests as they are now, in messages and logs."""
    round_ = records.rounds[0]
    digests = {silo: manifest.body_digest for silo, manifest in round_["manifests"].items()}
    old = survivors_digest(SurvivorSet.model_validate_json(round_["survivors"][0].body))
    for index in range(len(round_["survivors"])):
        anew(records, "survivors", index, lambda b: b.update(manifests=[digests[s] for s in b["survivors"]]))
    new = survivors_digest(SurvivorSet.model_validate_json(round_["survivors"][0].body))
    for party, log in records.logs.items():
        records.logs[party] = log.rewritten(
            lambda _kind, body: {name: new if value == old else value for name, value in body.items()}
        )
    if round_["sum"]:
        anew(records, "sum", 0, lambda b: b.update(manifests=list(digests.values())))


def manifest_anew(**changes: Any) -> Attack:
    """silo-2 signs another manifest, and whoever sums takes it."""

    def attack(records: Records) -> None:
        anew(records, "manifests", "silo-2", lambda b: b.update(changes))
        summed_by_other_manifests(records)

    return attack


def all_manifests(records: Records, **changes: Any) -> None:
    """Every silo signs another manifest, and whoever sums takes them."""
    for silo in records.rounds[0]["manifests"]:
        anew(records, "manifests", silo, lambda b: b.update(changes))
    summed_by_other_manifests(records)


def said(section: str, place: Any, **changes: Any) -> Attack:
    """One party says something else."""
    return lambda records: anew(records, section, place, lambda b: b.update(changes))


def without(section: str, *places: Any) -> Attack:
    """Messages are kept back."""

    def attack(records: Records) -> None:
        for place in places:
            records.rounds[0][section].pop(place)

    return attack


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_untouched_pack_verifies_so_the_attacks_mean_something(protocol: Protocol) -> None:
    records = one_round(protocol)
    report = verify_pack(altered(records), records.federation.officers.digest)
    assert report.verified, report.fault


# --- pairwise ---

PAIRWISE: dict[str, tuple[Attack, str]] = {
    "signatures below the threshold": (
        without("consistency", "silo-1", "silo-3"),
        "consistency: expected 3 survivors' signatures, got 2",
    ),
    "a signature on another set": (
        lambda r: anew(r, "consistency", "silo-2", lambda b: (b["survivors"].pop(), b["inputs"].pop())),
        "consistency of silo-2: it is of another set",
    ),
    "a signature on another manifest": (
        lambda r: anew(r, "consistency", "silo-2", lambda b: b["inputs"].reverse()),
        "consistency of silo-2: it is of another set",
    ),
    "a signature under another K": (
        said("consistency", "silo-2", key_set="ab" * 32),
        "consistency of silo-2: it is of another set",
    ),
    "a manifest under another K": (
        manifest_anew(key_set="ab" * 32),
        "silo-2: its K is not that of the round",
    ),
    "a silo's keys replaced": (said("keys", "silo-2", mask_key="ab" * 32), "its K is not that of the round"),
    "a silo's keys kept back": (without("keys", "silo-2"), "its K is not that of the round"),
    "all keys kept back": (
        without("keys", "silo-1", "silo-2", "silo-3", "silo-4"),
        "its K is not that of the round",
    ),
    "a manifest with other dealers": (
        manifest_anew(dealers=["silo-1", "silo-2", "silo-3"]),
        "manifest of silo-2: it names other dealers",
    ),
    "a silo that sent no keys among the dealers": (
        lambda r: all_manifests(r, dealers=["silo-1", "silo-2", "silo-3", "silo-4", "silo-5"]),
        "manifests: dealers are not silos that sent keys",
    ),
    "a survivor that dealt no shares": (
        lambda r: all_manifests(r, dealers=["silo-1", "silo-2", "silo-3"]),
        "manifests: dealers are not silos that sent keys, the survivors among them",
    ),
    "a manifest with a stranger's shares unusable": (
        manifest_anew(unusable=["silo-9"]),
        "manifest of silo-2: unusable are dealers only",
    ),
    "a manifest of another model": (manifest_anew(model="ab" * 32), "manifest of silo-2: model or parts"),
    "a manifest of another length": (
        manifest_anew(parts=["ab" * 32] * 2),
        "manifest of silo-2: model or parts",
    ),
    "a survivor left out by the aggregator": (
        lambda r: anew(r, "survivors", 0, lambda b: (b["survivors"].pop(), b["manifests"].pop())),
        "result.survivors is not the set summed",
    ),
    "survivors out of order": (
        lambda r: anew(r, "survivors", 0, lambda b: (b["survivors"].reverse(), b["manifests"].reverse())),
        "survivors: expected distinct silos, sorted",
    ),
    "a survivor named twice": (
        lambda r: anew(
            r, "survivors", 0, lambda b: b.update(survivors=[b["survivors"][0], *b["survivors"][:3]])
        ),
        "survivors: expected distinct silos, sorted",
    ),
    "a survivor without a manifest": (
        lambda r: anew(r, "survivors", 0, lambda b: b["manifests"].pop()),
        "survivors: expected distinct silos, sorted",
    ),
    "survivors below the minimum": (
        lambda r: anew(
            r, "survivors", 0, lambda b: b.update(survivors=b["survivors"][:2], manifests=b["manifests"][:2])
        ),
        "fewer than 3 survivors",
    ),
    "a survivor's manifest kept back": (without("manifests", "silo-2"), "survivor silo-2: the manifest"),
    "no survivors signed by the aggregator": (without("survivors", 0), "survivors: expected one set"),
    "two sets of survivors": (
        lambda r: r.rounds[0]["survivors"].append(r.rounds[0]["survivors"][0]),
        "survivors of aggregator: there are two",
    ),
}


@pytest.mark.parametrize("attack", PAIRWISE)
def test_a_pairwise_round_with(attack: str) -> None:
    records = one_round("pairwise")
    act, message = PAIRWISE[attack]
    act(records)
    number, fault = fault_of(records)
    assert (number, message in fault) == (8, True), fault


def test_t_signatures_are_enough() -> None:
    records = one_round("pairwise")
    without("consistency", "silo-1")(records)
    report = verify_pack(altered(records), records.federation.officers.digest)
    assert report.verified, report.fault


def test_a_dropouts_signature_counts_for_nothing() -> None:
    records = started_records("pairwise", 1)
    records.add_round(1, absent=("silo-4",), job_state="finished")
    assert verify_pack(altered(records), records.federation.officers.digest).verified
    signatures = records.rounds[0]["consistency"]
    like = signatures["silo-1"]
    body = json.loads(like.body)
    key = records.federation.key("silo-4")
    signatures["silo-4"] = sign_message(body, like.kind, like.context, PartyId("silo-4"), key)
    number, fault = fault_of(records)
    assert (number, "consistency of silo-4: it is not a survivor" in fault) == (8, True), fault


@pytest.mark.parametrize("threshold", [None, 2, 5])
def test_a_threshold_that_the_threat_model_does_not_bear_is_refused(threshold: int | None) -> None:
    """demo-pairwise: malicious aggregator and one colluder of four, hence 3 of 4."""
    records = one_round("pairwise")
    offered(records, threshold=threshold)
    number, fault = fault_of(records)
    assert (number, "plan.threshold: the threat model demands at least 3 of 4" in fault) == (7, True), fault


# --- bfv, ckks ---

HE: dict[str, tuple[Attack, str]] = {
    "one silo that opens another sum": (
        said("opened", "silo-3", parts=["ab" * 32]),
        "silo-3: it says another sum",
    ),
    "too few silos that opened it": (
        without("opened", "silo-1", "silo-2"),
        "opened: expected 3 silos' words, got 2",
    ),
    "a word on another sum": (
        said("opened", "silo-3", sum="ab" * 32),
        "opened of silo-3: it is of another sum",
    ),
    "a word that is too short": (
        said("opened", "silo-3", parts=[]),
        "opened of silo-3: it is of another sum",
    ),
    "an update under another key": (manifest_anew(key="ab" * 32), "manifests: expected one key id, got 2"),
    "a sum under another key": (said("sum", 0, key="ab" * 32), "sum: key, parameters, length or parts"),
    "a sum under other parameters": (said("sum", 0, parameters="bfv-1024"), "sum: key, parameters, length"),
    "a sum of one silo's ciphertexts": (
        lambda r: anew(
            r, "sum", 0, lambda b: b.update(survivors=b["survivors"][:1], manifests=b["manifests"][:1])
        ),
        "sum: it is not of the survivors' manifests",
    ),
    "a sum of other manifests": (
        lambda r: anew(r, "sum", 0, lambda b: b["manifests"].reverse()),
        "sum: it is not of the survivors' manifests",
    ),
    "no sum": (without("sum", 0), "sum: expected one signed by the aggregator, got 0"),
    "two sums": (
        lambda r: r.rounds[0]["sum"].append(r.rounds[0]["sum"][0]),
        "he_sum of aggregator: there are two",
    ),
    "an update under other parameters": (
        manifest_anew(parameters="bfv-1024"),
        "manifest of silo-2: model, param",
    ),
    "an update of another model": (manifest_anew(model="ab" * 32), "manifest of silo-2: model, param"),
    "an update of another length": (manifest_anew(vector_length=9), "manifest of silo-2: model, param"),
}


@pytest.mark.parametrize("protocol", ["bfv", "ckks"])
@pytest.mark.parametrize("attack", HE)
def test_an_encrypted_round_with(attack: str, protocol: Protocol) -> None:
    records = one_round(protocol)
    act, message = HE[attack]
    act(records)
    number, fault = fault_of(records)
    assert (number, message in fault) == (8, True), fault


def test_silos_that_disagree_about_a_sum_may_end_a_round_but_never_publish() -> None:
    records = started_records("bfv", 2)
    records.add_round(1, outcome="aborted")
    said("opened", "silo-3", parts=["ab" * 32])(records)
    records.add_round(2, job_state="finished")
    report = verify_pack(altered(records), records.federation.officers.digest)
    assert report.verified, report.fault


def test_a_sum_that_was_handed_out_is_never_kept_from_the_result() -> None:
    """Else a first sum, and a second one in the next round, would show as one."""
    records = started_records("bfv", 1)
    records.add_round(1, outcome="aborted", job_state="failed")
    anew_result = json.loads(records.rounds[0]["result"].body) | {"openings": 0}
    records.rounds[0]["result"] = sign_message(
        anew_result,
        "result",
        records.rounds[0]["result"].context,
        PartyId("aggregator"),
        records.federation.key("aggregator"),
    )
    number, fault = fault_of(records)
    assert (number, "the aggregator has handed out a sum" in fault) == (8, True), fault


def test_a_dropouts_word_on_a_sum_counts_for_nothing() -> None:
    records = started_records("ckks", 1)
    records.add_round(1, absent=("silo-4",), job_state="finished")
    like = records.rounds[0]["opened"]["silo-1"]
    body = json.loads(like.body) | {"silo": "silo-4"}
    key = records.federation.key("silo-4")
    stranger = sign_message(body, like.kind, like.context, PartyId("silo-4"), key)
    records.rounds[0]["opened"]["silo-4"] = stranger
    number, fault = fault_of(records)
    assert (number, "opened of silo-4: it is not a survivor" in fault) == (8, True), fault


@pytest.mark.parametrize(
    ("protocol", "row"),
    [
        ("bfv", None),
        ("bfv", "bfv-2048-40"),
        ("bfv", "bfv-1024"),
        ("ckks", "bfv-2048-54"),
        ("pairwise", "bfv-2048-54"),
        ("threshold_bfv", None),
        ("threshold_bfv", "tbfv-8192-168"),
        ("threshold_bfv", "bfv-2048-54"),
        ("threshold_ckks", "ckks-4096-36"),
    ],
)
def test_parameters_that_do_not_follow_from_vector_and_roster_are_refused(
    protocol: Protocol, row: str | None
) -> None:
    records = one_round(protocol)
    offered(records, he=row)
    number, fault = fault_of(records)
    assert (number, "plan.he: expected" in fault) == (7, True), fault


# --- threshold_bfv, threshold_ckks ---

JOINT: dict[str, tuple[Attack, str]] = {
    "one silo that did not help": (without("opened", "silo-3"), "opened: silo-3 did not help"),
    "help with another sum": (
        said("opened", "silo-3", sum="ab" * 32),
        "opened of silo-3: it is of another sum",
    ),
    "help with half a sum": (said("opened", "silo-3", parts=[]), "opened of silo-3: it is of another sum"),
    "an update under another joint key": (
        manifest_anew(joint_key="ab" * 32),
        "manifests: expected one joint key, got 2",
    ),
    "a silo that committed to no share": (
        without("keys", "silo-2"),
        "keys: silo-2 committed to no key share",
    ),
    "a commitment that was copied": (
        lambda r: said(
            "keys", "silo-2", commitment=json.loads(r.rounds[0]["keys"]["silo-1"].body)["commitment"]
        )(r),
        "keys: two silos with one commitment",
    ),
    "a ciphertext that was copied": (
        lambda r: manifest_anew(bodies=json.loads(r.rounds[0]["manifests"]["silo-1"].body)["bodies"])(r),
        "manifests: a ciphertext is named twice",
    ),
    "a sum under another key": (said("sum", 0, joint_key="ab" * 32), "sum: key or parts are not the round's"),
    "a sum of half its parts": (said("sum", 0, masks=[]), "sum: key or parts are not the round's"),
    "a sum without its bodies": (said("sum", 0, bodies=[]), "sum: key or parts are not the round's"),
    "a sum of other manifests": (
        lambda r: anew(r, "sum", 0, lambda b: b["manifests"].reverse()),
        "sum: it is not of the survivors' manifests",
    ),
    "a sum of fewer silos": (
        lambda r: anew(r, "sum", 0, lambda b: b.update(silos=b["silos"][:3], manifests=b["manifests"][:3])),
        "sum: it is not of the survivors' manifests",
    ),
    "no sum": (without("sum", 0), "sum: expected one signed by the aggregator, got 0"),
    "two sums": (
        lambda r: r.rounds[0]["sum"].append(r.rounds[0]["sum"][0]),
        "threshold_sum of aggregator: there are two",
    ),
    "an update under other parameters": (
        manifest_anew(parameters="tbfv-1024"),
        "manifest of silo-2: model, param",
    ),
    "an update of another model": (manifest_anew(model="ab" * 32), "manifest of silo-2: model, param"),
    "an update of another length": (manifest_anew(vector_length=9), "manifest of silo-2: model, param"),
    "an update without its masks": (manifest_anew(masks=[]), "manifest of silo-2: model, param"),
}


@pytest.mark.parametrize("protocol", ["threshold_bfv", "threshold_ckks"])
@pytest.mark.parametrize("attack", JOINT)
def test_a_round_under_a_joint_key_with(attack: str, protocol: Protocol) -> None:
    records = one_round(protocol)
    act, message = JOINT[attack]
    act(records)
    number, fault = fault_of(records)
    assert (number, message in fault) == (8, True), fault


def test_a_silo_with_a_share_in_the_key_is_never_left_out_of_the_sum() -> None:
    """Its share was needed to open, so a sum without it is another round's, or a lie."""
    records = started_records("threshold_ckks", 1)
    records.add_round(1, absent=("silo-4",), job_state="finished")
    assert verify_pack(altered(records), records.federation.officers.digest).verified
    manifests = records.rounds[0]["manifests"]
    like = manifests["silo-1"]
    body = json.loads(like.body) | {"silo": "silo-4", "bodies": ["ab" * 32], "masks": ["cd" * 32]}
    key = records.federation.key("silo-4")
    manifests["silo-4"] = sign_message(body, like.kind, like.context, PartyId("silo-4"), key)
    number, fault = fault_of(records)
    assert (number, "survivors: expected every silo with a manifest" in fault) == (8, True), fault


# --- additive with validity ---


def verdict(server: int, silo: int, **changes: Any) -> Attack:
    return lambda r: anew(r, "verdicts", server, lambda b: b["verdicts"][silo].update(changes))


def coin_anew(step: int) -> Attack:
    """server-0 commits to another value after it has seen the other's, and reveals that one."""

    def attack(records: Records) -> None:
        coins = records.rounds[0]["coins"]
        places = {coin.kind: place for place, coin in enumerate(coins) if coin.sender == "server-0"}
        commitment, reveal = places[f"coin{step}_commitment"], places[f"coin{step}_reveal"]
        toss = Toss(
            Context(coins[reveal].context),
            1 if step == 1 else 2,
            json.loads(coins[reveal].body)["frozen"],
            tuple(records.federation.charter.share_servers),
        )
        value = os.urandom(32)
        bound = commitment_to(toss, ServerId(PartyId("server-0")), value)
        anew(records, "coins", commitment, lambda b: b.update(commitment=bound))
        anew(records, "coins", reveal, lambda b: b.update(value=value.hex()))

    return attack


VALIDITY: dict[str, tuple[Attack, str]] = {
    "a verdict turned against a survivor": (
        verdict(0, 1, failed="norm"),
        "survivors: not the silos that every server passed",
    ),
    "a verdict on another check": (
        verdict(1, 2, check="ab" * 32),
        "verdict of server-1 on silo-3: it judged",
    ),
    "a verdict by another coin": (said("verdicts", 0, coin="ab" * 32), "verdicts of server-0: expected one"),
    "a silo that one server did not judge": (
        lambda r: anew(r, "verdicts", 0, lambda b: b["verdicts"].pop()),
        "verdicts of server-0: expected one on each",
    ),
    "a silo judged twice": (
        lambda r: anew(r, "verdicts", 0, lambda b: b["verdicts"].append(b["verdicts"][0])),
        "verdicts of server-0: expected one on each",
    ),
    "a server without verdicts": (without("verdicts", 0), "validity_verdict: expected one from each"),
    "a coin revealed other than committed": (
        said("coins", 1, value="ab" * 32),
        "coin 1: server-0 revealed another value than it committed to",
    ),
    "a first coin replaced": (coin_anew(1), "proof of silo-1: it is about another update or coin"),
    "a second coin replaced": (coin_anew(2), "verdicts of server-0: expected one on each"),
    "a coin tossed over other manifests": (
        said("coins", 0, frozen="ab" * 32),
        "coin 1: it was tossed over other manifests",
    ),
    "a coin of another step": (said("coins", 0, step=2), "coin 1: it was tossed over other manifests"),
    "a commitment kept back": (without("coins", 0), "coin1_commitment: expected one from each share server"),
    "a reveal kept back": (without("coins", 1), "coin1_reveal: expected one from each share server"),
    "a proof kept back": (without("proofs", "silo-2"), "coin 2: it was tossed over other manifests"),
    "a proof of another coin": (
        said("proofs", "silo-2", coin="ab" * 32),
        "proof of silo-2: it is about another update or coin",
    ),
    "a proof of another update": (
        said("proofs", "silo-2", shares="ab" * 32),
        "proof of silo-2: it is about another update or coin",
    ),
    "a proof replaced after the second coin": (
        said("proofs", "silo-2", witness="ab" * 32),
        "coin 2: it was tossed over other manifests",
    ),
    "an update under a looser bound": (manifest_anew(terms="ab" * 32), "manifest of silo-2: model, validity"),
    "a share of another sum": (said("openings", 0, survivors="ab" * 32), "opening of server-0"),
}


@pytest.mark.parametrize("attack", VALIDITY)
def test_a_round_with_proofs_and(attack: str) -> None:
    records = one_round("validity")
    act, message = VALIDITY[attack]
    act(records)
    number, fault = fault_of(records)
    assert (number, message in fault) == (8, True), fault


def test_silos_that_fail_or_prove_nothing_are_out_of_the_sum_and_the_pack_says_so() -> None:
    records = started_records("validity", 2)
    records.add_round(1, failing=("silo-2",))
    records.add_round(2, silent=("silo-3",), job_state="finished")
    report = verify_pack(altered(records), records.federation.officers.digest)
    assert report.verified, report.fault


def test_a_failed_silo_that_all_servers_pass_afterwards_was_not_left_out_for_its_proof() -> None:
    records = started_records("validity", 1)
    records.add_round(1, failing=("silo-2",), job_state="finished")
    for server in (0, 1):
        verdict(server, 1, failed=None)(records)
    number, fault = fault_of(records)
    assert (number, "survivors: not the silos that every server passed" in fault) == (8, True), fault


def test_a_plan_that_drops_the_jobs_bound_is_refused() -> None:
    records = one_round("validity")
    offered(records, validity=None)
    number, fault = fault_of(records)
    assert (number, "plan.validity is not what charter and job say" in fault) == (7, True), fault


# --- all ---


def kind_of(section: str, place: Any, kind: str) -> Attack:
    """A message signed as one of another kind."""
    return lambda r: signed_as(r, section, place, kind=kind)


def signed_as(records: Records, section: str, place: Any, **changes: Any) -> None:
    """A message of round 1 signed as of another kind, sender or recipient, in the same words."""
    messages = records.rounds[0] if place is None else records.rounds[0][section]
    where = section if place is None else place
    old: Envelope = messages[where]
    sender = PartyId(changes.get("sender", old.sender))
    messages[where] = sign_message(
        json.loads(old.body),  # type: ignore[arg-type]
        changes.get("kind", old.kind),
        old.context,
        sender,
        records.federation.key(sender),
        changes.get("recipient", PartyId("all")),
    )


def result_anew(**changes: Any) -> Attack:
    """The aggregator signs another result."""

    def attack(records: Records) -> None:
        holder = records.rounds[0]
        records.rounds[0] = {**holder, "results": [holder["result"]]}
        anew(records, "results", 0, lambda b: b.update(changes))
        (result,) = records.rounds[0].pop("results")
        records.rounds[0]["result"] = result

    return attack


ANY: dict[str, tuple[Attack, str]] = {
    "a manifest of another kind": (
        kind_of("manifests", "silo-2", "he_opened"),
        "expected a message of kind pairwise_m",
    ),
    "a survivor set of another kind": (
        kind_of("survivors", 0, "he_sum"),
        "expected a message of kind survivors",
    ),
    "a message for one party": (
        lambda r: signed_as(r, "consistency", "silo-2", recipient=PartyId("silo-3")),
        "expected recipient all",
    ),
    "a manifest in another silo's name": (
        lambda r: anew(r, "manifests", "silo-2", lambda b: b.update(silo="silo-3")),
        "pairwise_masked of silo-2: it speaks for another silo",
    ),
    "a signature filed under another silo": (
        lambda r: r.rounds[0]["consistency"].update({"silo-2": r.rounds[0]["consistency"]["silo-3"]}),
        "the signature is not its author's",
    ),
    "survivors in another server's name": (
        said("survivors", 0, server="silo-1"),
        "survivors of aggregator: it is another's",
    ),
    "survivors signed by a silo": (
        lambda r: signed_as(r, "survivors", 0, sender="silo-1"),
        "silo-1: expected aggregator, got silo",
    ),
    "a result from another model": (
        result_anew(model_in="ab" * 32),
        "result.model_in is not the plan's model",
    ),
    "a result of two openings": (result_anew(openings=2), "a round opens one sum at most"),
    "a result without its model": (result_anew(model_out=None), "a model comes with an opened sum"),
    "a model of an aborted round": (result_anew(outcome="aborted"), "a model comes with an opened sum"),
    "a result of other survivors": (
        result_anew(survivors=["silo-1"]),
        "result.survivors is not the set summed",
    ),
}


@pytest.mark.parametrize("attack", ANY)
def test_a_round_of_any_scheme_with(attack: str) -> None:
    records = one_round("pairwise")
    act, message = ANY[attack]
    act(records)
    number, fault = fault_of(records)
    assert (number, message in fault) == (8, True), fault


JobAttack = tuple[Protocol, dict[str, Any], dict[str, Any], str]
JOBS: dict[str, JobAttack] = {
    "a scheme that nobody knows": (
        "additive",
        {"scheme": "none"},
        {"scheme": "none"},
        "plan.scheme: expected one of",
    ),
    "a scheme without its threshold's meaning": (
        "additive",
        {},
        {"threshold": 2},
        "plan.threshold: pairwise alone",
    ),
    "validity where nobody holds shares": (
        "bfv",
        {"validity": {"kind": "l2_bound", "norm_bound": "1.0"}},
        {"validity": {"kind": "l2_bound", "norm_bound": "1.0"}},
        "plan.validity: additive alone has it",
    ),
    "elements beyond all bits": (
        "bfv",
        {"vector": {"coordinate_bound": "4.0", "scale_bits": 5000, "ring_bits": 32}},
        {"vector": {"coordinate_bound": "4.0", "scale_bits": 5000, "ring_bits": 32}},
        "plan.vector.scale_bits: expected 1 to 30",
    ),
}


@pytest.mark.parametrize("attack", JOBS)
def test_a_job_and_its_plan_that_agree_on(attack: str) -> None:
    """Researcher and aggregator together sign terms that no honest party would run."""
    protocol, job, plan, message = JOBS[attack]
    records = one_round(protocol)
    old = records.job_envelope
    terms = json.loads(old.body) | job
    key = records.federation.key("researcher")
    records.job_envelope = sign_message(terms, "job", old.context, PartyId("researcher"), key)  # type: ignore[arg-type]
    body = json.loads(records.rounds[0]["offer"].body)
    body["job"] = records.job_envelope.model_dump(mode="json")
    body["plan"] |= plan | {"job_digest": digest_of("sealsum/job/v1", terms)}
    context = digest_of("sealsum/ctx/v1", body["plan"])
    aggregator = records.federation.key("aggregator")
    records.rounds[0]["offer"] = sign_message(body, "offer", context, PartyId("aggregator"), aggregator)
    files = files_of(altered(records)) | {"job/job.json": canonical_bytes(records.job_envelope)}
    report = verify_pack(resigned(files, records), records.federation.officers.digest)
    assert report.fault is not None, "the attack went unnoticed"
    assert (report.passed + 1, message in str(report.fault)) == (7, True), str(report.fault)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("other", PROTOCOLS)
def test_messages_of_another_scheme_vouch_for_nothing(protocol: Protocol, other: Protocol) -> None:
    """Left in a round they could pass for a confirmation that its scheme does not have."""
    records, foreign = one_round(protocol), one_round(other)
    round_ = records.rounds[0]
    added = {
        name: messages
        for name, messages in foreign.rounds[0].items()
        if isinstance(messages, dict | list) and messages and not round_[name] and name != "refusals"
    }
    for name, messages in added.items():
        records.rounds[0] = {**round_, name: messages}
        number, fault = fault_of(records)
        assert (number, f"{name}: {protocol} has none" in fault) == (8, True), fault


@pytest.mark.parametrize("protocol", ["pairwise", "bfv", "ckks"])
def test_a_log_that_opened_another_sum_than_was_signed_is_caught(protocol: Protocol) -> None:
    records = one_round(protocol)
    log = records.logs["aggregator"]
    other = {"digest": "ef" * 32}
    records.logs["aggregator"] = log.rewritten(
        lambda kind, body: body | other if kind == "sum_opened" else body
    )
    number, fault = fault_of(records)
    assert (number, "it opened another sum" in fault) == (10, True), fault


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_update_that_was_not_charged_is_caught_in_every_scheme(protocol: Protocol) -> None:
    """Each kind of manifest names the head of its silo's ledger; here silo-2 writes a ledger without it."""
    records = one_round(protocol)
    silo = SiloId(PartyId("silo-2"))
    ledger = records.ledgers[silo]
    records.ledgers[silo] = Chain(ledger.origin, ledger.key, ledger.entries[:1])
    number, fault = fault_of(records)
    assert (number, "dp/ledger/silo-2.jsonl: it lacks entry" in fault) == (11, True), fault


@pytest.mark.parametrize("protocol", ["pairwise", "bfv", "ckks"])
def test_share_servers_in_a_scheme_without_them_are_refused(protocol: Protocol) -> None:
    records = one_round(protocol)
    slot = {"server": "server-0", "verify_key": "ab" * 32}
    offered(records, servers=[slot, slot])
    number, fault = fault_of(records)
    assert (number, "plan.servers are not the roster's" in fault) == (7, True), fault
