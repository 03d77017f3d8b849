"""One record of a log: fields behind salted commitments, so that any of them can be redacted later.

The tree holds commitments only. Whoever has a field's salt and value can show that they are what was
logged; without the salt a commitment says nothing, not even about a value with two possibilities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, ValidationError

from privacy.canonical import Frozen, canonical_bytes, parse_canonical
from privacy.errors import LedgerDamaged, MalformedMessage
from privacy.ids import HexDigest
from privacy.transparency.merkle import leaf_hash

SALT_BYTES: Final = 16
MAX_RECORD_BYTES: Final = 1 << 20
_FIELD_LABEL: Final = b"sealsum/log-field/v1\x00"

FieldName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Timestamp = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$")]


class Disclosed(Frozen):
    """A field that can be read."""

    salt: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] = Field(repr=False)
    value: Any


class Redacted(Frozen):
    """A field of which only the commitment is left."""

    digest: HexDigest


FOLLOWED_BY: Final = frozenset(
    {"context", "decision", "digest", "job", "job_digest", "ledger_head", "model", "root", "round", "silo"}
    | {"size", "state", "survivors"}
)
"""Fields by which verifiers hold logs and rounds against each other: nobody may take them out of a log."""


class Record(Frozen):
    """One event. ``at`` is RFC 3339 UTC; values hold no floats (reals are decimal strings)."""

    seq: Annotated[int, Field(ge=0)]
    at: Timestamp
    kind: Kind
    fields: dict[FieldName, Disclosed | Redacted]

    def line(self) -> bytes:
        """The record as it is stored and handed on: canonical JSON, no line end."""
        return canonical_bytes(self)

    def leaf(self, origin: str) -> bytes:
        """What the tree of the log ``origin`` holds: the same whether fields are disclosed or redacted."""
        commitments = {
            name: commitment(name, bytes.fromhex(field.salt), field.value)
            if isinstance(field, Disclosed)
            else str(field.digest)
            for name, field in self.fields.items()
        }
        return canonical_bytes(
            {"at": self.at, "fields": commitments, "kind": self.kind, "origin": origin, "seq": self.seq}
        )

    def leaf_hash(self, origin: str) -> bytes:
        """SHA-256 over 0x00 and the leaf."""
        return leaf_hash(self.leaf(origin))

    @property
    def body(self) -> dict[str, Any]:
        """Every field that is disclosed, by name."""
        return {name: one.value for name, one in self.fields.items() if isinstance(one, Disclosed)}

    def redact(self, keep: Collection[str] = ()) -> Record:
        """The same record, of which only the fields in ``keep`` can be read. Every proof still holds."""
        return self.model_copy(
            update={
                "fields": {
                    name: Redacted(digest=commitment(name, bytes.fromhex(one.salt), one.value))
                    if isinstance(one, Disclosed) and name not in keep
                    else one
                    for name, one in self.fields.items()
                }
            }
        )


def commitment(name: str, salt: bytes, value: Any) -> str:
    """SHA-256(label ‖ 0x00 ‖ salt, 16 bytes ‖ canonical ``{"name", "value"}``) as hex."""
    hashed = hashlib.sha256(_FIELD_LABEL + salt + canonical_bytes({"name": name, "value": value}))
    return hashed.hexdigest()


def new_record(seq: int, at: str, kind: str, body: Mapping[str, Any], salts: bytes) -> Record:
    """A record whose fields are all disclosed.

    ``salts`` are 16 fresh bytes of the operating system's generator for each field.

    Raises:
        ValueError: too few salts, or a name or value that has no place in a record.
    """
    if len(salts) != SALT_BYTES * len(body):
        raise ValueError(f"salts: expected {SALT_BYTES} bytes for each of {len(body)} fields")
    fields = {
        name: {"salt": salts[SALT_BYTES * place : SALT_BYTES * (place + 1)].hex(), "value": value}
        for place, (name, value) in enumerate(body.items())
    }
    return Record.model_validate({"seq": seq, "at": at, "kind": kind, "fields": fields})


def parse_record(line: bytes) -> Record:
    """Read one stored line.

    Raises:
        LedgerDamaged: not canonical JSON, or not a record.
    """
    try:
        return Record.model_validate(parse_canonical(line, MAX_RECORD_BYTES))
    except (MalformedMessage, ValidationError) as error:
        raise LedgerDamaged(f"log: expected a record, got something else ({type(error).__name__})") from error


def records_in_order(lines: Iterable[bytes], origin: str, first: int = 0) -> Iterator[Record]:
    """Every line as a record, each in its place from ``first`` on.

    Raises:
        LedgerDamaged: not a record, or not the next one.
    """
    for place, line in enumerate(lines, first):
        record = parse_record(line)
        if record.seq != place:
            raise LedgerDamaged(f"log {origin}: expected entry {place}, got entry {record.seq}")
        yield record
