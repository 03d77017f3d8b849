"""Bytes, digests and signatures as the platform documents them, written anew: the ground of every check."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Fault(Exception):
    """The pack does not prove what it should: which entry, and why."""

    def __init__(self, entry: str, sentence: str) -> None:
        super().__init__(f"{entry}: {sentence}")
        self.entry, self.sentence = entry, sentence


def demand(condition: bool, entry: str, sentence: str) -> None:
    """Raise a ``Fault`` on ``entry`` unless ``condition`` holds."""
    if not condition:
        raise Fault(entry, sentence)


def canonical(value: object) -> bytes:
    """RFC 8785 for values without floats (keys beyond the basic plane sort otherwise, so they fail)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def same(left: object, right: object) -> bool:
    """Equality of JSON values; in Python alone, ``True == 1``."""
    return canonical(left) == canonical(right)


def parse(raw: bytes, entry: str) -> Any:
    """Decode canonical JSON; a float, a duplicate key or any second spelling is a fault."""
    try:
        value = json.loads(raw, parse_float=_refuse, parse_constant=_refuse, parse_int=_integer)
        demand(canonical(value) == raw, entry, "expected canonical JSON, got another spelling of it")
    except (ValueError, RecursionError) as error:
        raise Fault(entry, f"expected canonical JSON ({type(error).__name__})") from error
    return value


def sha256(raw: bytes) -> str:
    """SHA-256 as lower-case hex."""
    return hashlib.sha256(raw).hexdigest()


def digest_of(label: str, value: object) -> str:
    """SHA-256(label ‖ 0x00 ‖ canonical JSON)."""
    return sha256(label.encode() + b"\x00" + canonical(value))


def check_signature(key: str, message: bytes, signature: str, entry: str, what: str) -> None:
    """Ed25519 (RFC 8032): ``key`` (hex) signed exactly ``message``."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError) as error:
        raise Fault(entry, f"{what}: the signature is not its author's over these bytes") from error


def _refuse(text: str) -> Any:
    raise ValueError(f"a float has no canonical form here: {text[:20]}")


def _integer(text: str) -> int:
    if abs(int(text)) > 2**53 - 1:
        raise ValueError("an integer beyond 2^53 − 1 has no canonical form")
    return int(text)
