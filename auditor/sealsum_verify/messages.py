"""What parties signed: the roster that names their keys, their envelopes, and their hash chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sealsum_verify.encoding import check_signature, demand, digest_of, parse, sha256
from sealsum_verify.shapes import check_shape

Json = Mapping[str, Any]
NOTHING = "0" * 64
"""Hash before the first entry of a chain."""


@dataclass(frozen=True)
class Roster:
    """The charter, and its members by id."""

    digest: str
    charter: Json
    members: Mapping[str, Json]

    def key(self, party: str, role: str, entry: str) -> str:
        """Verify key of a member of that role (``any`` for any); anybody else is a fault on ``entry``."""
        demand(party in self.members, entry, f"{party} is not in the roster")
        member = self.members[party]
        demand(role in (member["role"], "any"), entry, f"{party}: expected {role}, got {member['role']}")
        return str(member["verify_key"])

    def of_role(self, role: str) -> list[str]:
        """Ids of all members of a role, sorted."""
        return sorted(name for name, member in self.members.items() if member["role"] == role)


@dataclass(frozen=True)
class Message:
    """A body whose signature, kind, context and form have been checked, and the SHA-256 of its bytes."""

    kind: str
    sender: str
    body: Json
    digest: str


@dataclass(frozen=True)
class Chain:
    """A verified hash chain, and the name of its file in the pack."""

    file: str
    entries: tuple[Json, ...]
    hashes: Mapping[int, str]
    """By place; the empty chain's is at −1."""
    written_off: int = 0
    """In a ledger: how many times entries were given up as lost."""

    def holds(self, head: Json) -> bool:
        """Whether a head that somebody witnessed lies in this chain."""
        return bool(self.hashes.get(head["seq"]) == head["hash"])


def read_document(raw: bytes, shape: str, entry: str) -> Any:
    """A canonical JSON text of the documented form."""
    value = parse(raw, entry)
    check_shape(value, shape, entry)
    return value


def peek(envelope: Json, kind: str, entry: str) -> Any:
    """An envelope's body before it is believed: for what must be known to check the envelope itself."""
    return read_document(envelope["body"].encode(), kind, entry)


def open_envelope(envelope: Json, kind: str, context: str, key: str, entry: str) -> Message:
    """Believe a signed message, after these checks:

    (1) it is of the kind, for everybody, and bound to the context expected here; (2) ``key`` signed its
    kind, context, sender, recipient and body, each behind its length; (3) its body is canonical and of
    the documented form.
    """
    sender = envelope["sender"]
    # (1)
    demand(envelope["kind"] == kind, entry, f"expected a message of kind {kind}")
    demand(envelope["recipient"] == "all", entry, f"{kind} of {sender}: expected recipient all")
    demand(envelope["context"] == context, entry, f"{kind} of {sender}: it is bound to another context")
    # (2)
    body = envelope["body"].encode()
    signed = signed_bytes(kind, context, sender, "all", body)
    check_signature(key, signed, envelope["signature"], entry, f"{kind} of {sender}")
    # (3)
    return Message(kind, sender, peek(envelope, kind, entry), sha256(body))


def signed_bytes(kind: str, context: str, sender: str, recipient: str, body: bytes) -> bytes:
    """What is signed of a message or an endorsed document: each field behind its length."""
    digest = bytes.fromhex(sha256(body))
    fields = [kind.encode(), bytes.fromhex(context), sender.encode(), recipient.encode(), digest]
    return b"sealsum/envelope/v1\x00" + b"".join(len(one).to_bytes(8, "little") + one for one in fields)


def read_chain(raw: bytes, origin: str, key: str, file: str, *, may_lose: bool = False) -> Chain:
    """Verify a chain from its first entry, one canonical entry a line:

    (1) the file ends with a whole line; (2) each entry names this chain, its place in it and the hash of
    the entry before it, or, in a ledger (``may_lose``), gives up lost entries and follows the furthest of
    them; (3) the chain's owner signed it.
    """
    demand(raw.endswith(b"\n") or not raw, file, "expected it to end with a whole line")  # (1)
    entries: list[Json] = []
    hashes, last, given_up = {-1: NOTHING}, -1, 0
    for number, line in enumerate(raw.split(b"\n")[:-1]):
        where = f"{file} entry {number}"
        entry = read_document(line, "entry", where)
        # (2)
        demand(entry["origin"] == origin, where, f"expected an entry of {origin}")
        place, before = last + 1, hashes[last]
        if may_lose and entry["kind"] == "written_off":
            lost = entry["body"]
            check_shape(lost, "written_off", where)
            here = bool(lost["lost"]) and lost["after"] == {"seq": last, "hash": hashes[last]}
            demand(here, where, "it gives up entries that are here")
            place, before = max(last, lost["lost"][-1]["seq"]) + 1, lost["lost"][-1]["hash"]
            given_up += 1
        demand(entry["seq"] == place, where, f"expected entry {place}, got {entry['seq']}")
        demand(entry["prev"] == before, where, "it does not follow the entry before it")
        # (3)
        unsigned = {field: value for field, value in entry.items() if field != "signature"}
        digest = digest_of("sealsum/chain/v1", unsigned)
        message = b"sealsum/chain-signature/v1\x00" + bytes.fromhex(digest)
        check_signature(key, message, entry["signature"], where, "entry")
        entries.append(entry)
        hashes[place], last = digest, place
    return Chain(file, tuple(entries), hashes, given_up)
