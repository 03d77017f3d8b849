"""Check 7: each round was offered on its job's terms, with the parties and parameters of its scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from sealsum_verify.drawn import check_cohort
from sealsum_verify.encoding import demand, digest_of, same
from sealsum_verify.messages import Json, Roster, open_envelope, peek, read_document
from sealsum_verify.scheme_terms import check_scheme
from sealsum_verify.sent import count_sent


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
    aggregator: str
    log: Json

    @property
    def servers(self) -> list[str]:
        """The plan's share servers, in its order."""
        return [slot["server"] for slot in self.plan["servers"]]

    @property
    def invited(self) -> Mapping[str, str]:
        """The cohort's silos, and the keys they sign with."""
        return {member["silo"]: member["verify_key"] for member in self.plan["cohort"]}

    @property
    def protocol(self) -> str:
        """Whose messages the round has: the scheme's, or those of additive with proofs of validity."""
        return "validity" if self.plan["validity"] else str(self.plan["scheme"])


def read_offers(files: Mapping[str, bytes], roster: Roster, job: Job) -> list[Offer]:
    """(7) Each round was offered on the job's terms:

    (a) the aggregator signed the offer, under a context that is the digest of the plan itself; (b) the
    offer carries this very job; (c) what the plan copies from charter and job equals them; (d) the
    cohort are silos of the roster, with its keys; (e) round numbers name their files, and no session
    repeats; (f) it has the servers, threshold and parameters of its scheme: ``check_scheme``; (g) where
    the job asks for a part of the silos, they were drawn: ``check_cohort``.
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
    as_signed = ("job", "rounds", "scheme", "training", "dp", "vector", "validity")
    copied = {field: terms[field] for field in as_signed}
    copied |= {field: roster.charter[field] for field in ("federation", "policy")}
    copied |= {"charter": roster.digest, "roster_epoch": roster.charter["epoch"], "job_digest": job.digest}
    copied |= {"protocol": "sealsum/1", "deadline_s": terms["round_deadline_s"]}
    copied |= {
        "architecture": digest_of("sealsum/architecture/v1", terms["model"]),
        "parameters": sum(prod(tensor["shape"]) for tensor in terms["model"]["layout"]),
    }
    copied |= {field: terms.get(field) for field in ("query", "further")}
    copied["sent"] = count_sent(terms, int(plan["round"]))
    for field, expected in copied.items():
        demand(same(plan.get(field), expected), entry, f"plan.{field} is not what charter and job say")
    least = max(2, terms["min_silos"])
    demand(plan["min_survivors"] >= least, entry, f"plan.min_survivors: expected at least {least}")
    # (d)
    silos = [member["silo"] for member in plan["cohort"]]
    demand(silos == sorted(set(silos)), entry, "plan.cohort: expected distinct silos, sorted")
    for member in plan["cohort"]:
        key = roster.key(member["silo"], "silo", entry)
        demand(member["verify_key"] == key, entry, f"plan.cohort: {member['silo']} has another key")
    # (f)
    check_scheme(plan, roster, entry)
    # (g)
    check_cohort(plan, terms, roster, entry)
    return Offer(entry, document, plan, context, envelope["sender"], offer["log"])
