"""Check 13: by what silos handed over, as many people there as policies ask for approved this very job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sealsum_verify.encoding import canonical, check_signature, demand, same, sha256
from sealsum_verify.messages import Json, Roster, read_document
from sealsum_verify.offers import Job
from sealsum_verify.records import Logs, Spending
from sealsum_verify.rounds import Round
from sealsum_verify.threat_model import Approvals, approvals_asked

CARD = "data/card.json"
DECIDED = ("job_approved", "job_rejected", "job_auto_approved")
MAY_REJECT = ("site_admin", "data_steward", "dpo", "security")


@dataclass(frozen=True)
class _Bench:
    """Before whom a job comes at one silo: what the policy asks for, the people there, and who asks them."""

    asked: Approvals
    silo: Json
    people: Json
    researcher: Json

    def objection(self, where: str, said: Json, moment: str) -> str:
        """Why an approval, though genuine, counts for nothing at a moment; empty if it counts."""
        if said["expires_at"] <= moment:
            return f"{where} expired at {said['expires_at']}"
        if said["role"] == "rule":
            return "" if self.asked.automatic else f"{where} is a rule's, which the policy refuses"
        if said["role"] not in self.asked.roles:
            return f"{where} is by {said['role']}, whom the policy does not ask"
        person = self.people[said["by"]]
        asks = said["by"] == self.researcher["id"] or person["verify_key"] == self.researcher["verify_key"]
        colleague = self.silo["legal_entity"] == self.researcher["legal_entity"]
        asks = asks or (colleague and "researcher" in person["roles"])
        return f"{where} is by {said['by']}, who asked for the job" if asks else ""


def check_decisions(
    files: Mapping[str, bytes],
    roster: Roster,
    job: Job,
    rounds: Sequence[Round],
    logs: Logs,
    spending: Mapping[str, Spending],
) -> dict[str, int]:
    """(13) Decisions are whole and about this job; returns how many approved it, by silo:

    (a) a silo's document is its own, about this job, and the silo signed it with the ledger that this pack
    holds; (b) each decision is signed by the key it names, and about this job at this silo; (c) that
    key is the silo's for the person who decided, in a role of hers and of nobody else, or the silo's own
    where a rule of its decided; (d) whoever took part in a round had the approvals that the federation's
    policy and the silo's own ask for together by then: ``_check_standing``; (e) the silo's log is in the pack
    as the document names it, and no decision about this job in it is missing here; (f) the dataset card says
    what silos have registered the dataset for.
    """
    of_all, log = approvals_asked(roster.charter["policy_text"]), next(iter(logs.values()))
    offered = {e["body"].get("context"): e["at"] for e in log.entries if e["kind"] == "round_offered"}
    approved: dict[str, int] = {}
    registered: dict[str, Json] = {}
    for file in (name for name in files if name.startswith("silos/")):
        silo = file.removeprefix("silos/").removesuffix(".json")
        key = roster.key(silo, "silo", file)
        signed = read_document(files[file], "handover", file)
        # (a)
        body, ledger = signed["body"], files.get(f"dp/ledger/{silo}.jsonl", b"")
        whole = canonical({**body, "ledger": ledger.decode(errors="replace").split("\n")[:-1]})
        message = b"sealsum/handover/v1\x00" + bytes.fromhex(sha256(whole))
        check_signature(key, message, signed["signature"], file, "document")
        about = {"federation": roster.charter["federation"], "silo": silo, "job_digest": job.digest}
        about |= {field: job.terms[field] for field in ("job", "dataset")}
        for field, value in about.items():
            demand(body[field] == value, file, f"{field} is not this job's at this silo")
        people = body["people"]
        keys = {person["verify_key"] for person in people.values()}
        demand(len(keys) == len(people), file, "two people share one key")  # (c)
        said = {}
        for place, decision in enumerate(body["approvals"]):
            said[f"decision {place}"] = _decision(decision, people, about, key, f"{file} decision {place}")
        # (d)
        own = approvals_asked(body["threat_model"]["text"], f"{file} threat_model")
        asked = of_all.together(own, f"{file} threat_model")
        bench = _Bench(asked, roster.members[silo], people, roster.members[job.envelope["sender"]])
        begun = spending[silo].begun if silo in spending else {}
        for one in (one for one in rounds if silo in one.manifests):
            at = offered[one.offer.context]
            _check_standing(bench, said, at, begun.get(one.offer.context), f"{file} at {one.offer.entry}")
        approved[silo] = len({one["by"] for one in said.values() if one["decision"] == "approve"})
        # (e)
        demand(silo in logs, file, f"log/{silo}.jsonl is missing")
        size = len(logs[silo].entries)
        named = body["log_head"]["size"] == size and logs[silo].holds(body["log_head"])
        demand(named, file, f"it was handed over with another log than {logs[silo].file}")
        shown = {sha256(decision["body"].encode()) for decision in body["approvals"]}
        for entry in logs[silo].entries:
            missing = entry["kind"] in DECIDED and entry["body"].get("job_digest") == job.digest
            missing = missing and entry["body"].get("decision") not in shown
            demand(not missing, file, f"it lacks the decision of {logs[silo].file} entry {entry['seq']}")
        if body["registered"] is not None:
            registered[silo] = body["registered"]
    # (f)
    card = read_document(files[CARD], "card", CARD)
    demand(same(card["registered"], registered), CARD, "registered: not what silos have signed")
    return approved


def _decision(decision: Json, people: Json, about: Json, silo_key: str, where: str) -> Json:
    """What was decided; (b) and (c) of ``check_decisions``."""
    # (b)
    raw = decision["body"].encode()
    message = b"sealsum/approval/v1\x00" + bytes.fromhex(sha256(raw))
    check_signature(decision["verify_key"], message, decision["signature"], where, "decision")
    said: Json = read_document(raw, "decision", where)
    for field, value in about.items():
        demand(said[field] == value, where, f"{field} is not this job's at this silo")
    # (c)
    person = people.get(said["by"], {"roles": [], "verify_key": ""})
    known = decision["verify_key"] == person["verify_key"] and said["role"] in person["roles"]
    by_rule = said["role"] == "rule" and decision["verify_key"] == silo_key
    demand(known or by_rule, where, f"the key is not the silo's for {said['by']} as {said['role']}")
    demand(said["decision"] in ("approve", "reject"), where, "neither approved nor rejected")
    return said


def _check_standing(
    bench: _Bench, said: Mapping[str, Json], offered: str, begun: str | None, where: str
) -> None:
    """The silo's people had approved the job when a round of it began there:

    (1) a silo asks its people after the aggregator logged the offer and before its own ledger logs the begin;
    their clocks differ, so what counted by either of them counts. Without DP there is no begin, and an
    approval after the offer may have come before the round. (2) Of each author, the latest counts. (3) A
    rejection ends it. (4) A rule of the silo's suffices where the policy lets rules decide; else it takes n
    people, in as many roles, each one that the policy names, none of whom asked for the job.
    """
    # (1)
    early, late = min(offered, begun or offered)[:19] + "Z", begun and begun[:19] + "Z"
    latest: dict[tuple[bool, str], tuple[str, Json]] = {}
    for place, one in said.items():
        approves = one["decision"] == "approve"
        in_time = late is None or one["at"] <= late if approves else one["at"] < early
        if in_time:
            latest[one["role"] == "rule", one["by"]] = place, one  # (2)
    counted, notes = set(), []
    for place, one in latest.values():
        # (3)
        rejected = one["decision"] == "reject" and one["role"] in MAY_REJECT
        demand(not rejected, where, f"it took part after {one['by']} had rejected the job ({place})")
        objection = bench.objection(place, one, early)
        if one["decision"] == "approve" and not objection:
            counted.add(one["role"])
        notes += [objection] if objection else []
    # (4)
    count, needed = len(counted - {"rule"}), bench.asked.n
    few = f"it took part with {count} of the {needed} approvals that the policy asks for"
    demand("rule" in counted or count >= needed, where, "; ".join([few, *notes]))
