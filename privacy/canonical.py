"""One value, one byte string: canonical JSON (RFC 8785) and the digests taken over it.

Numbers on the wire are integers or decimal strings, never JSON floats, so that a verifier in any
language rebuilds the same bytes without knowing how ECMAScript prints a double.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import rfc8785
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from privacy.errors import MalformedMessage
from privacy.ids import Digest


def _parse_real(value: object) -> object:
    """A decimal string, or (from our own code) an int or float; finite either way."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("expected a decimal string such as '0.25'")
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a decimal string such as '0.25'") from error
    if not math.isfinite(number):
        raise ValueError("expected a finite number")
    return number


Real = Annotated[float, BeforeValidator(_parse_real), PlainSerializer(repr, return_type=str)]
"""A finite float64 that travels as its shortest decimal string (Python ``repr``, exact both ways)."""


class Frozen(BaseModel):
    """Base of every model that enters or leaves as bytes: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields replaced; what was computed from the others, such as a digest, is not."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


def canonical_bytes(value: BaseModel | dict[str, Any] | list[Any]) -> bytes:
    """Encode ``value`` as RFC 8785 canonical JSON, UTF-8.

    Raises:
        ValueError: a float, an integer beyond ±(2^53 − 1), or a non-string key is inside.
    """
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    # Without floats and with ASCII keys, the standard library's sorted JSON is RFC 8785, and ten times
    # faster; other keys sort by UTF-16 code units, which the library knows.
    return _ENCODER.encode(plain).encode() if _has_ascii_keys(plain) else rfc8785.dumps(plain)


def parse_canonical(raw: bytes, limit: int) -> Any:
    """Decode canonical JSON, refusing any second spelling of the same value.

    Raises:
        MalformedMessage: more than ``limit`` bytes, not JSON, or not the canonical encoding.
    """
    if len(raw) > limit:
        raise MalformedMessage(f"message: expected at most {limit} bytes, got {len(raw)}")
    try:
        value = json.loads(raw)
        again = canonical_bytes(value)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(
            f"message: expected canonical JSON (RFC 8785): {type(error).__name__}"
        ) from error
    if again != raw:
        raise MalformedMessage("message: expected canonical JSON (RFC 8785), got another spelling of it")
    return value


def sha256_hex(raw: bytes) -> Digest:
    """SHA-256 of ``raw`` as lower-case hex."""
    return Digest(hashlib.sha256(raw).hexdigest())


def digest_of(label: str, value: BaseModel | dict[str, Any] | list[Any]) -> Digest:
    """SHA-256(label ‖ 0x00 ‖ canonical JSON): the label keeps digests of different kinds apart."""
    return sha256_hex(label.encode() + b"\x00" + canonical_bytes(value))


_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
_LARGEST_INTEGER = 2**53 - 1


def _has_ascii_keys(value: object) -> bool:
    """Whether every key inside is ASCII; refuses what has no canonical form here."""
    if value is None or isinstance(value, str | bool):
        return True
    if isinstance(value, int):
        if not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
            raise ValueError("an integer beyond ±(2^53 − 1) has no canonical form: use a decimal string")
        return True
    if isinstance(value, dict):
        ascii_keys = True
        for key, item in value.items():  # to the end in any case: every item is looked at
            if not isinstance(key, str):
                raise ValueError("a key that is not a string has no canonical form")
            ascii_keys &= (type(item) is str or _has_ascii_keys(item)) and key.isascii()
        return ascii_keys
    if isinstance(value, list | tuple):
        ascii_keys = True
        for item in value:
            ascii_keys &= type(item) is str or _has_ascii_keys(item)
        return ascii_keys
    if isinstance(value, float):
        raise ValueError("a float has no canonical form here: use an integer or a decimal string")
    raise ValueError(f"a {type(value).__name__} has no canonical form")
