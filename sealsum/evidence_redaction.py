"""Takes things out of an evidence pack so that every proof that is left still holds, and lists what it took.

A field of a log's records goes by its commitment, which the log's tree was built over. A silo's document with
the names of people goes as a whole, and so do
names in its log. What the verifier needs to follow a round cannot go. Knows no disk.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from privacy.canonical import canonical_bytes, sha256_hex
from privacy.errors import ConfigurationError
from privacy.transparency.leaf import FOLLOWED_BY, parse_record

ENTRY: Final = "REDACTIONS.json"
CARD: Final = "data/card.json"
NEEDED: Final = FOLLOWED_BY
_FIELD = re.compile(r"log:[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class Wish:
    """What to take out: fields of all logs, and silos' documents."""

    fields: frozenset[str]
    silos: frozenset[str]


def wished(words: Collection[str]) -> Wish:
    """Read ``log:FIELD`` and ``silo:NAME``.

    Raises:
        ConfigurationError: neither, or a field that proofs need.
    """
    fields, silos = set(), set()
    for word in words:
        kind, _, name = word.partition(":")
        if kind == "silo" and name:
            silos.add(name)
        elif _FIELD.fullmatch(word):
            fields.add(name)
        else:
            raise ConfigurationError(
                "--field: expected log:FIELD such as log:reason, or silo:NAME such as silo:north, got "
                f"{word!r}"
            )
    if fields & NEEDED:
        raise ConfigurationError(
            f"--field: log:{min(fields & NEEDED)} cannot be redacted, the verifier follows rounds by it; "
            f"needed are {', '.join(sorted(NEEDED))}"
        )
    return Wish(frozenset(fields), frozenset(silos))


def redacted_before(files: Mapping[str, bytes], reason: str) -> list[dict[str, object]]:
    """What logs came without, as the list of redactions says it."""
    found: Counter[tuple[str, str]] = Counter()
    for name, raw in files.items():
        if name.startswith("log/") and name.endswith(".jsonl"):
            for record in map(parse_record, raw.splitlines()):
                found.update((name, field) for field in record.fields.keys() - record.body.keys())
    return [_row(name, field, count, reason, None) for (name, field), count in sorted(found.items())]


def redacted(files: Mapping[str, bytes], wish: Wish, reason: str) -> dict[str, bytes]:
    """The files without what is wished away, and the longer list of redactions.

    Raises:
        ConfigurationError: something of it is not in the pack.
    """
    left = dict(files)
    listed = list(json.loads(files[ENTRY])["redactions"])
    done: Counter[tuple[str, str]] = Counter()
    logs = [name for name in files if name.startswith("log/") and name.endswith(".jsonl")]
    for name in sorted(logs) if wish.fields else ():
        left[name] = _without(files[name], wish.fields, name, done)
    missing = wish.fields - {field for _, field in done}
    for silo in sorted(wish.silos):  # who decided is in the silo's log too
        if (name := f"log/{silo}.jsonl") in left:
            left[name] = _without(left[name], frozenset({"by"}), name, done)
    if missing:
        raise ConfigurationError(f"--field: no log has a field {min(missing)} that can still be read")
    counts = {(one["entry"], one["field"]): one for one in listed}
    for (name, field), count in sorted(done.items()):
        before = counts.get((name, field), {"count": 0})["count"]
        counts[name, field] = _row(name, field, before + count, reason, None)
    for silo in sorted(wish.silos):
        name = f"silos/{silo}.json"
        if name not in left:
            raise ConfigurationError(f"--field: silo:{silo}: expected {name} in the pack, it is not there")
        counts[name, "*"] = _row(name, "*", 1, reason, sha256_hex(left.pop(name)))
        card = json.loads(left[CARD])
        card["registered"].pop(silo, None)
        left[CARD] = canonical_bytes(card)
    left[ENTRY] = canonical_bytes({"redactions": [counts[place] for place in sorted(counts)]})
    return left


def _without(raw: bytes, fields: frozenset[str], name: str, done: Counter[tuple[str, str]]) -> bytes:
    lines = []
    for line in raw.splitlines():
        record = parse_record(line)
        gone = fields & record.body.keys()
        done.update((name, field) for field in gone)
        keep = record.body.keys() - gone
        lines.append((record.redact(keep).line() if gone else line) + b"\n")
    return b"".join(lines)


def _row(entry: str, field: str, count: int, reason: str, digest: str | None) -> dict[str, object]:
    return {"entry": entry, "field": field, "count": count, "reason": reason, "sha256": digest}
