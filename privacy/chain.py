"""A hash-chained, signed record of what happened: silos' ledgers and servers' logs have this one form.

Each entry names its chain (``origin``), its place (``seq``), its predecessor (``prev``) and is signed.
An altered, dropped, reordered or inserted entry breaks a link; a truncated tail is caught by comparing
with a head somebody else has seen. Values in, values out: storage belongs to the callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, ValidationError

from privacy.canonical import Frozen, digest_of, parse_canonical
from privacy.errors import LedgerDamaged, MalformedMessage, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import Digest, HexDigest, PartyName

GENESIS = Digest("0" * 64)
WRITTEN_OFF: Final = "written_off"
"""The one kind of entry that may follow another than the entry before it: see ``WrittenOff``."""
MAX_ENTRY_BYTES = 1 << 20
_SIGN_LABEL = b"sealsum/chain-signature/v1\x00"


class Head(Frozen):
    """The last entry of a chain, as others witness it: ``seq`` −1 is the empty chain."""

    seq: Annotated[int, Field(ge=-1)]
    hash: HexDigest


EMPTY = Head(seq=-1, hash=GENESIS)


class WrittenOff(Frozen):
    """Body of ``written_off``: entries that others have seen are lost for good; the chain goes on behind
    the furthest of them. It says so itself, under its owner's signature, so that no gap passes as whole."""

    after: Head
    """The last entry that is left."""
    lost: Annotated[tuple[Head, ...], Field(min_length=1)]
    """What others have seen and nobody has any more; the entry follows the last, which is the furthest."""
    witnesses: Annotated[tuple[PartyName, ...], Field(min_length=1)]
    """Who has seen them."""

    @property
    def seq(self) -> int:
        """Place of the entry: behind all that was ever signed, as far as is known."""
        return max(self.after.seq, self.lost[-1].seq) + 1

    def covers(self, head: Head) -> bool:
        """Whether an entry that somebody has seen is among those given up."""
        return head in self.lost or self.after.seq < head.seq < self.seq


class Entry(Frozen):
    """One event. ``at`` is RFC 3339 UTC; ``body`` holds no floats (reals are decimal strings)."""

    origin: Annotated[str, StringConstraints(pattern=r"^[a-z0-9/._-]{1,200}$")]
    seq: Annotated[int, Field(ge=0)]
    prev: HexDigest
    at: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$")]
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    body: dict[str, Any]
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]

    @property
    def hash(self) -> Digest:
        """SHA-256 over the entry without its signature."""
        return digest_of("sealsum/chain/v1", self.model_dump(mode="json", exclude={"signature"}))

    @property
    def head(self) -> Head:
        """This entry as a head."""
        return Head(seq=self.seq, hash=self.hash)


def next_entry(head: Head, origin: str, at: str, kind: str, body: dict[str, Any], key: SigningKey) -> Entry:
    """Build and sign the entry that follows ``head``."""
    return _signed(head.seq + 1, head.hash, origin, at, kind, body, key)


def write_off_entry(lost: WrittenOff, origin: str, at: str, key: SigningKey) -> Entry:
    """Build and sign the entry that gives up what is lost."""
    return _signed(lost.seq, lost.lost[-1].hash, origin, at, WRITTEN_OFF, lost.model_dump(mode="json"), key)


def _signed(
    seq: int, prev: Digest, origin: str, at: str, kind: str, body: dict[str, Any], key: SigningKey
) -> Entry:
    unsigned = {
        "origin": origin,
        "seq": seq,
        "prev": prev,
        "at": at,
        "kind": kind,
        "body": body,
    }
    digest = digest_of("sealsum/chain/v1", unsigned)
    signature = key.sign(_SIGN_LABEL + bytes.fromhex(digest)).hex()
    return Entry.model_validate({**unsigned, "signature": signature})


def parse_entry(line: bytes) -> Entry:
    """Read one stored entry.

    Raises:
        LedgerDamaged: not canonical JSON, or not an entry.
    """
    try:
        return Entry.model_validate(parse_canonical(line, MAX_ENTRY_BYTES))
    except (MalformedMessage, ValidationError) as error:
        raise LedgerDamaged(
            f"chain: expected an entry, got something else ({type(error).__name__})"
        ) from error


def written_off(entry: Entry) -> WrittenOff:
    """What an entry of kind ``written_off`` gives up.

    Raises:
        LedgerDamaged: its body is not one.
    """
    try:
        return WrittenOff.model_validate(entry.body)
    except ValidationError as error:
        raise LedgerDamaged(
            f"chain {entry.origin}: entry {entry.seq}: it does not say what is lost"
        ) from error


def verify_entries(
    entries: Iterable[Entry], origin: str, verify_key: str, after: Head = EMPTY, *, may_lose: bool = False
) -> Iterator[Entry]:
    """Yield each entry once its link and signature hold. ``may_lose``: entries may have been written off,
    which ledgers may and logs may not.

    Raises:
        LedgerDamaged: wrong chain, wrong place, wrong predecessor, or a signature that is not its owner's.
    """
    head = after
    for entry in entries:
        if entry.origin != origin:
            raise LedgerDamaged(f"chain {origin}: entry {entry.seq} belongs to chain {entry.origin}")
        seq, prev = head.seq + 1, head.hash
        if may_lose and entry.kind == WRITTEN_OFF:
            lost = written_off(entry)
            if lost.after != head:
                raise LedgerDamaged(f"chain {origin}: entry {entry.seq} gives up entries that are here")
            seq, prev = lost.seq, lost.lost[-1].hash
        if entry.seq != seq:
            raise LedgerDamaged(f"chain {origin}: expected entry {seq}, got entry {entry.seq}")
        if entry.prev != prev:
            raise LedgerDamaged(f"chain {origin}: entry {entry.seq} does not follow the entry before it")
        try:
            verify_signature(
                verify_key, _SIGN_LABEL + bytes.fromhex(entry.hash), bytes.fromhex(entry.signature)
            )
        except SignatureRejected as error:
            raise LedgerDamaged(f"chain {origin}: entry {entry.seq} is not signed by its owner") from error
        head = entry.head
        yield entry
