"""A log's records as events of the Open Cybersecurity Schema Framework (OCSF 1.3.0): one table, one mapping.

https://schema.ocsf.io/1.3.0. Every attribute that the classes require is there; what has no place in
OCSF, the record itself, goes whole under ``unmapped``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from privacy.canonical import canonical_bytes
from privacy.transparency.leaf import Record

OCSF_VERSION: Final = "1.3.0"

FINDING: Final = 2004
"""Detection Finding: somebody was refused, or something was not believed."""
LIFECYCLE: Final = 6002
"""Application Lifecycle."""
API: Final = 6003
"""API Activity."""
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
_START: Final = 3
_INFO, _LOW, _MEDIUM, _HIGH = 1, 2, 3, 4


@dataclass(frozen=True)
class Mapped:
    """What a kind of entry is in OCSF.

    Activities of FINDING: 1 create; of LIFECYCLE: 3 start; of API: 1 create, 2 read, 3 update, 4 delete.
    Severities: 1 informational, 2 low, 3 medium, 4 high.
    """

    class_uid: int
    activity_id: int
    severity_id: int
    title: str


OCSF: Final[Mapping[str, Mapped]] = {
    "started": Mapped(LIFECYCLE, _START, _INFO, "A party's process started"),
    "charter_taken": Mapped(API, _UPDATE, _LOW, "A charter was handed over"),
    "charter_in_force": Mapped(API, _UPDATE, _LOW, "A charter is in force"),
    "job_accepted": Mapped(API, _CREATE, _INFO, "A job was accepted"),
    "job_ended": Mapped(API, _UPDATE, _INFO, "A job ended"),
    "job_seen": Mapped(API, _READ, _INFO, "A silo was shown a job"),
    "job_approved": Mapped(API, _UPDATE, _LOW, "A person approved a job"),
    "job_rejected": Mapped(API, _UPDATE, _LOW, "A person rejected a job"),
    "job_auto_approved": Mapped(API, _UPDATE, _MEDIUM, "A silo's rule approved a job"),
    "silo_ready": Mapped(API, _UPDATE, _INFO, "A silo answered a job"),
    "he_key_taken": Mapped(API, _CREATE, _INFO, "A job's public key was taken"),
    "reserved": Mapped(API, _CREATE, _INFO, "Privacy budget was reserved"),
    "round_offered": Mapped(API, _CREATE, _INFO, "A round was offered"),
    "round_admitted": Mapped(API, _CREATE, _INFO, "A round was admitted"),
    "round_aborted": Mapped(API, _UPDATE, _LOW, "A round was aborted"),
    "round_refused": Mapped(FINDING, _CREATE, _MEDIUM, "A silo refused a round"),
    "silo_refused": Mapped(FINDING, _CREATE, _MEDIUM, "A silo refused a round"),
    "silo_revoked": Mapped(FINDING, _CREATE, _MEDIUM, "A revoked silo was left out"),
    "update_accepted": Mapped(API, _CREATE, _INFO, "A masked update was accepted"),
    "update_refused": Mapped(FINDING, _CREATE, _MEDIUM, "An update was refused"),
    "accepted_frozen": Mapped(API, _UPDATE, _INFO, "Accepted updates were fixed"),
    "proof_accepted": Mapped(API, _CREATE, _INFO, "A proof of validity was accepted"),
    "proofs_frozen": Mapped(API, _UPDATE, _INFO, "Proofs of validity were fixed"),
    "verdicts_signed": Mapped(API, _UPDATE, _INFO, "Verdicts on proofs were signed"),
    "coin_committed": Mapped(API, _CREATE, _INFO, "A coin was committed to"),
    "coin_revealed": Mapped(API, _READ, _INFO, "A coin was revealed"),
    "coin_settled": Mapped(API, _UPDATE, _INFO, "A coin was settled"),
    "survivors_signed": Mapped(API, _UPDATE, _INFO, "A survivor set was signed"),
    "cohort_cleared": Mapped(API, _UPDATE, _INFO, "A cohort passed the release gate"),
    "sum_opened": Mapped(API, _READ, _LOW, "The one opening of a round was used up"),
    "share_released": Mapped(API, _READ, _LOW, "A share of a sum was released"),
    "model_published": Mapped(API, _CREATE, _INFO, "A model was published"),
    "checkpoint_cosigned": Mapped(API, _CREATE, _INFO, "A silo cosigned a checkpoint"),
    "silo_log_seen": Mapped(API, _READ, _INFO, "A silo's log was witnessed"),
    "witness_refused": Mapped(FINDING, _CREATE, _HIGH, "Another party's log was not believed"),
    "request_refused": Mapped(FINDING, _CREATE, _MEDIUM, "A request was refused"),
    "token_issued": Mapped(API, _CREATE, _LOW, "An API token was issued"),
    "token_revoked": Mapped(API, _DELETE, _LOW, "An API token was revoked"),
    "drain_began": Mapped(API, _UPDATE, _MEDIUM, "An operator holds new work back"),
    "drain_ended": Mapped(API, _UPDATE, _LOW, "An operator lets new work begin again"),
    "job_held": Mapped(API, _CREATE, _LOW, "A job's evidence is under a legal hold"),
    "hold_released": Mapped(API, _DELETE, _MEDIUM, "A legal hold was ended"),
    "attacks_reported": Mapped(API, _CREATE, _LOW, "A member vouched for attacks on a job"),
    "job_expired": Mapped(API, _DELETE, _MEDIUM, "A job's evidence was deleted"),
    "sink_failed": Mapped(FINDING, _CREATE, _HIGH, "An audit sink takes nothing"),
    "sink_recovered": Mapped(API, _UPDATE, _LOW, "An audit sink takes entries again"),
}
"""Kind of entry → class, activity, severity and title, for every kind that a party logs."""
_UNKNOWN: Final = Mapped(API, 99, _MEDIUM, "An entry of a kind that this version does not know")
"""Of a log that a later version wrote; activity 99 is OCSF's "other"."""


def severity_of(kind: str) -> int:
    """OCSF's severity of a kind of entry, 1 to 4."""
    return OCSF.get(kind, _UNKNOWN).severity_id


def ocsf_event(record: Record, origin: str) -> dict[str, Any]:
    """The record of the log ``origin`` as one event."""
    mapped = OCSF.get(record.kind, _UNKNOWN)
    party = origin.rpartition("/")[2]
    product = {"name": "Sealsum", "vendor_name": "Sealsum"}
    event: dict[str, Any] = {
        "activity_id": mapped.activity_id,
        "category_uid": mapped.class_uid // 1000,
        "class_uid": mapped.class_uid,
        "message": mapped.title,
        "metadata": {
            "event_code": record.kind,
            "log_name": origin,
            "original_time": record.at,
            "product": product,
            "sequence": record.seq,
            "uid": f"{origin}#{record.seq}",
            "version": OCSF_VERSION,
        },
        "severity_id": mapped.severity_id,
        "time": _milliseconds(record.at),
        "type_uid": 100 * mapped.class_uid + mapped.activity_id,
        "unmapped": {"record": record.model_dump(mode="json")},
    }
    if mapped.class_uid == FINDING:
        event["finding_info"] = {"title": mapped.title, "uid": f"{origin}#{record.seq}"}
    elif mapped.class_uid == LIFECYCLE:
        event["app"] = {**product, "uid": party}
    else:
        event["actor"] = {"app_name": party}
        event["api"] = {"operation": record.kind, "service": {"name": "Sealsum"}}
        event["src_endpoint"] = {"name": party}
    return event


def ocsf_line(record: Record, origin: str) -> bytes:
    """The event as one line of canonical JSON, no line end."""
    return canonical_bytes(ocsf_event(record, origin))


def _milliseconds(at: str) -> int:
    moment = datetime.fromisoformat(at)
    return round(1000 * moment.timestamp())
