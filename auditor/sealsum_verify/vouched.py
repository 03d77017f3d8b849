"""Check 15: results of attacks that members vouch for are on this job and on the model that it ended with."""

from __future__ import annotations

from collections.abc import Mapping

from sealsum_verify.encoding import demand
from sealsum_verify.messages import Roster, open_envelope, read_document
from sealsum_verify.offers import Job

ENTRY = "tests/vouched.json"


def check_vouched(files: Mapping[str, bytes], roster: Roster, job: Job, model: str) -> dict[str, str]:
    """(15) Returns, by who vouches, the suite and whether all came out as they must:

    (a) a silo, or a researcher who did not ask for the job, signed each, once; (b) each is of this job and
    model.
    """
    found: dict[str, str] = {}
    for envelope in read_document(files[ENTRY], "[envelope]", ENTRY) if ENTRY in files else ():
        sender = envelope["sender"]
        # (a)
        key = roster.key(sender, "any", ENTRY)
        may = sender in roster.of_role("silo") + roster.of_role("researcher")
        own = sender == job.envelope["sender"]
        demand(may and not own and sender not in found, ENTRY, f"{sender} may not vouch, or does so twice")
        said = open_envelope(envelope, "attack_result", job.digest, key, ENTRY).body
        # (b)
        of = (said["job"], said["job_digest"], said["model"]) == (job.terms["job"], job.digest, model)
        demand(of, ENTRY, f"{sender} vouches for another job or model")
        good = all(one["verdict"] in ("consistent", "succeeds") for one in said["outcomes"])
        found[sender] = f"{said['suite']} {'as claimed' if good else 'NOT AS CLAIMED'} at {said['at']}"
    return found
