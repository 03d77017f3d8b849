"""The charter a server lives by: verified under the pinned officer key, kept on disk, never an older one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from policies.loader import LoadedPolicy, load_threat_model
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError
from privacy.keystore import Identity, read_file
from privacy.roster import Charter, Member, Role
from privacy.wire.charter import open_charter, succeed_charter
from privacy.wire.envelope import Envelope, parse_envelope


@dataclass(frozen=True)
class HeldCharter:
    """A verified charter, the envelope it came in, and its threat model."""

    charter: Charter
    envelope: Envelope
    policy: LoadedPolicy

    @property
    def aggregator(self) -> Member:
        """The federation's aggregator."""
        return self.charter.with_role("aggregator")[0]


def hold_charter(identity: Identity, role: Role, offered: bytes | None) -> HeldCharter:
    """Take the charter on disk, or a later one that is offered; checks, in this order:

    (1) signed by the pinned officer for our federation; (2) not older than the one held; (3) we are in it
    in the role we run as, with the key we hold; (4) it has exactly one aggregator; (5) its threat model
    loads and is the one whose digest it pins.

    Raises:
        SignatureRejected: (1). OutOfOrder, Conflict: (2). ConfigurationError: (3) to (5), or none is there.
    """
    path = identity.directory / "charter.json"
    held = _open(identity, read_file(path)) if path.exists() else None
    if held is None and offered is None:
        raise ConfigurationError(f"{path}: there is no charter yet; set charter: or charter_url:")
    chosen = held
    if offered is not None:
        candidate = _open(identity, offered)
        succeed_charter(held[0] if held else None, candidate[0])
        chosen = candidate
    assert chosen is not None  # noqa: S101 - one of the two is there, see above
    charter, envelope = chosen
    # (3)
    member = charter.member(identity.pin.party)
    if member.role != role or member.verify_key != identity.signing.verify_key:
        raise ConfigurationError(
            f"charter: it does not list {identity.pin.party} as {role} with the key in {identity.directory}"
        )
    # (4)
    if len(charter.with_role("aggregator")) != 1:
        raise ConfigurationError("charter: expected exactly one aggregator")
    # (5)
    policy = load_threat_model(charter.policy_text)
    if policy.digest != charter.policy:
        raise ConfigurationError("charter.policy: expected the digest of policy_text, got another")
    if chosen is not held:
        _keep(path, envelope)
    return HeldCharter(charter, envelope, policy)


def _open(identity: Identity, raw: bytes) -> tuple[Charter, Envelope]:
    envelope = parse_envelope(raw)
    # (1)
    return open_charter(envelope, identity.pin.officer_key, identity.pin.federation), envelope


def _keep(path: Path, envelope: Envelope) -> None:
    temporary = path.with_name(".charter.json.new")
    with temporary.open("wb") as file:
        file.write(canonical_bytes(envelope))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
