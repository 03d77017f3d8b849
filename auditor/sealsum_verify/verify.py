"""The whole verification as a numbered list that a reviewer can tick off; knows no files and no screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from sealsum_verify.archive import read_archive
from sealsum_verify.claim import ENTRY as CLAIM
from sealsum_verify.claim import Bracket, check_claim
from sealsum_verify.decisions import check_decisions
from sealsum_verify.encoding import Fault, check_signature, demand, digest_of, same, sha256
from sealsum_verify.governance import check_charter
from sealsum_verify.messages import Json, Roster, open_envelope, read_document
from sealsum_verify.offers import Job, read_offers
from sealsum_verify.records import check_ledgers, check_logs
from sealsum_verify.redactions import check_redactions
from sealsum_verify.rounds import check_model_chain, read_round
from sealsum_verify.shapes import check_shape
from sealsum_verify.vouched import check_vouched

P = ParamSpec("P")
T = TypeVar("T")

CHECKS = (
    "the archive is canonical: no byte can change unnoticed",
    "the manifest lists exactly these files, with their digests",
    "enough of the federation's officers endorsed the charter: members and their keys",
    "a member of the federation signed the pack",
    "the policy is the one that the charter names",
    "a researcher signed the job, and the dataset card describes it",
    "each round was offered on the job's terms to the roster's parties",
    "each round's messages agree, and one sum at most was opened",
    "each model follows from the one before",
    "logs are whole, witnessed, and agree with the rounds",
    "silos' ledgers are whole and charged each round before it ran",
    "the claimed ε is what the ledgers cost, by this program's own accountant",
    "as many people as the policy asks for approved this very job, where silos handed that over",
    "what was taken out of the pack is listed",
    "attacks that members vouch for were tried on this job and its last model",
)
_OF_THE_FEDERATION = {"manifest.json", "manifest.sig", "who/charter.json", "who/officers.json"}
_OF_THE_JOB = {"policy/policy.yaml", "job/job.json", "data/card.json", "dp/claim.json"}
_FOR_PEOPLE = {"software/versions.json", "software/sbom.cdx.json", "report.html", "report.pdf", "VERIFY.md"}
FIXED_FILES = frozenset(
    _OF_THE_FEDERATION | _OF_THE_JOB | _FOR_PEOPLE | {"dp/accountant-replay.json", "REDACTIONS.json"}
)
SELF_REPORTED = frozenset({"tests/attack.json"})
"""What whoever exported the pack may add: hashed and signed like the rest, and believed by no check."""
_UNLISTED = {"manifest.json", "manifest.sig"}
_NAME = r"[a-z0-9][a-z0-9._-]*"
_OTHER_FILES = re.compile(
    rf"who/previous\.json|tests/vouched\.json|rounds/[0-9]{{4,}}\.json|dp/ledger/{_NAME}\.jsonl|log/{_NAME}\.(jsonl|leaves|checkpoint|witnessed)|silos/{_NAME}\.json"
)


@dataclass
class Report:
    """What was checked, in order, and what came of it."""

    officers: str | None
    """Digest of the officers' document that all trust rests on."""
    pinned: bool
    passed: int = 0
    fault: Fault | None = None
    summary: dict[str, object] = field(default_factory=dict)
    epsilon: Mapping[str, Bracket] = field(default_factory=dict)
    self_reported: tuple[str, ...] = ()
    """Entries that are there, unaltered, and whose content nobody has checked."""
    withheld: tuple[str, ...] = ()
    """What was taken out: nobody has verified it here."""

    @property
    def verified(self) -> bool:
        """Whether every check has passed."""
        return self.fault is None and self.passed == len(CHECKS)

    def check(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the next check; each rests on what those before it established."""
        value = step(*args, **kwargs)
        self.passed += 1
        return value


def verify_pack(raw: bytes, officers: str | None = None) -> Report:
    """Verify a pack by the checks in ``CHECKS``; stops at the first fault, since later ones rest on it.

    ``officers`` is the digest of the federation's officers as the auditor knows it, of whatever version.
    Without it the pack's own are used, which proves only that the pack is consistent under them.
    """
    report = Report(officers, pinned=officers is not None)
    try:
        _run(report, raw)
    except Fault as fault:
        report.fault = fault
    except RecursionError:
        report.fault = Fault("archive", "a document is nested too deeply")
    return report


def _run(report: Report, raw: bytes) -> None:
    files = report.check(read_archive, raw)  # 1
    manifest = report.check(_check_manifest, files)  # 2
    report.self_reported = tuple(sorted(SELF_REPORTED & files.keys()))
    roster, report.officers = report.check(check_charter, files, report.officers)  # 3
    report.check(_check_signer, files, manifest, roster)  # 4
    report.check(_check_policy, files, roster)  # 5
    job = report.check(_check_job, files, manifest, roster)  # 6
    offers = report.check(read_offers, files, roster, job)  # 7
    rounds = report.check(lambda: [read_round(offer, roster) for offer in offers])  # 8
    model = report.check(check_model_chain, rounds, job)  # 9
    logs = report.check(check_logs, files, roster, job, rounds)  # 10
    spending = report.check(check_ledgers, files, roster, job, rounds, logs)  # 11
    claim = read_document(files[CLAIM], "claim", CLAIM)
    report.epsilon = report.check(check_claim, claim, files, job, spending, offers, roster)  # 12
    approved = report.check(check_decisions, files, roster, job, rounds, logs, spending)  # 13
    report.withheld = report.check(check_redactions, files)  # 14
    vouched = report.check(check_vouched, files, roster, job, model)  # 15
    report.summary = {
        "federation": manifest["federation"],
        "job": manifest["job"],
        "signer": manifest["signer"],
        "policy": roster.charter["policy"],
        "scheme": job.terms["scheme"],
        "state": rounds[-1].result["job_state"] if rounds else "waiting",
        "rounds": len(rounds),
        "openings": sum(one.result["openings"] for one in rounds),
        "model": model,
        "delta": (job.terms["dp"] or {}).get("delta"),
        "approved": approved,
        "attacked": vouched,
        "unwitnessed": [party for party in logs if f"log/{party}.witnessed" not in files],
    }


def _check_manifest(files: Mapping[str, bytes]) -> Json:
    """(2) Exactly the files of the documented layout, each with the digest that the manifest gives."""
    for name in sorted(FIXED_FILES):
        demand(name in files, name, "it is missing")
    manifest: Json = read_document(files["manifest.json"], "manifest.json", "manifest.json")
    demand(manifest["pack"] == "sealsum-evidence/1", "manifest.json", "expected pack sealsum-evidence/1")
    listed = manifest["files"]
    for name in sorted(set(files) - _UNLISTED):
        known = name in FIXED_FILES | SELF_REPORTED or _OTHER_FILES.fullmatch(name) is not None
        demand(known, name, "the documented layout has no such file")
        demand(listed.get(name) == sha256(files[name]), name, "the manifest does not list it so")
    for name in sorted(listed):
        demand(name in files and name not in _UNLISTED, name, "the manifest lists it, the pack lacks it")
    return manifest


def _check_signer(files: Mapping[str, bytes], manifest: Json, roster: Roster) -> None:
    """(4) A member signed the manifest, hence every file, for this federation."""
    own = manifest["federation"] == roster.charter["federation"]
    demand(own, "manifest.json", "it is of another federation")
    signature = files["manifest.sig"].decode(errors="replace")
    check_shape(signature, "signature", "manifest.sig")
    key = roster.key(manifest["signer"], "any", "manifest.json")
    message = b"sealsum/pack/v1\x00" + files["manifest.json"]
    check_signature(key, message, signature, "manifest.sig", "manifest")


def _check_policy(files: Mapping[str, bytes], roster: Roster) -> None:
    """(5) The policy's text is the one the charter carries, and has the digest it names."""
    text, entry = files["policy/policy.yaml"], "policy/policy.yaml"
    digest = sha256(b"sealsum/policy/v1\x00" + text)
    carried = roster.charter["policy_text"].encode()
    demand(digest == roster.charter["policy"] and carried == text, entry, "it is not the charter's policy")


def _check_job(files: Mapping[str, bytes], manifest: Json, roster: Roster) -> Job:
    """(6) A researcher signed the job under this charter, and the dataset card says what the job says."""
    entry = "job/job.json"
    envelope = read_document(files[entry], "envelope", entry)
    key = roster.key(envelope["sender"], "researcher", entry)
    terms = open_envelope(envelope, "job", roster.digest, key, entry).body
    bound = (terms["charter"], terms["federation"]) == (roster.digest, roster.charter["federation"])
    demand(bound, entry, "it is bound to another charter")
    demand(terms["job"] == manifest["job"], "manifest.json", "it names another job")
    card = {
        "dataset": terms["dataset"],
        "purpose": terms["purpose"],
        "schema": digest_of("sealsum/data-schema/v1", terms["data"]),
        "columns": [feature["column"] for feature in terms["data"]["features"]],
        "label": terms["data"]["label"],
    }
    given = read_document(files["data/card.json"], "card", "data/card.json")
    # What silos registered it for is theirs to say: check 13.
    demand(same(given, card | {"registered": given["registered"]}), "data/card.json", "not what the job says")
    return Job(envelope, terms, digest_of("sealsum/job/v1", terms))
