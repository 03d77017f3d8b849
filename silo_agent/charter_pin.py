"""The charter this silo believes: signed by the officer it pinned at enrolment, and never an older one."""

from __future__ import annotations

from pathlib import Path

from privacy.canonical import canonical_bytes
from privacy.errors import SealsumError
from privacy.keystore import FederationPin
from privacy.roster import Charter
from privacy.wire.charter import open_charter, succeed_charter
from privacy.wire.envelope import Envelope, parse_envelope
from silo_agent.durable import write_durably


class CharterPin:
    """``charter.json``, as last verified."""

    def __init__(self, path: Path, pin: FederationPin) -> None:
        """Read and verify what is stored, if anything is.

        Raises:
            SealsumError: what is stored is not a charter of this federation, signed by its officer.
        """
        self._path = path
        self._pin = pin
        self._held: Charter | None = None
        if path.exists():
            self._held = self._open(parse_envelope(path.read_bytes()))

    @property
    def charter(self) -> Charter:
        """The charter in force.

        Raises:
            SealsumError: none was fetched yet.
        """
        if self._held is None:
            raise SealsumError("charter: none is held yet; fetch it from the aggregator first")
        return self._held

    def offer(self, envelope: Envelope) -> Charter:
        """Take a charter that a server shows, if it holds; store it, and return the one in force.

        Raises:
            SignatureRejected: not the officer's. OutOfOrder: an earlier epoch. Conflict: two of one epoch.
        """
        charter = succeed_charter(self._held, self._open(envelope))
        if charter is not self._held:
            write_durably(self._path, canonical_bytes(envelope))
            self._held = charter
        return charter

    def _open(self, envelope: Envelope) -> Charter:
        return open_charter(envelope, self._pin.officer_key, self._pin.federation)
