"""The charter before, shown so that a change of policy can be read: no other may stand in for it."""

from __future__ import annotations

import json
from typing import Any

from sealsum_verify.verify import verify_pack

from privacy.ids import PartyId, ServerId
from sealsum.evidence import build_pack
from tests.evidence_pack import AT, Records, edited, files_of, resigned
from tests.federation import Federation

ENTRY = "who/previous.json"


def test_the_charter_before_is_shown_and_is_the_one_that_this_one_replaced() -> None:
    federation = Federation()
    first = federation.endorsed_charter
    federation.charter = federation.next_charter()
    federation.endorsed_charter, federation.epoch = federation.endorse(federation.charter), 2
    records = Records(federation, federation.job_spec(rounds=1))
    records.add_round(1, job_state="finished")
    servers = {ServerId(PartyId(p)): c.served() for p, c in records.logs.items() if p != "aggregator"}
    books = {silo: ledger.lines() for silo, ledger in records.ledgers.items()}
    evidence = records.evidence() | {"previous": first.model_dump(mode="json")}
    pack = build_pack(evidence, servers, books, records.identity("researcher"), AT)
    report = verify_pack(pack, federation.officers.digest)
    assert report.verified, report.fault

    def stricter(document: Any) -> None:
        body = json.loads(document["body"])
        body["policy_text"] += "\n"
        document["body"] = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    fault = verify_pack(resigned(edited(files_of(pack), ENTRY, stricter), records)).fault
    assert fault is not None
    assert (fault.entry, fault.sentence) == (ENTRY, "it is not the charter that this one replaced")
