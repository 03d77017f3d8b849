"""Checkpoints and cosignatures in C2SP's forms: exact bytes, and what is refused."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privacy.errors import MalformedMessage, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import Digest, PartyId
from privacy.transparency.checkpoint import (
    EMPTY_LOG,
    LogHead,
    cosign,
    key_id,
    log_origin,
    open_checkpoint,
    open_cosignature,
    parse_checkpoint,
    parse_signature_line,
    sign_checkpoint,
    witness_name,
    witnesses_of,
)

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
ORIGIN = log_origin("fed", PartyId("aggregator"))
HEAD = LogHead(size=12345, root=Digest("ab" * 32))


def test_the_signed_note_of_the_specification_verifies() -> None:
    """The example of https://pkg.go.dev/golang.org/x/mod/sumdb/note."""
    key = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    text = (
        b"If you think cryptography is the answer to your problem,\n"
        b"then you don't know what your problem is.\n"
    )
    line = (
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6Ryy"
        "BwJnAM=\n"
    )
    signature = parse_signature_line(line)
    assert signature.line() == line
    assert key_id("PeterNeumann", b"\x01", key[1:].hex()) == signature.key_id == bytes.fromhex("c74f20a3")
    verify_signature(key[1:].hex(), text, signature.signature)


def test_a_checkpoint_is_these_bytes() -> None:
    text = f"sealsum/fed/log/aggregator\n12345\n{base64.b64encode(bytes([0xAB] * 32)).decode()}\n"
    signature = KEY.sign(text.encode())
    hashed = hashlib.sha256(b"sealsum/fed/log/aggregator\n\x01" + bytes.fromhex(KEY.verify_key)).digest()
    expected = f"{text}\n— sealsum/fed/log/aggregator {base64.b64encode(hashed[:4] + signature).decode()}\n"
    checkpoint = sign_checkpoint(ORIGIN, HEAD, KEY)
    assert checkpoint.note() == expected
    assert open_checkpoint(expected, ORIGIN, KEY.verify_key) == checkpoint


def test_a_cosignature_is_these_bytes() -> None:
    checkpoint = sign_checkpoint(ORIGIN, HEAD, KEY)
    witness = SigningKey.generate()
    name = witness_name("fed", PartyId("silo-1"))
    signature = cosign(checkpoint, name, witness, 1_700_000_000)
    hashed = hashlib.sha256(b"sealsum/fed/witness/silo-1\n\x04" + bytes.fromhex(witness.verify_key)).digest()
    assert signature.key_id == hashed[:4]
    assert signature.signature[:8] == (1_700_000_000).to_bytes(8, "big")
    root = base64.b64encode(bytes([0xAB] * 32)).decode()
    text = f"cosignature/v1\ntime 1700000000\nsealsum/fed/log/aggregator\n12345\n{root}\n"
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(witness.verify_key)).verify(
        signature.signature[8:], text.encode()
    )
    assert open_cosignature(checkpoint, signature, name, witness.verify_key) == 1_700_000_000
    cosigned = parse_checkpoint(checkpoint.with_cosignatures([signature]).note())
    assert open_checkpoint(cosigned.note(), ORIGIN, KEY.verify_key) == cosigned
    keys = {PartyId("silo-1"): witness.verify_key, PartyId("silo-2"): SigningKey.generate().verify_key}
    assert witnesses_of(cosigned, "fed", keys) == {"silo-1"}


def test_one_witness_counts_once_and_strangers_not_at_all() -> None:
    checkpoint = sign_checkpoint(ORIGIN, HEAD, KEY)
    witness, stranger = SigningKey.generate(), SigningKey.generate()
    name = witness_name("fed", PartyId("silo-1"))
    lines = [cosign(checkpoint, name, witness, second) for second in (1, 2)]
    lines.append(cosign(checkpoint, witness_name("fed", PartyId("silo-9")), stranger, 1))
    lines.append(cosign(checkpoint, name, stranger, 1))  # our name under another key: another key id
    keys = {PartyId("silo-1"): witness.verify_key}
    assert witnesses_of(checkpoint.with_cosignatures(lines), "fed", keys) == {"silo-1"}


def test_a_cosignature_on_another_checkpoint_is_refused() -> None:
    old = sign_checkpoint(ORIGIN, LogHead(size=3, root=Digest("cd" * 32)), KEY)
    new = sign_checkpoint(ORIGIN, HEAD, KEY)
    witness = SigningKey.generate()
    name = witness_name("fed", PartyId("silo-1"))
    replayed = new.with_cosignatures([cosign(old, name, witness, 1)])
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        witnesses_of(replayed, "fed", {PartyId("silo-1"): witness.verify_key})


def test_only_the_owner_signs_a_checkpoint() -> None:
    stranger = SigningKey.generate()
    forged = sign_checkpoint(ORIGIN, HEAD, stranger)
    with pytest.raises(SignatureRejected, match="expected one signature of its owner's key"):
        open_checkpoint(forged.note(), ORIGIN, KEY.verify_key)
    note = sign_checkpoint(ORIGIN, HEAD, KEY).note()
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        open_checkpoint(note.replace("\n12345\n", "\n12346\n"), ORIGIN, KEY.verify_key)
    with pytest.raises(MalformedMessage, match="expected one of sealsum/fed/log/server-0"):
        open_checkpoint(note, log_origin("fed", PartyId("server-0")), KEY.verify_key)


def test_a_note_has_one_spelling() -> None:
    note = sign_checkpoint(ORIGIN, EMPTY_LOG, KEY).note()
    assert open_checkpoint(note, ORIGIN, KEY.verify_key).head == EMPTY_LOG
    bad = [
        "", note[:-1], note + "\n", note + "x",
        note.replace("\n0\n", "\n00\n"), note.replace("\n0\n", "\n-1\n"),
        note.replace("\n\n", "\nextension\n\n"), note.replace("=\n\n", "\n\n"), note.replace("— ", "- "),
        note.split("\n\n")[0] + "\n\n", note.replace("\n", "\r\n"), "x" * 70000 + note,
    ]  # fmt: skip
    for one in bad:
        with pytest.raises(MalformedMessage):
            parse_checkpoint(one)
    for line in ("", "— name", "— name AAAA\n", "— name AAAAAA=\n", "— na me AAAAAAA=\n"):
        with pytest.raises(MalformedMessage):
            parse_signature_line(line)
