"""What silos handed over of a job, on its way into a pack: checked to be theirs, its ledger put beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from privacy.canonical import canonical_bytes, parse_canonical, sha256_hex
from privacy.errors import Conflict, MalformedMessage
from privacy.identity import verify_signature
from privacy.ids import PartyId, SiloId
from privacy.roster import Charter
from sealsum.served_log import ServedLog

_LABEL: Final = b"sealsum/handover/v1\x00"
_MOST_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class HandedOver:
    """One silo's part of a pack."""

    silo: SiloId
    ledger: bytes
    """One entry a line."""
    document: bytes
    """``silos/<silo>.json``: all else that the silo signed, and its signature over both."""
    log: ServedLog
    """The silo's own; its checkpoint signs it, so fields of it can be redacted."""
    registered: Mapping[str, Any] | None
    """What the silo says that its dataset is for."""


def read_handover(raw: bytes, charter: Charter) -> HandedOver:
    """Read the file that ``sealsum silo export`` wrote.

    Raises:
        MalformedMessage: it is none. NotAllowed: its silo is not in the roster. SignatureRejected: that silo
            did not sign it.
    """
    if len(raw) > _MOST_BYTES:
        raise MalformedMessage(f"handover: expected at most {_MOST_BYTES} bytes, got {len(raw)}")
    try:
        signed = json.loads(raw)
        text = signed["body"].encode()
        body: dict[str, Any] = parse_canonical(text, _MOST_BYTES)
        silo, ledger, signature = (
            str(body["silo"]),
            list(body.pop("ledger")),
            bytes.fromhex(signed["signature"]),
        )
        lines = "".join(line + "\n" for line in ledger).encode()
        records = "".join(line + "\n" for line in signed["log"]["lines"]).encode()
        witnessed = signed["log"].get("witnessed")
        log = ServedLog(
            records, str(signed["log"]["checkpoint"]), None if witnessed is None else str(witnessed)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedMessage(
            f"handover: expected a file of sealsum silo export, got something else ({type(error).__name__})"
        ) from error
    key = charter.member(PartyId(silo)).verify_key
    verify_signature(key, _LABEL + bytes.fromhex(sha256_hex(text)), signature)
    document = {"body": body, "verify_key": key, "signature": signature.hex()}
    name = SiloId(PartyId(silo))
    return HandedOver(name, lines, canonical_bytes(document), log, body.get("registered"))


def all_ledgers(ledgers: Mapping[SiloId, bytes], handed: Iterable[HandedOver]) -> dict[SiloId, bytes]:
    """Ledgers by silo, those that came alone and those that came with a handover.

    Raises:
        Conflict: two different ones of one silo.
    """
    found = dict(ledgers)
    for one in handed:
        if found.setdefault(one.silo, one.ledger) != one.ledger:
            raise Conflict(
                f"{one.silo}: expected one ledger, got two that differ; give its latest --silo alone"
            )
    return found
