"""Which start of an agent is calling, as a header says it: drawn at random at each start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from privacy.errors import MalformedMessage

HEADER: Final = "Sealsum-Instance"
_FORM: Final = re.compile(r"([0-9a-f]{32})(?:;previous=([0-9a-f]{32}))?")


@dataclass(frozen=True)
class Instance:
    """One start of an agent."""

    id: str
    previous: str | None = None
    """The start before, by what the state directory remembers."""

    def __str__(self) -> str:
        return self.id if self.previous is None else f"{self.id};previous={self.previous}"


def parse_instance(text: str) -> Instance:
    """Read the header.

    Raises:
        MalformedMessage: not ``<32 hex>`` or ``<32 hex>;previous=<32 hex>``.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise MalformedMessage(f"{HEADER}: expected 32 hex digits, and ;previous= with as many")
    return Instance(found[1], found[2])
