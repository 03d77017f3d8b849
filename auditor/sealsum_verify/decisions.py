"""Check 13: what silos handed over says that people there decided on this very job, each with her own key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sealsum_verify.encoding import canonical, check_signature, demand, sha256
from sealsum_verify.messages import Json, Roster, read_document
from sealsum_verify.offers import Job
from sealsum_verify.rounds import Round
from sealsum_verify.threat_model import approvals_needed


def check_decisions(
    files: Mapping[str, bytes], roster: Roster, job: Job, rounds: Sequence[Round]
) -> dict[str, int]:
    """(13) Decisions are whole and about this job; returns how many approved it, by silo:

    (a) a silo's document is its own, about this job, and the silo signed it with the ledger that this pack
    holds; (b) each decision is signed by the key it names, and about this job at this silo; (c) that
    key is the silo's for the person who decided, in a role of hers, or the silo's own where a rule of its
    decided; (d) whoever took part had approved: people in as many roles as the threat model asks for, or a
    rule where it allows that.
    """
    approved: dict[str, int] = {}
    needed, automatic = approvals_needed(roster.charter["policy_text"])
    took_part = {silo for one in rounds for silo in one.manifests}
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
        yes: set[tuple[str, str]] = set()
        for place, decision in enumerate(body["approvals"]):
            where = f"{file} decision {place}"
            yes |= _approver(decision, body["people"], about, key, where)
        # (d)
        roles = {role for _, role in yes}
        enough = len(roles - {"rule"}) >= needed or (automatic and "rule" in roles)
        people = "nobody there approved" if not yes else f"approvals there are not those of {needed} roles"
        demand(enough or silo not in took_part, file, f"it took part, and {people}")
        approved[silo] = len({by for by, _ in yes})
    return approved


def _approver(decision: Json, people: Json, about: Json, silo_key: str, where: str) -> set[tuple[str, str]]:
    """Who approved and in which role, or nobody; (b) and (c) of ``check_decisions``."""
    # (b)
    raw = decision["body"].encode()
    message = b"sealsum/approval/v1\x00" + bytes.fromhex(sha256(raw))
    check_signature(decision["verify_key"], message, decision["signature"], where, "decision")
    said = read_document(raw, "decision", where)
    for field, value in about.items():
        demand(said[field] == value, where, f"{field} is not this job's at this silo")
    # (c)
    person = people.get(said["by"], {"roles": [], "verify_key": ""})
    known = decision["verify_key"] == person["verify_key"] and said["role"] in person["roles"]
    by_rule = said["role"] == "rule" and decision["verify_key"] == silo_key
    demand(known or by_rule, where, f"the key is not the silo's for {said['by']} as {said['role']}")
    demand(said["decision"] in ("approve", "reject"), where, "neither approved nor rejected")
    return {(said["by"], said["role"])} if said["decision"] == "approve" else set()
