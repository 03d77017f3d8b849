"""Checks 10 and 11: servers' logs and silos' ledgers are whole, and tell the same story as the rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sealsum_verify.encoding import demand, same
from sealsum_verify.messages import Chain, Json, Roster, read_chain
from sealsum_verify.offers import Job
from sealsum_verify.rounds import Round
from sealsum_verify.shapes import check_shape

Logs = Mapping[str, Chain]


@dataclass(frozen=True)
class Spending:
    """What a ledger says one job has cost, settled or not, and its silo's caps at the last reservation."""

    rounds: int
    steps: int
    epsilon_cap: str
    delta_cap: str


def check_logs(files: Mapping[str, bytes], roster: Roster, job: Job, rounds: Sequence[Round]) -> Logs:
    """(10) Servers' logs are whole and agree with the rounds; returns them, the aggregator's first:

    (a) each server has one, which verifies from its first entry with its key; (b) the head that an offer
    names lies in the aggregator's log, before the one entry that records this offer; (c) every round
    offered for this job, and every one that a share server admitted for it, is in the pack; (d) each sum
    was opened, and each share released, once or never, as the result says, and for the survivors shown;
    (e) the log names each published model, and the job's end if it ended.
    """
    # (a)
    parties = roster.of_role("aggregator") + roster.of_role("share_server")
    names = {party: f"log/{party}.jsonl" for party in parties}
    given = sorted(name for name in files if name.startswith("log/"))
    demand(given == sorted(names.values()), "log/", f"expected the logs of {', '.join(parties)}")
    origin = f"{roster.charter['federation']}/log/"
    chains = {
        party: read_chain(files[file], origin + party, roster.key(party, "any", file), file)
        for party, file in names.items()
    }
    log = chains[parties[0]]
    for one in rounds:
        entry, context, opened = one.offer.entry, one.offer.context, one.result["openings"]
        # (b)
        head = one.offer.log_head
        demand(log.holds(head), log.file, f"it does not hold the head that the offer of {entry} names")
        offered = [e["seq"] > head["seq"] for e in log.find("round_offered", "context", context)]
        demand(offered == [True], log.file, f"it does not offer {entry} once, behind that head")
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
    return chains


def check_ledgers(
    files: Mapping[str, bytes], roster: Roster, job: Job, rounds: Sequence[Round], logs: Logs
) -> dict[str, Spending]:
    """(11) Silos' ledgers are whole and charged each round before it ran; returns each silo's cost:

    (a) each verifies from its first entry with the silo's key; (b) it opens with the job's dataset and
    privacy unit; (c) no context is reserved twice; (d) each reservation for this job is for a round of
    the pack, at its terms, and saw the aggregator's log as it is; (e) each manifest's ledger head lies in
    the ledger, at or after the reservation of that round; (f) whoever's update a server accepted, summed
    or not, has reserved that round.
    """
    log = next(iter(logs.values()))
    spending: dict[str, Spending] = {}
    ledgers: dict[str, tuple[Chain, Mapping[str, int]]] = {}
    known = {one.offer.context: one for one in rounds}
    for file in (name for name in files if name.startswith("dp/ledger/")):
        silo = file.removeprefix("dp/ledger/").removesuffix(".jsonl")
        origin = f"{roster.charter['federation']}/ledger/{silo}/{job.terms['dataset']}"
        ledger = read_chain(files[file], origin, roster.key(silo, "silo", file), file)  # (a)
        reserved, spent = _replay(ledger, job, known, log)  # (b) to (d)
        ledgers[silo] = ledger, reserved
        if spent is not None:
            spending[silo] = spent
    # (e)
    for one in rounds if job.terms["dp"] else ():  # without DP there is nothing to reserve
        for silo, manifest in one.manifests.items():
            file, head = f"dp/ledger/{silo}.jsonl", manifest.body["ledger_head"]
            demand(silo in ledgers, file, "it is missing, and the silo took part")
            ledger, places = ledgers[silo]
            named = f"entry {head['seq']} as {one.offer.entry} names it"
            demand(ledger.holds(head), file, f"it lacks {named}")
            charged = places.get(one.offer.context, head["seq"] + 1) <= head["seq"]
            demand(charged, file, f"{one.offer.entry} was not reserved before the silo took part")
    # (f)
    taken = [e["body"] for chain in logs.values() for e in chain.entries if e["kind"] == "update_accepted"]
    for silo, context in ((body.get("silo"), body.get("context")) for body in taken if job.terms["dp"]):
        paid = context not in known or (silo in ledgers and context in ledgers[silo][1])
        demand(paid, f"dp/ledger/{silo}.jsonl", "a server accepted its update, and it reserved nothing")
    return spending


def _replay(
    ledger: Chain, job: Job, known: Mapping[str, Round], log: Chain
) -> tuple[dict[str, int], Spending | None]:
    """Where each context was reserved, and what the job cost."""
    reserved: dict[str, int] = {}
    spent: Spending | None = None
    caps: Json | None = None
    for entry in ledger.entries:
        where, body = f"{ledger.file} entry {entry['seq']}", entry["body"]
        # (b)
        if entry["kind"] == "open":
            check_shape(body, "ledger_open", where)
            unit = (job.terms["dp"] or body)["unit"]
            counted = (body["dataset"], body["unit"]) == (job.terms["dataset"], unit)
            demand(counted, where, "another dataset or unit")
            caps = body
        demand(caps is not None, where, "expected the ledger to begin with an open entry")
        if entry["kind"] != "reserve" or caps is None:
            continue
        check_shape(body, "reserve", where)
        # (c)
        demand(body["context"] not in reserved, where, "its context was reserved before")
        reserved[body["context"]] = entry["seq"]
        if body["job_digest"] == job.digest:
            # (d)
            demand(body["context"] in known, where, f"round {body['round']} was reserved, the pack lacks it")
            expected = _reservation(known[body["context"]], job, body)
            demand(same(body, expected), where, "it is not at the plan's terms")
            demand(log.holds(body["log_head"]), where, f"it saw a head that {log.file} does not hold")
            rounds, steps = (spent.rounds, spent.steps) if spent else (0, 0)
            steps += body["event"]["steps"]
            spent = Spending(rounds + 1, steps, caps["epsilon"]["job"], caps["delta_max"])
    return reserved, spent


def _reservation(one: Round, job: Job, body: Json) -> Json:
    """What a silo reserves for a round, but for the log head it saw."""
    plan, dp = one.offer.plan, job.terms["dp"] or {}
    event = {"mechanism": "poisson_gaussian", "steps": plan["training"]["local_steps"]}
    event |= {field: dp.get(field) for field in ("sample_rate", "noise_multiplier")}
    names = {"job": plan["job"], "job_digest": job.digest, "context": one.offer.context}
    terms = {"round": plan["round"], "event": event, "delta": dp.get("delta")}
    return names | terms | {"log_head": body["log_head"]}
