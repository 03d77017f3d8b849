"""Parties' logs: records with fields behind commitments, the Merkle tree over them, and signed checkpoints.

RFC 9162, section 2.1, and the C2SP forms signed-note, tlog-checkpoint and tlog-cosignature, read anew. A pack
holds whole logs, so each root is computed and no proof is needed.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sealsum_verify.encoding import canonical, check_signature, demand, parse, sha256
from sealsum_verify.messages import Json, Roster
from sealsum_verify.shapes import check_shape

_NOTE = re.compile(
    r"(\S+)\n(0|[1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n\n((?:— [^\s+]+ [A-Za-z0-9+/]+=*\n)+)"
)

_FILES = ("checkpoint", "jsonl", "leaves")


@dataclass(frozen=True)
class Note:
    """A checkpoint whose owner's signature holds, and who cosigned it."""

    size: int
    root: str
    witnesses: frozenset[str]


@dataclass(frozen=True)
class Log:
    """A party's entries in their places, and the root over each beginning of them."""

    file: str
    entries: tuple[Json, ...]
    """``seq``, ``at``, ``kind`` and, as ``body``, the fields that are not redacted."""
    roots: tuple[str, ...]

    def holds(self, head: Json) -> bool:
        """Whether this log begins with the one whose head somebody witnessed."""
        size = head["size"]
        return 0 <= size < len(self.roots) and bool(self.roots[size] == head["root"])

    def find(self, kind: str, field: str, value: str) -> list[Json]:
        """The entries of ``kind`` in whose body ``field`` is ``value``."""
        return [e for e in self.entries if e["kind"] == kind and e["body"].get(field) == value]


def read_log(raw: bytes, leaves: Sequence[str], origin: str, file: str) -> Log:
    """Compute the tree over a log, one canonical record a line:

    (1) the file ends with a whole line; (2) each record is in its place; (3) its leaf holds a commitment to
    each field, whether the field can be read or is redacted, and has the hash that ``leaves`` gives: so an
    entry that was changed is told by its number, not only by the root.
    """
    demand(raw.endswith(b"\n") or not raw, file, "expected it to end with a whole line")  # (1)
    entries: list[Json] = []
    peaks: list[tuple[int, bytes]] = []  # (leaves, root) of complete subtrees, the largest first
    roots = [hashlib.sha256(b"").hexdigest()]
    for number, line in enumerate(raw.split(b"\n")[:-1]):
        where = f"{file} entry {number}"
        record = parse(line, where)
        check_shape(record, "record", where)
        demand(record["seq"] == number, where, f"expected entry {number}, got {record['seq']}")  # (2)
        body, commitments = {}, {}
        for name, field in record["fields"].items():
            if isinstance(field, dict) and "digest" in field:
                check_shape(field, "redacted", where)
                commitments[name] = field["digest"]
                continue
            check_shape(field, "disclosed", where)
            body[name] = field["value"]
            hidden = bytes.fromhex(field["salt"]) + canonical({"name": name, "value": field["value"]})
            commitments[name] = sha256(b"sealsum/log-field/v1\x00" + hidden)
        # (3)
        said = {"at": record["at"], "kind": record["kind"], "seq": number, "origin": origin}
        leaf = canonical(said | {"fields": commitments})
        peaks.append((1, hashlib.sha256(b"\x00" + leaf).digest()))
        listed = number < len(leaves) and leaves[number] == peaks[-1][1].hex()
        demand(listed, where, "it is not the entry that was logged here")
        while len(peaks) > 1 and peaks[-2][0] == peaks[-1][0]:
            (half, left), (_, right) = peaks[-2:]
            peaks[-2:] = [(2 * half, hashlib.sha256(b"\x01" + left + right).digest())]
        root = peaks[-1][1]
        for _, left in reversed(peaks[:-1]):
            root = hashlib.sha256(b"\x01" + left + root).digest()
        roots.append(root.hex())
        entries.append({"seq": number, "at": record["at"], "kind": record["kind"], "body": body})
    return Log(file, tuple(entries), tuple(roots))


def read_note(text: str, party: str, roster: Roster, entry: str) -> Note:
    """Believe a checkpoint of a party's log:

    (1) it is a note of three lines, of that log; (2) the log's owner signed it, once; (3) whoever of the
    federation's silos (for a silo's log: of its servers) is named as a witness cosigned these lines;
    signatures of others count for nothing.
    """
    federation = roster.charter["federation"]
    origin = f"sealsum/{federation}/log/{party}"
    # (1)
    match = _NOTE.fullmatch(text)
    demand(match is not None and match[1] == origin, entry, f"expected a checkpoint of {origin}")
    assert match is not None  # noqa: S101 - demanded above; a checker of types cannot know
    size, root = int(match[2]), base64.b64decode(match[3])
    demand(base64.b64encode(root).decode() == match[3], entry, "expected the root in its one spelling")
    lines = f"{match[1]}\n{match[2]}\n{match[3]}\n".encode()
    owner, witnesses = 0, set()
    by = ("aggregator", "share_server") if roster.members[party]["role"] == "silo" else ("silo",)
    silos = {f"sealsum/{federation}/witness/{one}": one for role in by for one in roster.of_role(role)}
    for line in match[4].splitlines():
        _, name, value = line.split(" ")
        raw = base64.b64decode(value + "==")
        demand(base64.b64encode(raw).decode() == value, entry, f"signature of {name}: in another spelling")
        # (2)
        if name == origin:
            key = roster.key(party, "any", entry)
            if raw[:4] == _key_id(name, b"\x01", key):
                check_signature(key, lines, raw[4:].hex(), entry, "checkpoint")
                owner += 1
        # (3)
        elif name in silos:
            key = roster.key(silos[name], "any", entry)
            if raw[:4] == _key_id(name, b"\x04", key):
                seconds = int.from_bytes(raw[4:12], "big")
                stamped = f"cosignature/v1\ntime {seconds}\n".encode() + lines
                check_signature(key, stamped, raw[12:].hex(), entry, f"cosignature of {silos[name]}")
                witnesses.add(silos[name])
    demand(owner == 1, entry, f"{party} did not sign it")
    return Note(size, root.hex(), frozenset(witnesses))


def read_logs(files: Mapping[str, bytes], roster: Roster, servers: list[str]) -> Mapping[str, Log]:
    """Each server's log, and those that silos handed over, with its owner's checkpoint over exactly these
    entries."""
    parties = servers + [silo for silo in roster.of_role("silo") if f"log/{silo}.jsonl" in files]
    names = [f"log/{party}.{kind}" for party in parties for kind in _FILES]
    optional = {f"log/{party}.witnessed" for party in parties}
    given = sorted(name for name in files if name.startswith("log/") and name not in optional)
    wanted = f"expected the logs of {', '.join(parties)}, each with leaves and checkpoint"
    demand(given == sorted(names), "log/", wanted)
    logs = {}
    for party in parties:
        file, signed = f"log/{party}.jsonl", f"log/{party}.checkpoint"
        leaves = files[f"log/{party}.leaves"].decode(errors="replace").split("\n")[:-1]
        log = read_log(files[file], leaves, f"sealsum/{roster.charter['federation']}/log/{party}", file)
        note = read_note(files[signed].decode(errors="replace"), party, roster, signed)
        whole = note.size == len(log.entries) == len(leaves) and log.holds(
            {"size": note.size, "root": note.root}
        )
        demand(whole, file, f"its {len(log.entries)} entries are not the {note.size} that {signed} signs")
        logs[party] = log
    return logs


def check_witnessed(log: Log, text: str, party: str, roster: Roster, enough: int, entry: str) -> Note:
    """A checkpoint that enough silos cosigned, and that the log in this pack continues."""
    note = read_note(text, party, roster, entry)
    demand(log.holds({"size": note.size, "root": note.root}), entry, f"{log.file} does not continue it")
    count = len(note.witnesses)
    demand(count >= enough, entry, f"{count} cosigned it, and it takes {enough}")
    return note


def _key_id(name: str, kind: bytes, key: str) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + kind + bytes.fromhex(key)).digest()[:4]
