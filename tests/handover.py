"""What a silo hands over of a job, for evidence packs: people with their keys, and what they decided."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from privacy.approval import JobApproval, sign_approval
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import Entry
from privacy.identity import SigningKey
from privacy.ids import PartyId, SiloId
from privacy.people import Person
from silo_agent.approvals.handover import HandedLog, HandedOver, OwnPolicy, Registered, sign_handover
from tests.evidence_pack import AT, Records
from tests.log_book import LogBook

REGISTERED = {"purposes": ["test"], "legal_basis": "consent", "min_records": 50}


def decision(
    records: Records, silo: str, by: str, role: str, key: SigningKey, /, **changes: Any
) -> dict[str, Any]:
    """One signed decision; ``changes`` are what a dishonest person writes into it."""
    body = canonical_bytes(
        {
            "federation": records.federation.name,
            "silo": silo,
            "job": records.job.job,
            "job_digest": records.job.digest,
            "algorithm": records.job.training.algorithm,
            "dataset": records.job.dataset,
            "decision": "approve",
            "by": by,
            "role": role,
            "at": AT,
            "expires_at": "2026-06-02T03:04:05Z",
            "reason": "",
        }
        | changes
    )
    signed = key.sign(b"sealsum/approval/v1\x00" + bytes.fromhex(sha256_hex(body)))
    return {"body": body.decode(), "verify_key": key.verify_key, "signature": signed.hex()}


def handover(
    records: Records,
    silo: str,
    approvals: list[dict[str, Any]],
    people: Mapping[str, SigningKey],
    key: SigningKey | None = None,
    roles: tuple[str, ...] = ("data_steward", "dpo"),
    log: LogBook | None = None,
    **changes: Any,
) -> bytes:
    """The file of ``sealsum silo export``; ``key`` is another's where somebody pretends to be the silo.

    ``changes`` are what the silo writes otherwise into its document.
    """
    log = log or own_log(records, silo, approvals)
    body = canonical_bytes(
        {
            "handover": "sealsum-handover/1",
            "federation": records.federation.name,
            "silo": silo,
            "job": records.job.job,
            "job_digest": records.job.digest,
            "dataset": records.job.dataset,
            "ledger": records.ledgers[silo].lines().decode().split("\n")[:-1],  # type: ignore[index]  # an id
            "people": {
                name: {"roles": list(roles), "verify_key": key.verify_key} for name, key in people.items()
            },
            "approvals": approvals,
            "registered": REGISTERED,
            "threat_model": {"text": records.federation.charter.policy_text, "parents": []},
            "log_head": log.head.model_dump(mode="json"),
        }
        | changes
    )
    signing = key or records.federation.key(silo)
    signed = signing.sign(b"sealsum/handover/v1\x00" + bytes.fromhex(sha256_hex(body)))
    return canonical_bytes(
        {
            "body": body.decode(),
            "verify_key": signing.verify_key,
            "signature": signed.hex(),
            "log": handed_log(log).model_dump(mode="json"),
        }
    )


def own_log(records: Records, silo: str, approvals: Sequence[Mapping[str, Any]] = ()) -> LogBook:
    """The silo's own log, as its agent and its people's commands write it."""
    log = LogBook(records.federation.name, silo, records.federation.key(silo))
    log.add("started", version="test")
    for entry in records.ledgers[SiloId(PartyId(silo))].entries:
        if entry.kind == "reserve":
            log.add("reserved", **_reserved(entry))
    for one in approvals:
        said = json.loads(one["body"])
        kind = "job_rejected" if said["decision"] == "reject" else "job_approved"
        named = {"job": said["job"], "job_digest": said["job_digest"]}
        log.add(kind, decision=sha256_hex(one["body"].encode()), by=said["by"], **named)
    return log


def _reserved(entry: Entry) -> dict[str, Any]:
    block = {name: entry.body[name] for name in ("job", "job_digest", "first_round", "last_round")}
    return {**block, "ledger_head": entry.head.model_dump(mode="json")}


def handed_log(log: LogBook) -> HandedLog:
    """As it goes along with a silo's document."""
    lines = tuple(log.lines().decode().splitlines())
    return HandedLog(lines=lines, checkpoint=log.checkpoint().note())


def honest_handover(records: Records, silo: str) -> bytes:
    """One data steward, who approved: by the code that silos run."""
    key, name = SigningKey.generate(), SiloId(PartyId(silo))
    approval = JobApproval(
        federation=records.federation.name,
        silo=name,
        job=records.job.job,
        job_digest=records.job.digest,
        algorithm=records.job.training.algorithm,
        architecture="ab" * 32,
        dataset=records.job.dataset,
        registration="cd" * 32,
        data_schema=records.job.data.digest,
        recipient="silos",
        noise_multiplier=1.0,
        epsilon_job=1.0,
        delta=1e-5,
        rounds_max=records.job.rounds,
        decision="approve",
        by="ada",
        role="data_steward",
        at=AT,
        expires_at="2026-06-02T03:04:05Z",
    )
    signed = sign_approval(approval, key)
    log = own_log(records, silo, [signed.model_dump(mode="json")])
    document = HandedOver(
        federation=records.federation.name,
        silo=name,
        job=records.job.job,
        job_digest=records.job.digest,
        dataset=records.job.dataset,
        ledger=tuple(records.ledgers[name].lines().decode().split("\n")[:-1]),
        people={"ada": Person(roles=("data_steward",), verify_key=key.verify_key)},
        approvals=(signed,),
        registered=Registered(purposes=("test",), legal_basis="consent", min_records=50),
        threat_model=OwnPolicy(text=records.federation.charter.policy_text, parents=()),
        log_head=log.head,
    )
    return canonical_bytes(sign_handover(document, handed_log(log), records.federation.key(silo)))
