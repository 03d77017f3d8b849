"""Where a ledger's entries can come back from: an export, a hand-over file, an evidence pack, plain lines.

Nothing of a file is believed but the entries that this silo's own key signed, linked from the first one on.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from privacy.canonical import canonical_bytes
from privacy.chain import Entry, parse_entry, verify_entries
from privacy.errors import ConfigurationError

_MAX_BYTES = 256 << 20
_ENCRYPTED = 1
"""Of an entry's flags (APPNOTE 4.4.4)."""
_WHAT = "a ledger export, an evidence pack, or the lines that sealsum silo ledger --json prints"


def read_copy(path: Path, origin: str, verify_key: str) -> tuple[Entry, ...]:
    """The entries of one ledger in a file, verified from the first.

    Raises:
        ConfigurationError: it cannot be read, or holds nothing of this ledger.
        LedgerDamaged: an entry does not verify under this silo's key.
    """
    try:
        if zipfile.is_zipfile(path):
            lines = _of_pack(path, origin)
        else:
            with path.open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
            lines = _of_text(path, raw)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (zipfile.BadZipFile, NotImplementedError, EOFError, UnicodeError) as error:
        raise ConfigurationError(f"{path}: expected {_WHAT}; the file is damaged") from error
    entries = [entry for entry in map(parse_entry, lines) if entry.origin == origin]
    if not entries:
        raise ConfigurationError(f"{path}: expected entries of {origin}, got none; give {_WHAT}")
    return tuple(verify_entries(entries, origin, verify_key, may_lose=True))


def _of_pack(path: Path, origin: str) -> Iterable[bytes]:
    silo = origin.split("/")[-2]
    name = f"dp/ledger/{silo}.jsonl"
    with zipfile.ZipFile(path) as pack:
        if name not in pack.namelist():
            raise ConfigurationError(f"{path}: expected {name} in the evidence pack, got none")
        entry = pack.getinfo(name)
        if entry.file_size > _MAX_BYTES:
            raise ConfigurationError(f"{path}: {name}: expected at most {_MAX_BYTES} bytes")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & _ENCRYPTED:
            raise ConfigurationError(f"{path}: {name}: expected it stored plainly, as evidence packs have it")
        return pack.read(entry).splitlines()


def _of_text(path: Path, raw: bytes) -> Iterable[bytes]:
    if len(raw) > _MAX_BYTES:
        raise ConfigurationError(f"{path}: expected at most {_MAX_BYTES} bytes")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.splitlines()  # one document a line, or nothing that parses as an entry
    return [_line(path, one) for one in _listed(path, found)]


def _listed(path: Path, found: Any) -> list[Any]:
    """The entries in an export (``entries``), in a hand-over file (``ledger``), or one entry by itself."""
    if isinstance(found, dict) and "origin" in found and "seq" in found:
        return [found]
    if isinstance(found, dict) and isinstance(found.get("body"), str):
        try:
            found = json.loads(found["body"])  # a signed document: what it says is checked entry by entry
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{path}: expected {_WHAT}") from error
    for name in ("entries", "ledger"):
        if isinstance(found, dict) and isinstance(found.get(name), list):
            return list(found[name])
    raise ConfigurationError(f"{path}: expected {_WHAT}")


def _line(path: Path, one: Any) -> bytes:
    try:
        if isinstance(one, str):
            return one.encode()
        return canonical_bytes(Entry.model_validate(one))
    except ValueError as error:  # pydantic's too
        raise ConfigurationError(f"{path}: expected {_WHAT}") from error
