"""Checks 10 and 11: servers' logs and silos' ledgers are whole, and tell the same story as the rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sealsum_verify.encoding import demand, same
from sealsum_verify.logs import Log, check_witnessed, read_logs, read_note
from sealsum_verify.messages import Chain, Json, Roster, read_chain
from sealsum_verify.offers import Job
from sealsum_verify.rounds import Round
from sealsum_verify.shapes import check_shape
from sealsum_verify.threat_model import witnesses_needed

Logs = Mapping[str, Log]
_NO_BLOCK: Json = {"first_round": 0, "last_round": 0}


@dataclass(frozen=True)
class Spending:
    """What a ledger says one job has cost, begun or not, and its silo's caps at the last reservation."""

    rounds: int
    steps: int
    begun: Mapping[str, str]
    """When each of its rounds began there, by context."""
    fallback: str | None
    """Noise multiplier of the silo's own noise; none where that is all the noise there is."""
    caps: Json
    blocks: tuple[Json, ...] = ()
    """Its reservations: the entry's number and time, and what it reserved."""


def servers(roster: Roster) -> list[str]:
    """Whose logs every pack has, the aggregator first."""
    return roster.of_role("aggregator") + roster.of_role("share_server")


def check_logs(files: Mapping[str, bytes], roster: Roster, job: Job, rounds: Sequence[Round]) -> Logs:
    """(10) Servers' logs are whole and agree with the rounds; returns them, the aggregator's first:

    (a) each server has one, whose checkpoint over all of it the server signed; (b) the checkpoint of an offer
    lies in the aggregator's log, before the one entry that records this offer; (c) every round
    offered for this job, and every one that a share server admitted for it, is in the pack; (d) each sum
    was opened, and each share released, once or never, as the result says, and for the survivors shown;
    (e) the log names each published model, and the job's end if it ended; (f) what was shown as witnessed,
    in an offer or at the end, enough silos cosigned (a silo's log: one server), and the log continues it;
    (g) a silo that took part had been shown a witnessed checkpoint no older than its last but one, unless it
    had not cosigned two yet;
    (h) a silo's own log, where it was handed over, continues each head of it that the aggregator was shown
    from the job's first offer to its end.
    """
    # (a)
    parties = servers(roster)
    every = read_logs(files, roster, parties)
    chains, log = {party: every[party] for party in parties}, every[parties[0]]
    enough = witnesses_needed(roster.charter["policy_text"])
    seen: dict[str, list[int]] = {}
    # (f)
    for party, chain in every.items():
        file, least = f"log/{party}.witnessed", enough if party in chains else 1
        if file in files:
            check_witnessed(chain, files[file].decode(errors="replace"), party, roster, least, file)
    for one in rounds:
        entry, context, opened = one.offer.entry, one.offer.context, one.result["openings"]
        # (b)
        head = read_note(one.offer.log["checkpoint"], parties[0], roster, entry)
        held = log.holds({"size": head.size, "root": head.root})
        demand(held, log.file, f"it does not hold the head that the offer of {entry} names")
        offered = [e["seq"] >= head.size for e in log.find("round_offered", "context", context)]
        demand(offered == [True], log.file, f"it does not offer {entry} once, behind that head")
        # (f)
        shown, witnessed = one.offer.log["witnessed"], -1
        if shown is not None:
            witnessed = check_witnessed(log, shown, parties[0], roster, enough, entry).size
        # (g)
        for silo in one.manifests:
            sizes = seen.setdefault(silo, [])
            late = len(sizes) > 1 and witnessed < sizes[-2]
            demand(not late, entry, f"{silo} took part without a checkpoint that others had witnessed")
            sizes.append(head.size)
        # (d)
        sums = [e["body"].get("digest") for e in log.find("sum_opened", "context", context)]
        counted = f"{entry} has {opened} openings, the log {len(sums)}"
        demand(len(sums) == opened, log.file, counted)
        demand(one.summed is None or sums == [one.summed.digest], log.file, f"{entry}: it opened another sum")
        for server in one.offer.servers:
            file, found = chains[server].file, chains[server].find("share_released", "context", context)
            demand(opened <= len(found) <= 1, file, f"{entry}: it released {len(found)} shares")
            released = [e["body"].get("survivors") for e in found]
            whole = one.summed is None or released == [one.summed.digest]
            demand(whole, file, f"{entry}: it released a share of another sum")
        # (e)
        published = [e["body"].get("model") for e in log.find("model_published", "context", context)]
        expected = [one.result["model_out"]] if one.result["model_out"] else []
        demand(published == expected, log.file, f"it has another model of {entry}")
    # (c)
    known = {one.offer.context for one in rounds}
    for chain in chains.values():
        kind, says = ("round_offered", "offers") if chain is log else ("round_admitted", "admits")
        for begun in chain.find(kind, "job", job.terms["job"]):
            listed = begun["body"].get("context") in known
            demand(listed, f"{chain.file} entry {begun['seq']}", f"it {says} a round that the pack lacks")
    # (e)
    ended = len(log.find("job_ended", "job", job.terms["job"]))
    expected_ends = sum(one.result["job_state"] != "running" for one in rounds)
    demand(ended >= expected_ends, log.file, "the job has ended, and the log does not say so")
    # (h)
    name, kinds = job.terms["job"], ("round_offered", "job_ended")
    span = [e["seq"] for kind in kinds for e in log.find(kind, "job", name)]
    for silo in every.keys() - chains.keys():
        for seen_log in log.find("silo_log_seen", "silo", silo):
            where = f"{log.file} entry {seen_log['seq']}"
            shown_head = {field: seen_log["body"].get(field) for field in ("size", "root")}
            check_shape(shown_head, "log_head", where)
            during = bool(span) and min(span) < seen_log["seq"] < max(span)
            held = not during or every[silo].holds(shown_head)
            demand(held, every[silo].file, f"it does not continue the head in {where}")
    return every


def check_ledgers(
    files: Mapping[str, bytes], roster: Roster, job: Job, rounds: Sequence[Round], logs: Logs
) -> dict[str, Spending]:
    """(11) Silos' ledgers are whole and charged each round before it ran; returns each silo's cost:

    (a) each verifies from its first entry with the silo's key; (b) it opens with the job's dataset and
    privacy unit, and how jobs compose never changes; (c) a job's blocks of rounds follow each other, so that
    none is reserved twice, and a round begins once, within the newest block; (d) each block reserved for this
    job is at its terms and of its rounds, each of its rounds that began is in the pack, and each saw the
    aggregator's log as it is; (e) each manifest's ledger head lies in the ledger, at or after the begin of
    that round; (f) whoever's update a server accepted, summed or not, has begun that round; (g) each
    reservation for this job that a silo's own log names lies in its ledger.
    """
    log = next(iter(logs.values()))
    spending: dict[str, Spending] = {}
    ledgers: dict[str, tuple[Chain, Mapping[str, int]]] = {}
    known = {one.offer.context: one for one in rounds}
    for file in (name for name in files if name.startswith("dp/ledger/")):
        silo = file.removeprefix("dp/ledger/").removesuffix(".jsonl")
        origin = f"{roster.charter['federation']}/ledger/{silo}/{job.terms['dataset']}"
        ledger = read_chain(files[file], origin, roster.key(silo, "silo", file), file, may_lose=True)  # (a)
        begun, spent = _replay(ledger, job, known, log)  # (b) to (d)
        ledgers[silo] = ledger, begun
        if spent is not None:
            spending[silo] = spent
    # (e)
    for one in rounds if job.terms["dp"] else ():  # without DP there is nothing to reserve
        for silo, manifest in one.manifests.items():
            file, head = f"dp/ledger/{silo}.jsonl", manifest.body["ledger_head"]
            demand(silo in ledgers, file, "it is missing, and the silo took part")
            ledger, places = ledgers[silo]
            named = f"entry {head['seq']} as {one.offer.entry} names it"
            gone = "; its silo wrote off entries, whose cost nobody can show" if ledger.written_off else ""
            demand(ledger.holds(head), file, f"it lacks {named}{gone}")
            charged = places.get(one.offer.context, head["seq"] + 1) <= head["seq"]
            demand(charged, file, f"{one.offer.entry} was not begun before the silo took part")
    # (f)
    entries = (e for server in servers(roster) for e in logs[server].entries)
    taken = [e["body"] for e in entries if e["kind"] == "update_accepted"]
    for silo, context in ((body.get("silo"), body.get("context")) for body in taken if job.terms["dp"]):
        paid = context not in known or (silo in ledgers and context in ledgers[silo][1])
        demand(paid, f"dp/ledger/{silo}.jsonl", "a server accepted its update, and it began nothing")
    # (g)
    for silo in logs.keys() & roster.of_role("silo"):
        for reserved in logs[silo].find("reserved", "job_digest", job.digest):
            where = f"{logs[silo].file} entry {reserved['seq']}"
            check_shape(reserved["body"].get("ledger_head"), "head", where)
            held = silo in ledgers and ledgers[silo][0].holds(reserved["body"]["ledger_head"])
            demand(held, f"dp/ledger/{silo}.jsonl", f"it lacks the reservation that {where} names")
    return spending


def _replay(
    ledger: Chain, job: Job, known: Mapping[str, Round], log: Log
) -> tuple[dict[str, int], Spending | None]:
    """Where each round began, by context, and what the job cost."""
    begun: dict[str, int] = {}
    blocks: dict[str, Json] = {}  # a job's newest
    reached: dict[str, int] = {}  # a job's last round that began
    spent: Spending | None = None
    caps: Json | None = None
    closed = False
    for entry in ledger.entries:
        where, body = f"{ledger.file} entry {entry['seq']}", entry["body"]
        # (b)
        if entry["kind"] == "open":
            check_shape(body, "ledger_open", where)
            unit = (job.terms["dp"] or body)["unit"]
            counted = (body["dataset"], body["unit"]) == (job.terms["dataset"], unit)
            demand(counted, where, "another dataset or unit")
            composed = caps is None or same(caps["filter"], body["filter"])
            demand(composed, where, "it changes how jobs compose, which its first entry fixed")
            caps = body
        closed = closed or entry["kind"] == "written_off"
        ended = closed and entry["kind"] not in ("open", "written_off")
        demand(not ended, where, "it follows a write-off, after which all of the budget counts as spent")
        if closed:
            continue
        demand(caps is not None, where, "expected the ledger to begin with an open entry")
        if caps is None or entry["kind"] not in ("reserve", "begin"):
            continue
        check_shape(body, entry["kind"], where)
        ours = body["job_digest"] == job.digest
        block, last = blocks.get(body["job_digest"], _NO_BLOCK), reached.get(body["job_digest"], 0)
        # (d)
        demand(not ours or log.holds(body["log_head"]), where, f"it saw a head that {log.file} does not hold")
        # (c)
        if entry["kind"] == "begin":
            number = body["round"]
            within = max(last + 1, block["first_round"]) <= number <= block["last_round"]
            demand(within, where, f"round {number} begins outside a reserved block, or a second time")
            demand(body["context"] not in begun, where, "its context has begun before")
            begun[body["context"]], reached[body["job_digest"]] = entry["seq"], number
            if ours and spent is not None:
                # (d)
                one = known.get(body["context"])
                demand(one is not None, where, f"round {number} began, and the pack lacks it")
                same_round = one is not None and one.offer.plan["round"] == number
                demand(same_round, where, "it is not at the plan's terms")
                spent = replace(spent, begun={**spent.begun, body["context"]: entry["at"]})
            continue
        demand(body["first_round"] > block["last_round"], where, "a round of it was reserved before")
        blocks[body["job_digest"]] = body
        if ours:
            # (d)
            demand(same(body, _reservation(job, body)), where, "it is not at the job's terms")
            rounds = body["last_round"] - body["first_round"] + 1
            demand(rounds > 0 and body["last_round"] <= job.terms["rounds"], where, "it has no such rounds")
            before = spent or Spending(0, 0, {}, None, caps)
            own = body["fallback"]
            spent = Spending(
                rounds=before.rounds + rounds,
                steps=before.steps + rounds * body["event"]["steps"],
                begun=before.begun,
                fallback=own and own["noise_multiplier"],
                caps=caps,
                blocks=(*before.blocks, {"entry": entry["seq"], "at": entry["at"]} | body),
            )
    return begun, spent


def charged_noise(dp: Json) -> str | None:
    """σ of a step as silos reserve it: the gradient's, or (σ₁⁻² + σ₂⁻²)^(−1/2) with metrics of its sample."""
    if dp.get("metrics") is None:
        return dp.get("noise_multiplier")
    # In doubles, by operations that IEEE 754 rounds correctly, so that it is the same number everywhere.
    first, second = float(dp["noise_multiplier"]), float(dp["metrics"]["noise_multiplier"])
    return repr(first * second / math.sqrt(first * first + second * second))


def _reservation(job: Job, body: Json) -> Json:
    """What a silo reserves for rounds of the job, but for which rounds, and the log head it saw."""
    dp = job.terms["dp"] or {}
    event = {"mechanism": "poisson_gaussian", "steps": job.terms["training"]["local_steps"]}
    event |= {"sample_rate": dp.get("sample_rate"), "noise_multiplier": charged_noise(dp)}
    own = None
    if dp.get("model") == "distributed":
        # σ/√shares as the silo computed it, in doubles: IEEE 754 rounds both operations correctly.
        share = float(event["noise_multiplier"]) / math.sqrt(dp["noise_shares"])
        own = event | {"noise_multiplier": repr(share)}
    names = {"job": job.terms["job"], "job_digest": job.digest, "dataset": job.terms["dataset"]}
    terms = {"event": event, "fallback": own, "delta": dp.get("delta")}
    return names | terms | {field: body[field] for field in ("first_round", "last_round", "log_head")}
