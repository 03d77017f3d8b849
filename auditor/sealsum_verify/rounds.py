"""Checks 7 to 9: each round ran on its job's terms, opened one sum at most, and led to the next model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from sealsum_verify.encoding import demand, digest_of, same
from sealsum_verify.messages import Json, Message, Roster, open_envelope, peek, read_document

_PART_ELEMENTS = (8 << 20) // 4


@dataclass(frozen=True)
class Job:
    """The researcher's signed request."""

    envelope: Json
    terms: Json
    digest: str


@dataclass(frozen=True)
class Offer:
    """A round's verified terms; ``document`` is the whole file, whose other messages are not believed yet."""

    entry: str
    document: Json
    plan: Json
    context: str
    log_head: Json

    @property
    def servers(self) -> list[str]:
        """The plan's share servers, in its order."""
        return [slot["server"] for slot in self.plan["servers"]]


@dataclass(frozen=True)
class Round:
    """A round whose messages have been checked against one another."""

    offer: Offer
    manifests: Mapping[str, Message]
    result: Json


def read_offers(files: Mapping[str, bytes], roster: Roster, job: Job) -> list[Offer]:
    """(7) Each round was offered on the job's terms:

    (a) the aggregator signed the offer, under a context that is the digest of the plan itself; (b) the
    offer carries this very job; (c) what the plan copies from charter and job equals them; (d) cohort and
    servers are the roster's, with its keys; (e) round numbers name their files, and no session repeats.
    """
    names = [name for name in files if name.startswith("rounds/")]
    offers = [_read_offer(files[name], name, roster, job) for name in names]
    offers.sort(key=lambda offer: int(offer.plan["round"]))
    sessions: set[str] = set()
    for offer in offers:
        # (e)
        number, session = offer.plan["round"], offer.plan["session"]
        demand(offer.entry == f"rounds/{number:04d}.json", offer.entry, f"it holds round {number}")
        demand(1 <= number <= job.terms["rounds"], offer.entry, f"the job has {job.terms['rounds']} rounds")
        demand(session not in sessions, offer.entry, "its session has been used before")
        sessions.add(session)
    return offers


def _read_offer(raw: bytes, entry: str, roster: Roster, job: Job) -> Offer:
    document = read_document(raw, "round", entry)
    envelope = document["offer"]
    key = roster.key(envelope["sender"], "aggregator", entry)
    # (a)
    context = digest_of("sealsum/ctx/v1", peek(envelope, "offer", entry)["plan"])
    offer = open_envelope(envelope, "offer", context, key, entry).body
    plan, terms = offer["plan"], job.terms
    # (b)
    demand(same(offer["job"], job.envelope), entry, "the offer carries another job")
    # (c)
    copied = {
        field: terms[field] for field in ("job", "rounds", "scheme", "training", "dp", "vector", "validity")
    } | {
        "protocol": "sealsum/1",
        "federation": roster.charter["federation"],
        "charter": roster.digest,
        "roster_epoch": roster.charter["epoch"],
        "policy": roster.charter["policy"],
        "job_digest": job.digest,
        "architecture": digest_of("sealsum/architecture/v1", terms["model"]),
        "parameters": sum(prod(tensor["shape"]) for tensor in terms["model"]["layout"]),
        "deadline_s": terms["round_deadline_s"],
    }
    for field, expected in copied.items():
        demand(same(plan[field], expected), entry, f"plan.{field} is not what charter and job say")
    least = max(2, terms["min_silos"])
    demand(plan["min_survivors"] >= least, entry, f"plan.min_survivors: expected at least {least}")
    # (d)
    silos = [member["silo"] for member in plan["cohort"]]
    demand(silos == sorted(set(silos)), entry, "plan.cohort: expected distinct silos, sorted")
    for member in plan["cohort"]:
        key = roster.key(member["silo"], "silo", entry)
        demand(member["verify_key"] == key, entry, f"plan.cohort: {member['silo']} has another key")
    servers = roster.of_role("share_server")
    slots = [{"server": name, "verify_key": roster.members[name]["verify_key"]} for name in servers]
    known = len(slots) > 1 and same(plan["servers"], slots)
    demand(known, entry, "plan.servers are not the roster's, two or more")
    return Offer(entry, document, plan, context, offer["log_head"])


def read_round(offer: Offer, roster: Roster) -> Round:
    """(8) A round's messages agree, and one sum was opened or none:

    (a) manifests and refusals are signed by silos of the cohort under the round's context, on the plan's
    terms; (b) what share servers sent is signed, one of a kind each; (c) the aggregator signed the result,
    which has a model only if a sum was opened; (d) then each server signed the same survivors: the silos
    whose one manifest every server accepted, at least the minimum; (e) each opened its share of that sum.
    """
    entry, document, plan = offer.entry, offer.document, offer.plan
    # (a)
    manifests = _from_silos(offer, "manifest", document["manifests"])
    _from_silos(offer, "refusal", document["refusals"])
    for silo, manifest in manifests.items():
        asked = (plan["model"], plan["parameters"] + 1, _part_count(plan), sorted(offer.servers[1:]))
        body = manifest.body
        given = (body["model"], body["vector_length"], len(body["parts"]), sorted(body["seeds"]))
        demand(given == asked, entry, f"manifest of {silo}: model, length, parts or seeds are not the plan's")
    # (b)
    accepted = _from_servers(offer, roster, "accepted", document["accepted"])
    survivors = _from_servers(offer, roster, "survivors", document["survivors"])
    openings = _from_servers(offer, roster, "opening", document["openings"])
    # (c)
    key = roster.key(document["result"]["sender"], "aggregator", entry)
    result = open_envelope(document["result"], "result", offer.context, key, entry).body
    opened = result["outcome"] == "opened"
    demand(result["model_in"] == plan["model"], entry, "result.model_in is not the plan's model")
    demand(result["openings"] in (0, 1), entry, "result.openings: a round opens one sum at most")
    # An aborted round may have opened a sum: its aggregator died before it could publish a model.
    demand(result["openings"] == 1 or not opened, entry, "result: opened without an opening")
    demand((result["model_out"] is not None) == opened, entry, "result: a model comes with an opened sum")
    if result["openings"] == 0:
        return Round(offer, manifests, result)
    for kind, sent in (("accepted", accepted), ("survivors", survivors), ("opening", openings)):
        demand(set(sent) == set(offer.servers), entry, f"{kind}: expected one from each share server")
    # (d)
    sets = [message.body["manifests"] for message in accepted.values()]
    common = sorted(silo for silo in sets[0] if all(one.get(silo) == sets[0][silo] for one in sets))
    digests = [sets[0][silo] for silo in common]
    demand(len(common) >= plan["min_survivors"], entry, f"fewer than {plan['min_survivors']} survivors")
    for silo, digest in zip(common, digests, strict=True):
        known = silo in manifests and manifests[silo].digest == digest
        demand(known, entry, f"survivor {silo}: the manifest that the servers accepted is missing")
    summed = {"survivors": common, "manifests": digests}
    for server, message in survivors.items():
        agreed = same({field: message.body[field] for field in summed}, summed)
        demand(agreed, entry, f"survivors of {server}: not the set that all servers accepted")
    demand(not opened or result["survivors"] == common, entry, "result.survivors is not the set summed")
    # (e)
    share = (digest_of("sealsum/survivors/v1", summed), _part_count(plan))
    for server, message in openings.items():
        given_share = (message.body["survivors"], len(message.body["parts"]))
        demand(given_share == share, entry, f"opening of {server}: it is of another sum")
    return Round(offer, manifests, result)


def _from_silos(offer: Offer, kind: str, envelopes: Mapping[str, Json]) -> dict[str, Message]:
    invited = {member["silo"]: member["verify_key"] for member in offer.plan["cohort"]}
    messages: dict[str, Message] = {}
    for silo, envelope in envelopes.items():
        demand(silo in invited, offer.entry, f"{kind} of {silo}: it was not invited")
        messages[silo] = open_envelope(envelope, kind, offer.context, invited[silo], offer.entry)
        own = envelope["sender"] == silo == messages[silo].body["silo"]
        demand(own, offer.entry, f"{kind} of {silo}: it speaks for another silo")
    return messages


def _from_servers(offer: Offer, roster: Roster, kind: str, envelopes: Iterable[Json]) -> dict[str, Message]:
    messages: dict[str, Message] = {}
    for envelope in envelopes:
        server = envelope["sender"]
        demand(server not in messages, offer.entry, f"{kind} of {server}: there are two")
        key = roster.key(server, "share_server", offer.entry)
        messages[server] = open_envelope(envelope, kind, offer.context, key, offer.entry)
        demand(messages[server].body["server"] == server, offer.entry, f"{kind} of {server}: it is another's")
    return messages


def _part_count(plan: Json) -> int:
    return -(-(int(plan["parameters"]) + 1) // _PART_ELEMENTS)


def check_model_chain(rounds: Iterable[Round], job: Job) -> str:
    """(9) Models form one chain; returns the last one's digest:

    (a) no round follows a finished or failed job; (b) the first round starts from the job's initial
    model, each later one from the last published. That no context repeats follows from distinct sessions.
    """
    model, state = str(job.terms["initial_model"]), "running"
    for one in rounds:
        demand(state == "running", one.offer.entry, f"the job was {state} before this round")  # (a)
        start = one.offer.plan["model"]
        demand(start == model, one.offer.entry, "it does not start from the last published model")  # (b)
        model, state = one.result["model_out"] or model, one.result["job_state"]
    return model
