"""How a threat model's scalars are read: one spelling each, and nothing guessed.

YAML 1.1 reads ``010`` as eight, ``1:30`` as ninety and ``off`` as false. The loader hands every
scalar over as text; here it becomes a number, a truth value or a size, or is refused.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints

_WHOLE = re.compile(r"0|[1-9][0-9]{0,15}")
_SIZE = re.compile(r"([1-9][0-9]{0,15}) ?(B|KiB|MiB|GiB)?")
_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _parse_whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected a whole number")
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise ValueError("expected a whole number in plain decimal digits")
        return int(value)
    return value


def _parse_flag(value: object) -> object:
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _parse_size(value: object) -> object:
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("expected a size such as 64MiB")
        return int(match[1]) * _UNITS[match[2]]
    return _parse_whole(value)


Whole = Annotated[int, BeforeValidator(_parse_whole)]
"""A whole number in plain decimal digits."""
Flag = Annotated[bool, BeforeValidator(_parse_flag)]
"""``true`` or ``false``, no other spelling."""
ByteCount = Annotated[int, BeforeValidator(_parse_size), Field(ge=1)]
"""Bytes, or a size in KiB, MiB or GiB."""
Architecture = Annotated[str, StringConstraints(pattern=r"^(any|sha256:[0-9a-f]{64})$")]


def _word_as_list(value: object) -> object:
    return (value,) if value == "any" else value


Architectures = Annotated[tuple[Architecture, ...], BeforeValidator(_word_as_list)]
"""A list of ``sha256:…`` digests, or the word ``any``: a weakening that has to be written out."""
