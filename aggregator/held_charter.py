"""The charter a server lives by: verified under the pinned officers, kept on disk, never an older one."""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.enrolment.authority import write_atomically
from policies.loader import LoadedPolicy, load_threat_model
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, Conflict, OutOfOrder
from privacy.keystore import Identity, read_file
from privacy.roster import Charter, Member, Role
from privacy.wire.charter import (
    EndorsedCharter,
    VerifiedCharter,
    open_charter,
    parse_charter,
    succeed_charter,
)


@dataclass(frozen=True)
class HeldCharter:
    """A verified charter and its threat model."""

    verified: VerifiedCharter
    policy: LoadedPolicy

    @property
    def charter(self) -> Charter:
        """Roster and policy in force."""
        return self.verified.charter

    @property
    def endorsed(self) -> EndorsedCharter:
        """The charter as its officers signed it."""
        return self.verified.endorsed

    @property
    def aggregator(self) -> Member:
        """The federation's aggregator."""
        return self.charter.with_role("aggregator")[0]


def hold_charter(identity: Identity, role: Role, offered: bytes | None) -> HeldCharter:
    """Take, at the start, the charter on disk or a later one that is offered; checks, in this order:

    (1) endorsed by the pinned officers, or those after them, for our federation; (2) the successor of the
    one held, which stays if an older one is offered; (3) we are in it in our role, with the keys that we
    hold; (4) it has exactly one aggregator; (5) its threat model loads and is the one whose digest it pins.

    Raises:
        SignatureRejected: (1). Conflict: (2). ConfigurationError: (3) to (5), or none is there.
    """
    path = identity.directory / "charter.json"
    held = _open(identity, read_file(path)) if path.exists() else None
    if held is None and offered is None:
        raise ConfigurationError(f"{path}: there is no charter yet; set charter: or charter_url:")
    chosen = held
    if offered is not None:
        candidate = _open(identity, offered)
        try:
            chosen = succeed_charter(held, candidate)  # (2)
        except OutOfOrder:
            # A file that the settings still name, older than what was brought since: the one held holds.
            chosen = held
    assert chosen is not None  # noqa: S101 - one of the two is there, see above
    # (3)
    charter = identity.recognised_in(chosen.charter)
    member = charter.member(identity.pin.party)
    if member.role != role or member.verify_key != identity.signing.verify_key:
        raise ConfigurationError(
            f"charter: it does not list {identity.pin.party} as {role} with the key in {identity.directory}"
        )
    # (4)
    if len(charter.with_role("aggregator")) != 1:
        raise ConfigurationError("charter: expected exactly one aggregator")
    # (5)
    taken = HeldCharter(chosen, _policy_of(charter))
    if chosen is not held:
        keep_on_disk(identity, taken)
    return taken


def later_charter(identity: Identity, held: HeldCharter, raw: bytes) -> HeldCharter:
    """The charter to hold after ``raw`` was brought to a running server: ``held`` itself if it is the same.

    Whether we are in it is not asked: a server that is removed must take the charter that removes it.

    Raises:
        SignatureRejected, MalformedMessage: not endorsed by enough of the officers. OutOfOrder, Conflict: not
            a successor of the one held, or our sealing key in it is not ours. ConfigurationError: its threat
            model is not the one it names.
    """
    chosen = succeed_charter(held.verified, _open(identity, raw))
    try:
        identity.recognised_in(chosen.charter)
    except ConfigurationError as error:
        raise Conflict(str(error)) from error
    return held if chosen is held.verified else HeldCharter(chosen, _policy_of(chosen.charter))


def keep_on_disk(identity: Identity, held: HeldCharter) -> None:
    """Store a charter as the one to start with, durably: a power cut must not bring back whom it revokes."""
    write_atomically(identity.directory / "charter.json", canonical_bytes(held.endorsed))


def _policy_of(charter: Charter) -> LoadedPolicy:
    policy = load_threat_model(charter.policy_text, charter.policy_parents)
    if policy.digest != charter.policy:
        raise ConfigurationError("charter.policy: expected the digest of policy_text, got another")
    return policy


def _open(identity: Identity, raw: bytes) -> VerifiedCharter:
    # (1)
    return open_charter(parse_charter(raw), identity.pin.officers, identity.pin.federation)
