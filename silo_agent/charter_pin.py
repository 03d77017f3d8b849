"""The charter this silo believes: endorsed by the officers it pinned at enrolment, and never an older one."""

from __future__ import annotations

from pathlib import Path

from privacy.canonical import canonical_bytes
from privacy.errors import SealsumError
from privacy.keystore import FederationPin
from privacy.roster import Charter
from privacy.wire.charter import (
    MAX_CHARTER_BYTES,
    EndorsedCharter,
    VerifiedCharter,
    open_charter,
    parse_charter,
    succeed_charter,
)
from silo_agent.durable import write_durably
from silo_agent.transport import FederationClient


class CharterPin:
    """``charter.json``, as last verified."""

    def __init__(self, path: Path, pin: FederationPin) -> None:
        """Read and verify what is stored, if anything is.

        Raises:
            SealsumError: what is stored is not a charter of this federation, endorsed by its officers.
        """
        self._path = path
        self._pin = pin
        self._held: VerifiedCharter | None = None
        if path.exists():
            self._held = self._open(parse_charter(path.read_bytes()))

    @property
    def charter(self) -> Charter:
        """The charter in force.

        Raises:
            SealsumError: none was fetched yet.
        """
        if self._held is None:
            raise SealsumError("charter: none is held yet; fetch it from the aggregator first")
        return self._held.charter

    def offer(self, endorsed: EndorsedCharter) -> Charter:
        """Take a charter that a server shows, if it holds; store it, and return the one in force.

        Raises:
            SignatureRejected: not the officers'. OutOfOrder: an earlier epoch, or earlier officers.
            Conflict: two of one epoch.
        """
        verified = succeed_charter(self._held, self._open(endorsed))
        if verified is not self._held:
            write_durably(self._path, canonical_bytes(endorsed))
            self._held = verified
        return verified.charter

    def _open(self, endorsed: EndorsedCharter) -> VerifiedCharter:
        return open_charter(endorsed, self._pin.officers, self._pin.federation)


def ask_for_charter(client: FederationClient) -> EndorsedCharter:
    """The charter that a server shows, not yet verified."""
    return parse_charter(client.get_bytes("/v1/charter", limit=MAX_CHARTER_BYTES))
