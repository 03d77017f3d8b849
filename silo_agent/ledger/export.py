"""A ledger as one file for an auditor or a forecast: its entries, the key they verify with, and a statement.

Whoever reads it verifies the entries and computes the statement anew. That the key is the silo's own is for
the reader to compare with the charter: a file cannot vouch for its own key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from privacy.canonical import Frozen
from privacy.chain import Entry, Head, verify_entries
from privacy.errors import ConfigurationError, LedgerDamaged
from privacy.ids import HexKey
from silo_agent.ledger.ledger import account_of
from silo_agent.ledger.spending import Account
from silo_agent.ledger.statement import dataset_statement

_MAX_BYTES = 256 << 20


class _Export(Frozen):
    ledger: Literal["sealsum-ledger/2"]
    origin: str
    verify_key: HexKey
    head: Head
    exported_at: datetime
    statement: dict[str, object]
    """For people; readers compute it from the entries."""
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class ReadLedger:
    """A ledger that verified, and whose it says it is."""

    origin: str
    verify_key: str
    head: Head
    account: Account


def exported(origin: str, verify_key: str, entries: tuple[Entry, ...], now: datetime) -> bytes:
    """The file's bytes: JSON for people to read and programs to verify."""
    account = account_of(entries)
    if account.opening is None:
        raise LedgerDamaged(f"{origin}: expected a ledger with an open entry, got none")
    document = {
        "ledger": "sealsum-ledger/2",
        "origin": origin,
        "verify_key": verify_key,
        "head": entries[-1].head.model_dump(mode="json"),
        "exported_at": now.isoformat(),
        "statement": dataset_statement(account.opening, account, now),
        "entries": [entry.model_dump(mode="json") for entry in entries],
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def read_export(path: Path) -> ReadLedger:
    """Verify an exported ledger.

    Raises:
        ConfigurationError: it cannot be read, or is no such file.
        LedgerDamaged: an entry does not verify, the head is not the last entry's, or entries break the rules.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    if len(raw) > _MAX_BYTES:
        raise ConfigurationError(f"{path}: expected at most {_MAX_BYTES} bytes")
    try:
        found = _Export.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in fault["loc"]) or "the file"
        raise ConfigurationError(
            f"{path}: expected what sealsum silo ledger --export wrote; {where}: {fault['msg']}"
        ) from error
    entries = tuple(verify_entries(found.entries, found.origin, found.verify_key, may_lose=True))
    if not entries or entries[-1].head != found.head:
        raise LedgerDamaged(f"{path}: its head is not that of its last entry; export it again")
    return ReadLedger(found.origin, found.verify_key, found.head, account_of(entries))
