"""The charter: who is in a federation, with which keys, under which threat model.

Officers of the federation endorse it; every party pins the officers at enrolment and believes no server
about who else there is.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.errors import NotAllowed
from privacy.ids import Digest, HexDigest, HexKey, Name, PartyId, PartyName, ServerId, SiloId

Role = Literal["silo", "aggregator", "share_server", "researcher"]
SEALED_TO: tuple[Role, ...] = ("silo", "share_server")
"""Whom others send secrets through a server that must not read them."""
EPOCHS_MAX: Final = 10_000
"""Most charters that one may name before itself."""
Text = Annotated[str, Field(min_length=1, max_length=200)]
PolicyText = Annotated[str, Field(max_length=65536)]


class Member(Frozen):
    """One enrolled party and its pinned keys."""

    id: PartyName
    role: Role
    legal_entity: Text
    """The institution that answers for it; minimum cohorts count these, not processes."""
    operator: Text
    """Who runs the machine; share servers must differ here."""
    verify_key: HexKey
    sealing_key: Annotated[str, Field(max_length=2432)] = ""
    """Hex of ML-KEM-768 ‖ X25519 public keys: silos and share servers, to whom secrets are sealed."""
    url: Annotated[str, Field(max_length=300)] = ""
    """Where the others dial; servers only, always https."""

    @model_validator(mode="after")
    def _servers_are_reachable_and_sealable(self) -> Self:
        if self.role in ("aggregator", "share_server") and not self.url.startswith("https://"):
            raise ValueError(f"member {self.id}: expected an https:// url, got {self.url!r}")
        if (self.role in SEALED_TO) != bool(self.sealing_key):
            raise ValueError(f"member {self.id}: a sealing key belongs to {' and '.join(SEALED_TO)}, to each")
        return self


class Charter(Frozen):
    """Roster + policy of a federation at one epoch; a later epoch replaces an earlier one."""

    federation: Name
    epoch: Annotated[int, Field(ge=1)]
    previous: HexDigest | None = None
    """Digest of the charter of the epoch before; none for the first."""
    earlier: Annotated[
        tuple[HexDigest, ...], Field(max_length=EPOCHS_MAX, exclude_if=lambda digests: not digests)
    ] = ()
    """Digests of the charters before ``previous``, oldest first: who missed epochs sees that none forked."""
    officers: HexDigest
    """Digest of the officers whose endorsement it needs."""
    members: tuple[Member, ...]
    revoked: tuple[HexKey, ...] = ()
    """Keys that were members' and have left the roster: they never come back. Sorted."""
    policy: HexDigest
    """Digest of the threat model below."""
    policy_text: PolicyText
    """The threat model as its authors wrote it (YAML), so that every party reads the same words."""
    policy_parents: Annotated[tuple[PolicyText, ...], Field(max_length=3)] = ()
    """Texts of the threat models that it extends, nearest first."""

    @model_validator(mode="after")
    def _members_are_distinct(self) -> Self:
        ids = [member.id for member in self.members]
        keys = [member.verify_key for member in self.members]
        if len(set(ids)) != len(ids) or len(set(keys)) != len(keys):
            raise ValueError("members: expected distinct ids and distinct keys")
        if sorted(ids) != ids:
            raise ValueError("members: expected them sorted by id")
        if back := [member.id for member in self.members if member.verify_key in self.revoked]:
            raise ValueError(
                f"members: {', '.join(back)} has a key that was revoked; enrol it with a new one"
            )
        return self

    @model_validator(mode="after")
    def _it_has_one_place_among_charters(self) -> Self:
        if (self.epoch == 1) != (self.previous is None):
            raise ValueError("previous: expected the charter of the epoch before, and none for epoch 1")
        if len(self.earlier) > max(0, self.epoch - 2):
            raise ValueError(f"earlier: expected at most the charters of {max(0, self.epoch - 2)} epochs")
        if sorted(set(self.revoked)) != list(self.revoked):
            raise ValueError("revoked: expected distinct keys, sorted")
        return self

    @cached_property
    def digest(self) -> Digest:
        """What jobs and plans are bound to."""
        return digest_of("sealsum/charter/v1", self)

    @property
    def lineage(self) -> tuple[Digest, ...]:
        """Digests of the charters before this one, as far as it names them, the one just before it last."""
        named = (*self.earlier, *(() if self.previous is None else (self.previous,)))
        return tuple(Digest(one) for one in named)

    def member(self, party: PartyId) -> Member:
        """The member of that name.

        Raises:
            NotAllowed: nobody of that name is enrolled.
        """
        for member in self.members:
            if member.id == party:
                return member
        raise NotAllowed(f"party {party!r}: it is not in the roster (epoch {self.epoch})")

    def with_role(self, role: Role) -> tuple[Member, ...]:
        """All members of one role, sorted by id."""
        return tuple(member for member in self.members if member.role == role)

    @property
    def silos(self) -> tuple[SiloId, ...]:
        """Ids of the enrolled silos, sorted."""
        return tuple(SiloId(member.id) for member in self.with_role("silo"))

    @property
    def share_servers(self) -> tuple[ServerId, ...]:
        """Ids of the share servers, sorted; the first holds the vector shares."""
        return tuple(ServerId(member.id) for member in self.with_role("share_server"))
