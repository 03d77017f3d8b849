"""One entry on its way to a sink, and the three forms in which sinks are given it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from policies.audit_sinks.ocsf import ocsf_line
from policies.audit_sinks.settings import Format
from privacy.transparency.checkpoint import LogHead
from privacy.transparency.leaf import Record


@dataclass(frozen=True)
class Entry:
    """A record of the log ``origin``, and the log's head when it was sent: ``head.size > record.seq``."""

    origin: str
    record: Record
    head: LogHead

    def text(self, form: Format) -> bytes:
        """One line of JSON, no line end: the record as it lies in the log, or an OCSF event."""
        return self.record.line() if form == "record" else ocsf_line(self.record, self.origin)


class Sink(Protocol):
    """Where entries go. One thread uses it. Any call may raise OSError; then ``close`` is called."""

    def send(self, entries: list[Entry]) -> None:
        """Hand all over, in order; connect or open first if need be."""

    def settle(self) -> None:
        """Make sure that what was handed over stays there, before the position behind it is kept."""

    def close(self) -> None:
        """Let go; ``send`` starts anew."""
