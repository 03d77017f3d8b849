"""Parties that sign what they like: the others' records give them away.

Here the whole of a dishonest party's own record is consistent and validly signed; a check fails only
because somebody else's record tells another story.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sealsum_verify.verify import verify_pack

from privacy.chain import EMPTY, Head
from privacy.errors import SealsumError
from privacy.ids import Digest, PartyId, SiloId
from privacy.wire.envelope import Envelope, MessageKind
from privacy.wire.messages import (
    AcceptedSet,
    OpeningShare,
    RoundOffer,
    RoundResult,
    ShareManifest,
    SurvivorSet,
    survivors_digest,
)
from tests.evidence_pack import Chain, Records, edited, files_of, honest_records, resigned
from tests.federation import Federation
from tests.log_book import LogBook


def caught(records: Records, number: int, message: str, pack: bytes | None = None) -> None:
    report = verify_pack(pack or records.pack(), records.federation.officers.digest)
    assert report.fault is not None, "the attack went unnoticed"
    assert (report.passed + 1, message in str(report.fault)) == (number, True), str(report.fault)


def started(rounds: int = 2, **job: Any) -> Records:
    federation = Federation()
    return Records(federation, federation.job_spec(**{"rounds": rounds} | job))


def signed_anew(
    records: Records, field: str, index: Any, kind: MessageKind, shape: type[Any], **changes: Any
) -> None:
    """Replace a message of round 1 by an altered one, signed by the same sender."""
    round_ = records.rounds[0]
    old: Envelope = round_[field] if index is None else round_[field][index]
    body = shape.model_validate_json(old.body).model_copy(update=changes)
    new = records.federation.sign(body, kind, old.context, old.sender)
    if index is None:
        round_[field] = new
    else:
        round_[field][index] = new


# --- the aggregator ---


def test_a_round_opened_twice_shows_in_the_log() -> None:
    records = honest_records()
    context = records.rounds[0]["offer"].context
    records.logs["aggregator"].add("sum_opened", context=context)
    caught(records, 10, "rounds/0001.json has 1 openings, the log 2")


def test_an_opening_kept_from_the_result_shows_in_the_log() -> None:
    records = started()
    records.add_round(1, outcome="aborted")
    signed_anew(records, "result", None, "result", RoundResult, openings=0)
    caught(records, 10, "rounds/0001.json has 0 openings, the log 1")


def test_a_rewritten_log_lacks_the_head_that_silos_saw() -> None:
    records = honest_records()
    old = records.logs["aggregator"]
    new = LogBook(old.federation, old.party, old.key)
    new.add("started", note="another beginning")
    for entry in old.entries[1:]:
        new.add(entry.kind, **entry.body)
    records.logs["aggregator"] = new
    caught(records, 10, "does not hold the head")


def test_a_split_view_of_the_log_shows_in_the_ledger_that_saw_the_other_side() -> None:
    records = started(rounds=1)
    other_side = {"silo-4": {"log_head": {"size": 2, "root": "ab" * 32}}}
    records.add_round(1, reserving=other_side, job_state="finished")
    caught(records, 11, "it saw a head that log/aggregator.jsonl does not hold")


def test_a_round_kept_out_of_the_evidence_shows_in_the_log() -> None:
    records = started()
    records.add_round(1, outcome="aborted", opening=False)
    records.add_round(2, job_state="finished")
    files = files_of(records.pack())
    del files["rounds/0001.json"]
    caught(records, 10, "offers a round that the pack lacks", resigned(files, records))


def test_a_last_round_cut_from_the_aggregators_log_shows_in_a_share_servers() -> None:
    """Aggregator and researcher together cut a tail that no silo witnessed; but a server admitted it."""
    records = started()
    records.add_round(1)
    hidden = records.plan(2, session="ff" * 16)
    records.logs["server-1"].add("round_admitted", context=hidden.context, job=hidden.job, round=2)
    caught(records, 10, "log/server-1.jsonl entry 7: it admits a round that the pack lacks")


def test_a_silo_that_paid_and_was_not_summed_cannot_be_left_out() -> None:
    """Else a researcher shows a job that seems to have cost that silo nothing."""
    records = started()
    records.add_round(1, outcome="aborted", opening=False)
    files = files_of(records.pack())
    del files["dp/ledger/silo-4.jsonl"]

    def drop(document: dict[str, Any]) -> None:
        del document["manifests"]["silo-4"]

    pack = resigned(edited(files, "rounds/0001.json", drop), records)
    caught(records, 11, "dp/ledger/silo-4.jsonl: a server accepted its update", pack)


def test_a_round_offered_in_secret_shows_in_the_ledgers() -> None:
    records = started(2)
    records.add_round(1, job_state="finished")
    hidden = records.plan(2, session="ff" * 16)
    records.reserve(hidden, "silo-2")
    caught(records, 11, "the pack lacks it")


def _begin(records: Records, number: int, session: str) -> None:
    """silo-2 begins a round without reserving anything for it."""
    plan = records.plan(number, session=session)
    body = records.ledgers[SiloId(PartyId("silo-2"))].entries[-2].body
    begin = {"job_digest": plan.job_digest, "context": plan.context, "round": number}
    records.ledgers[SiloId(PartyId("silo-2"))].add("begin", **begin, log_head=body["log_head"])


@pytest.mark.parametrize("number", [1, 2])
def test_a_round_that_begins_twice_or_unreserved_is_caught(number: int) -> None:
    records = started(2)
    records.add_round(1, job_state="finished")
    honest = records.pack()
    _begin(records, number, "ff" * 16)
    caught(records, 11, "begins outside a reserved block, or a second time", records.pack_over(honest))


def test_a_block_beyond_the_jobs_rounds_is_caught() -> None:
    records = started(2)
    block = {"silo-2": {"last_round": 3}}
    records.add_round(1, reserving=block, job_state="finished")
    caught(records, 11, "it has no such rounds")


def test_rounds_of_a_block_that_never_began_count_in_the_claim() -> None:
    records = started(2)
    records.add_round(1, reserving={"silo-2": {"last_round": 2}}, job_state="finished")
    report = verify_pack(records.pack())
    assert report.verified, report.fault
    assert (report.epsilon["silo-1"].rounds, report.epsilon["silo-2"].rounds) == (1, 2)


def test_a_model_from_nowhere_breaks_the_chain() -> None:
    records = started()
    records.add_round(1)
    records.model = Digest("cd" * 32)
    records.add_round(2)
    caught(records, 9, "rounds/0002.json: it does not start from the last published model")


def test_a_model_without_an_opening_is_refused() -> None:
    records = started()
    records.add_round(1, opening=False, outcome="opened")
    caught(records, 8, "opened without an opening")


def test_a_round_after_the_end_of_the_job_is_refused() -> None:
    records = started()
    records.add_round(1, job_state="finished")
    records.add_round(2)
    caught(records, 9, "the job was finished before this round")


def test_an_end_that_the_log_does_not_know_is_refused() -> None:
    records = honest_records()
    log = records.logs["aggregator"]
    assert log.entries.pop().kind == "job_ended"
    caught(records, 10, "the log does not say so")


def test_a_session_never_serves_two_rounds() -> None:
    records = started()
    records.add_round(1)
    records.add_round(2, session=f"{1:032x}")
    caught(records, 7, "its session has been used before")


@pytest.mark.parametrize(
    "change",
    [
        lambda job: {"min_survivors": 2},
        lambda job: {"deadline_s": 1},
        lambda job: {"policy": Digest("0" * 64)},
        lambda job: {"charter": Digest("0" * 64)},
        lambda job: {"roster_epoch": 2},
        lambda job: {"job_digest": Digest("0" * 64)},
        lambda job: {"rounds": 9},
        lambda job: {"architecture": Digest("0" * 64)},
        lambda job: {"dp": None},
        lambda job: {"dp": job.dp.model_copy(update={"noise_multiplier": 0.5})},
        lambda job: {"training": job.training.model_copy(update={"local_steps": 9})},
        lambda job: {"vector": job.vector.model_copy(update={"scale_bits": 10})},
    ],
)
def test_a_plan_that_departs_from_job_or_charter_is_refused(change: Callable[[Any], dict[str, Any]]) -> None:
    records = started()
    records.add_round(1, **change(records.job))
    caught(records, 7, "plan.")


def test_a_cohort_with_a_key_that_the_roster_does_not_know_is_refused() -> None:
    records = honest_records()
    honest = records.pack()
    cohort = records.plan(1).cohort
    forged = (cohort[0].model_copy(update={"verify_key": "ab" * 32}), *cohort[1:])
    plan = records.plan(1, cohort=forged)
    records.rounds[0]["offer"] = records.federation.offer(plan, records.job_envelope)
    caught(records, 7, "has another key", records.pack_over(honest))


def test_an_offer_under_a_context_that_is_not_its_plans_digest_is_refused() -> None:
    records = honest_records()
    honest = records.pack()
    message = RoundOffer.model_validate_json(records.rounds[0]["offer"].body)
    foreign = records.federation.sign(message, "offer", Digest("ab" * 32), "aggregator")
    records.rounds[0]["offer"] = foreign
    caught(records, 7, "another context", records.pack_over(honest))


def test_an_offer_signed_by_a_silo_is_refused() -> None:
    records = honest_records()
    old = records.rounds[0]["offer"]
    message = RoundOffer.model_validate_json(old.body)
    records.rounds[0]["offer"] = records.federation.sign(message, "offer", old.context, "silo-1")
    caught(records, 7, "expected aggregator")


# --- share servers ---


def test_survivors_below_the_minimum_are_never_a_sum() -> None:
    records = started()
    records.add_round(1, absent=("silo-1", "silo-2"))
    caught(records, 8, "fewer than 3 survivors")


def test_a_server_that_sums_over_another_set_is_caught() -> None:
    records = honest_records()
    old = SurvivorSet.model_validate_json(records.rounds[0]["survivors"][1].body)
    shorter = {"survivors": old.survivors[:3], "manifests": old.manifests[:3]}
    signed_anew(records, "survivors", 1, "survivors", SurvivorSet, **shorter)
    caught(records, 8, "survivors of server-1")


def test_survivors_that_one_server_never_accepted_are_caught() -> None:
    records = honest_records()
    old = AcceptedSet.model_validate_json(records.rounds[0]["accepted"][1].body)
    fewer = {silo: digest for silo, digest in old.manifests.items() if silo != "silo-4"}
    signed_anew(records, "accepted", 1, "accepted", AcceptedSet, manifests=fewer)
    caught(records, 8, "not the set that all servers accepted")


def test_servers_that_accepted_another_manifest_than_the_silo_signed_are_caught() -> None:
    records = honest_records()
    servers_honour(records, "silo-4", Digest("ef" * 32))
    caught(records, 8, "survivor silo-4")


def test_a_share_of_another_set_is_caught() -> None:
    records = honest_records()
    signed_anew(records, "openings", 0, "opening", OpeningShare, survivors=Digest("ef" * 32))
    caught(records, 8, "opening of server-0")


def test_a_share_released_twice_shows_in_the_servers_log() -> None:
    records = honest_records()
    records.logs["server-1"].add("share_released", context=records.rounds[0]["offer"].context)
    caught(records, 10, "log/server-1.jsonl")


def test_a_share_of_another_sum_in_the_servers_log_is_caught() -> None:
    """One set in the evidence, another in its own log: the server signed two."""
    records = started(1)
    records.add_round(1, job_state="finished")
    log = records.logs["server-1"]
    other = {"survivors": "ef" * 32}
    records.logs["server-1"] = log.rewritten(
        lambda kind, body: body | other if kind == "share_released" else body
    )
    caught(records, 10, "it released a share of another sum")


def test_a_share_that_its_server_does_not_own_up_to_is_caught() -> None:
    records = honest_records()
    log = records.logs["server-1"]
    records.logs["server-1"] = log.beginning(1)
    caught(records, 10, "it released 0 shares")


# --- silos ---


def rewritten(records: Records, silo: str, change: Callable[[list[tuple[str, Any]]], None]) -> None:
    """The silo writes its whole ledger anew and signs it."""
    old = records.ledgers[SiloId(PartyId(silo))]
    entries = [(entry.kind, dict(entry.body)) for entry in old.entries]
    change(entries)
    new = Chain(old.origin, old.key)
    for kind, body in entries:
        new.add(kind, **body)
    records.ledgers[SiloId(PartyId(silo))] = new


def test_a_ledger_written_anew_lacks_the_head_in_the_silos_own_manifest() -> None:
    records = honest_records()
    honest = records.pack()
    rewritten(records, "silo-2", lambda entries: entries.insert(1, entries[0]))
    caught(records, 11, "dp/ledger/silo-2.jsonl", records.pack_over(honest))


def test_a_ledger_cut_behind_its_first_round_is_caught() -> None:
    records = honest_records()
    old = records.ledgers[SiloId(PartyId("silo-2"))]
    records.ledgers[SiloId(PartyId("silo-2"))] = Chain(old.origin, old.key, old.entries[:4])
    caught(records, 11, "as rounds/0002.json names it")


def manifest_without_charge(records: Records, head: Head) -> None:
    signed_anew(records, "manifests", "silo-2", "manifest", ShareManifest, ledger_head=head)


def honour_new_manifest(records: Records) -> None:
    """The servers accept what silo-2 signed, so that only its ledger can tell."""
    servers_honour(records, "silo-2", records.rounds[0]["manifests"]["silo-2"].body_digest)


def servers_honour(records: Records, silo: str, digest: Digest) -> None:
    """All servers sign and log round 1 as if ``silo`` had sent the manifest of that digest."""
    round_ = records.rounds[0]
    old = survivors_digest(SurvivorSet.model_validate_json(round_["survivors"][0].body))
    for index in (0, 1):
        accepted = AcceptedSet.model_validate_json(round_["accepted"][index].body)
        manifests = dict(accepted.manifests) | {silo: digest}
        signed_anew(records, "accepted", index, "accepted", AcceptedSet, manifests=manifests)
        survivors = SurvivorSet.model_validate_json(round_["survivors"][index].body)
        digests = tuple(manifests[silo] for silo in survivors.survivors)
        signed_anew(records, "survivors", index, "survivors", SurvivorSet, manifests=digests)
        summed = survivors_digest(survivors.model_copy(update={"manifests": digests}))
        signed_anew(records, "openings", index, "opening", OpeningShare, survivors=summed)
    for party, log in records.logs.items():
        records.logs[party] = log.rewritten(
            lambda _kind, body: {name: summed if value == old else value for name, value in body.items()}
        )


def test_a_silo_that_reserved_nothing_is_caught() -> None:
    records = honest_records(1)
    rewritten(records, "silo-2", lambda entries: entries.__delitem__(slice(1, None)))
    manifest_without_charge(records, records.ledgers[SiloId(PartyId("silo-2"))].head)
    honour_new_manifest(records)
    caught(records, 11, "was not begun before the silo took part")


def test_a_silo_that_reserved_only_afterwards_is_caught() -> None:
    records = honest_records(1)
    manifest_without_charge(records, records.ledgers[SiloId(PartyId("silo-2"))].entries[0].head)
    honour_new_manifest(records)
    caught(records, 11, "was not begun before the silo took part")


@pytest.mark.parametrize(
    "head", [EMPTY, Head(seq=0, hash=Digest("ab" * 32)), Head(seq=99, hash=Digest("ab" * 32))]
)
def test_a_manifest_that_names_a_head_from_nowhere_is_caught(head: Head) -> None:
    records = honest_records(1)
    manifest_without_charge(records, head)
    honour_new_manifest(records)
    caught(records, 11, "dp/ledger/silo-2.jsonl")


def charge_anew(records: Records, change: Callable[[list[tuple[str, Any]]], None]) -> None:
    rewritten(records, "silo-2", change)
    manifest_without_charge(records, records.ledgers[SiloId(PartyId("silo-2"))].head)
    honour_new_manifest(records)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (
            "event",
            {"mechanism": "poisson_gaussian", "sample_rate": "0.1", "noise_multiplier": "9.0", "steps": 2},
        ),
        (
            "event",
            {"mechanism": "poisson_gaussian", "sample_rate": "0.1", "noise_multiplier": "4.0", "steps": 1},
        ),
        (
            "event",
            {"mechanism": "poisson_gaussian", "sample_rate": "0.01", "noise_multiplier": "4.0", "steps": 2},
        ),
        ("delta", "1e-09"),
        ("job", "other"),
        ("dataset", "other"),
        (
            "fallback",
            {"mechanism": "poisson_gaussian", "sample_rate": "0.1", "noise_multiplier": "4.0", "steps": 2},
        ),
    ],
)
def test_a_reservation_below_the_jobs_terms_is_caught(field: str, value: Any) -> None:
    records = honest_records(1)
    honest = records.pack()
    charge_anew(records, lambda entries: entries[1][1].update({field: value}))
    caught(records, 11, "it is not at the job's terms", records.pack_over(honest))


def test_a_round_reserved_twice_is_caught() -> None:
    records = honest_records(1)
    honest = records.pack()
    charge_anew(records, lambda entries: entries.insert(2, entries[1]))
    caught(records, 11, "a round of it was reserved before", records.pack_over(honest))


def test_a_ledger_of_another_unit_is_caught() -> None:
    records = honest_records(1)
    charge_anew(records, lambda entries: entries[0][1].update(unit="record"))
    caught(records, 11, "another dataset or unit")


def test_a_ledger_that_comes_to_compose_jobs_in_another_way_is_caught() -> None:
    records = honest_records(1)
    honest = records.pack()
    opening = records.ledgers[SiloId(PartyId("silo-2"))].entries[0].body
    cheaper = {**opening, "filter": {"order": 8, "fallback_order": 4}}
    charge_anew(records, lambda entries: entries.append(("open", cheaper)))
    caught(records, 11, "it changes how jobs compose", records.pack_over(honest))


def test_a_ledger_that_does_not_begin_with_its_caps_is_caught() -> None:
    records = honest_records(1)
    honest = records.pack()
    charge_anew(records, lambda entries: entries.insert(0, entries.pop(2)))
    caught(records, 11, "expected the ledger to begin with an open entry", records.pack_over(honest))


def test_spending_above_the_silos_own_caps_is_caught() -> None:
    records = honest_records(1)
    caps = {"round": "1.0", "job": "0.1", "lifetime": "8.0", "period": None, "fallback": None}
    charge_anew(records, lambda entries: entries[0][1].update(epsilon=caps))
    caught(records, 12, "silo-2: above its caps")


def test_a_manifest_for_another_model_is_caught() -> None:
    records = honest_records(1)
    signed_anew(records, "manifests", "silo-2", "manifest", ShareManifest, model=Digest("ab" * 32))
    honour_new_manifest(records)
    caught(records, 8, "manifest of silo-2")


def test_a_silo_that_was_not_invited_is_no_survivor() -> None:
    records = started()
    cohort = records.plan(1).cohort
    records.add_round(1, cohort=cohort[:3])
    plan = records.plan(1, cohort=cohort[:3])
    stray = records.federation.share(plan, "silo-4").envelope
    records.rounds[0]["manifests"]["silo-4"] = stray
    caught(records, 8, "manifest of silo-4: it was not invited")


# --- the researcher ---


def test_a_job_bound_to_another_charter_is_refused_before_a_pack_is_made() -> None:
    records = honest_records(1)
    other = Federation()
    records.federation.officers = other.officers
    records.federation.endorsed_charter = other.endorsed_charter
    with pytest.raises(SealsumError, match="context"):
        records.pack()
