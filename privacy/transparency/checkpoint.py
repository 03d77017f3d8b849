"""A log's signed head, and witnesses' signatures on it, in the forms that C2SP gives them.

``signed-note``, ``tlog-checkpoint`` and ``tlog-cosignature`` (v1, Ed25519) of https://c2sp.org; so any tool
that reads those reads ours. The keys are parties' identity keys; each use signs text of another beginning.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from privacy.canonical import Frozen
from privacy.errors import MalformedMessage, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import Digest, HexDigest, PartyId
from privacy.transparency.merkle import EMPTY_ROOT

MAX_NOTE_CHARACTERS: Final = 1 << 16
Note = Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)]
_ED25519: Final = b"\x01"
_COSIGNATURE: Final = b"\x04"
_SIGNATURE_LINE: Final = re.compile(r"— ([^\s+]{1,200}) ([A-Za-z0-9+/]+={0,2})\n")
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,15}")


class LogHead(Frozen):
    """How long a log is, and the root over all of it: what others witness."""

    size: Annotated[int, Field(ge=0)]
    root: HexDigest


EMPTY_LOG: Final = LogHead(size=0, root=Digest(EMPTY_ROOT.hex()))


def log_origin(federation: str, party: PartyId) -> str:
    """The name of a party's log, in checkpoints and in leaves; also the name of the key that signs them."""
    return f"sealsum/{federation}/log/{party}"


def witness_name(federation: str, party: PartyId) -> str:
    """The name of a party's key where it cosigns others' checkpoints."""
    return f"sealsum/{federation}/witness/{party}"


@dataclass(frozen=True)
class NoteSignature:
    """One signature line: whose key, its id of four bytes, and what it signed with."""

    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        """As it stands in a note."""
        return f"— {self.name} {base64.b64encode(self.key_id + self.signature).decode()}\n"


@dataclass(frozen=True)
class Checkpoint:
    """A parsed note; nothing in it is believed before ``open_checkpoint`` returns it."""

    origin: str
    head: LogHead
    signatures: tuple[NoteSignature, ...]

    @property
    def text(self) -> str:
        """What is signed: three lines."""
        return _text(self.origin, self.head)

    def note(self) -> str:
        """The note with all its signatures."""
        return f"{self.text}\n{''.join(one.line() for one in self.signatures)}"

    def with_cosignatures(self, lines: Collection[NoteSignature]) -> Checkpoint:
        """The same checkpoint with further signatures behind its own."""
        return Checkpoint(self.origin, self.head, (*self.signatures, *lines))


def sign_checkpoint(origin: str, head: LogHead, key: SigningKey) -> Checkpoint:
    """Sign a head of our own log."""
    signature = key.sign(_text(origin, head).encode())
    return Checkpoint(
        origin, head, (NoteSignature(origin, key_id(origin, _ED25519, key.verify_key), signature),)
    )


def parse_checkpoint(note: str) -> Checkpoint:
    """Read a note; its signatures are not checked.

    Raises:
        MalformedMessage: not a signed note of a checkpoint without extension lines, in its one spelling.
    """
    text, blank, rest = note.partition("\n\n")
    lines = text.split("\n")
    if len(note) > MAX_NOTE_CHARACTERS or not blank or len(lines) != 3 or not _SIZE.fullmatch(lines[1]):
        raise MalformedMessage("checkpoint: expected origin, size and root, an empty line and signatures")
    origin, size, root = lines
    head = LogHead(size=int(size), root=Digest(_decoded(root, 32).hex()))
    signatures = []
    at = 0
    while match := _SIGNATURE_LINE.match(rest, at):
        raw = _decoded(match[2])
        if len(raw) <= 4:
            raise MalformedMessage("checkpoint: expected a key id and a signature on each signature line")
        signatures.append(NoteSignature(match[1], raw[:4], raw[4:]))
        at = match.end()
    if at != len(rest) or not signatures:
        raise MalformedMessage("checkpoint: expected lines '— name base64' behind its text, and nothing else")
    return Checkpoint(origin, head, tuple(signatures))


def open_checkpoint(note: str, origin: str, verify_key: str) -> Checkpoint:
    """Read a note and believe that the owner of ``verify_key`` signed this head of its log ``origin``.

    Raises:
        MalformedMessage: see ``parse_checkpoint``; or another log's.
        SignatureRejected: its owner did not sign it.
    """
    checkpoint = parse_checkpoint(note)
    if checkpoint.origin != origin:
        raise MalformedMessage(
            f"checkpoint: expected one of {origin}, got one of {checkpoint.origin[:200]!r}"
        )
    wanted = key_id(origin, _ED25519, verify_key)
    ours = [one for one in checkpoint.signatures if (one.name, one.key_id) == (origin, wanted)]
    if len(ours) != 1:
        raise SignatureRejected(f"checkpoint of {origin}: expected one signature of its owner's key")
    verify_signature(verify_key, checkpoint.text.encode(), ours[0].signature)
    return checkpoint


def cosign(checkpoint: Checkpoint, name: str, key: SigningKey, seconds: int) -> NoteSignature:
    """A witness's signature: at this time it was the newest head I had seen, and it extends all before it."""
    signature = key.sign(_cosigned(checkpoint, seconds))
    stamped = seconds.to_bytes(8, "big") + signature
    return NoteSignature(name, key_id(name, _COSIGNATURE, key.verify_key), stamped)


def open_cosignature(checkpoint: Checkpoint, signature: NoteSignature, name: str, verify_key: str) -> int:
    """Check one witness's signature; returns its time, in seconds since 1970.

    Raises:
        SignatureRejected: it is not of this witness, or not on this checkpoint.
    """
    if (signature.name, signature.key_id) != (name, key_id(name, _COSIGNATURE, verify_key)):
        raise SignatureRejected(f"cosignature: expected one by {name}, got one by {signature.name}")
    if len(signature.signature) != 72:
        raise SignatureRejected("cosignature: expected a time and an Ed25519 signature")
    seconds = int.from_bytes(signature.signature[:8], "big")
    verify_signature(verify_key, _cosigned(checkpoint, seconds), signature.signature[8:])
    return seconds


def witnesses_of(checkpoint: Checkpoint, federation: str, keys: Mapping[PartyId, str]) -> frozenset[PartyId]:
    """Who of ``keys`` (party → verify key) has cosigned it; others' signatures are passed over, as C2SP asks.

    Raises:
        SignatureRejected: a signature under the name and key of one of them is not on this checkpoint.
    """
    parties = {witness_name(federation, party): party for party in keys}
    found: set[PartyId] = set()
    for signature in checkpoint.signatures:
        party = parties.get(signature.name)
        if party is None or signature.key_id != key_id(signature.name, _COSIGNATURE, keys[party]):
            continue
        open_cosignature(checkpoint, signature, signature.name, keys[party])
        found.add(party)
    return frozenset(found)


def parse_signature_line(line: str) -> NoteSignature:
    """Read one signature line by itself, as a witness hands it over.

    Raises:
        MalformedMessage: not such a line.
    """
    match = _SIGNATURE_LINE.fullmatch(line) if len(line) <= 1000 else None
    raw = b"" if match is None else _decoded(match[2])
    if match is None or len(raw) <= 4:
        raise MalformedMessage("cosignature: expected one line '— name base64'")
    return NoteSignature(match[1], raw[:4], raw[4:])


def key_id(name: str, kind: bytes, verify_key: str) -> bytes:
    """SHA-256(name ‖ 0x0A ‖ kind ‖ raw key), cut to four bytes (signed-note)."""
    return hashlib.sha256(name.encode() + b"\n" + kind + bytes.fromhex(verify_key)).digest()[:4]


def _text(origin: str, head: LogHead) -> str:
    return f"{origin}\n{head.size}\n{base64.b64encode(bytes.fromhex(head.root)).decode()}\n"


def _cosigned(checkpoint: Checkpoint, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{checkpoint.text}".encode()


def _decoded(text: str, size: int | None = None) -> bytes:
    """Base64 with padding, in its one spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise MalformedMessage("checkpoint: expected base64") from error
    if base64.b64encode(raw).decode() != text or size not in (None, len(raw)):
        raise MalformedMessage("checkpoint: expected base64 in its one spelling, of the right length")
    return raw
