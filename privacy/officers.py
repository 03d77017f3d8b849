"""Who rules a federation: its officers, and the documents that m of n of them have endorsed. No I/O.

Every party pins the digest of an ``Officers`` document at enrolment. From there it follows versions as TUF
follows roots (TUF specification 5.3): the next set counts only if the threshold of the set before it
*and* its own threshold signed it, so that nobody can be voted out of the chain or into it alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, ValidationError, model_validator

from privacy.canonical import Frozen, canonical_bytes, digest_of, parse_canonical
from privacy.errors import Conflict, MalformedMessage, OutOfOrder, SignatureRejected
from privacy.identity import SigningKey, verify_signature
from privacy.ids import Digest, HexDigest, HexKey, Name, PartyId, PartyName
from privacy.wire.envelope import BROADCAST, first_fault, signed_bytes

EndorsedKind = Literal["charter", "officers"]
Signature = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
MAX_BODY_BYTES: dict[EndorsedKind, int] = {"charter": 4 << 20, "officers": 1 << 16}
VERSIONS_MAX = 1000
"""Longest chain of officers' documents that is read."""

D = TypeVar("D", bound=Frozen)


class Officer(Frozen):
    """A person who may endorse a federation's documents, and the institution she answers to."""

    name: PartyName
    legal_entity: Annotated[str, Field(min_length=1, max_length=200)]
    verify_key: HexKey


class Officers(Frozen):
    """One version of a federation's officers, and how many of them it takes."""

    federation: Name
    version: Annotated[int, Field(ge=1)]
    threshold: Annotated[int, Field(ge=1)]
    officers: Annotated[tuple[Officer, ...], Field(min_length=1, max_length=64)]
    one_institution: Literal["refused", "allowed"] = "refused"
    """Whether the officers of a single institution may be enough: it can then change the policy alone."""

    @model_validator(mode="after")
    def _officers_are_distinct_and_enough(self) -> Self:
        names = [officer.name for officer in self.officers]
        if sorted(names) != names:
            raise ValueError("officers: expected them sorted by name")
        if len(set(names)) != len(names) or len({officer.verify_key for officer in self.officers}) != len(
            names
        ):
            raise ValueError("officers: expected distinct names and distinct keys")
        if self.threshold > len(names):
            raise ValueError(f"threshold: expected at most {len(names)} (officers), got {self.threshold}")
        if self.one_institution == "refused" and (alone := self.rule_alone):
            raise ValueError(
                f"officers: {alone[0]} has {self.threshold} or more of them, so one institution alone can "
                "change the policy; raise threshold, add officers of others, or say "
                "one_institution: allowed (--one-institution-decides)"
            )
        return self

    @cached_property
    def digest(self) -> Digest:
        """What parties pin, and what people compare."""
        return digest_of("sealsum/officers/v1", self)

    @property
    def keys(self) -> dict[PartyId, str]:
        """Verify key by officer."""
        return {officer.name: officer.verify_key for officer in self.officers}

    @property
    def rule_alone(self) -> tuple[str, ...]:
        """Institutions that reach the threshold with their own officers."""
        held = Counter(" ".join(officer.legal_entity.casefold().split()) for officer in self.officers)
        return tuple(sorted(entity for entity, count in held.items() if count >= self.threshold))


class Endorsed(Frozen):
    """A document as canonical JSON text and its officers' signatures; without enough of them, a proposal."""

    kind: EndorsedKind
    context: HexDigest
    body: Annotated[str, Field(max_length=4 << 20)]
    signatures: dict[PartyName, Signature]
    """By officer, so that nobody counts twice."""

    def signable(self, officer: PartyId) -> bytes:
        """The bytes that this officer signs: as an envelope's, from her to all."""
        return signed_bytes(self.kind, self.context, officer, BROADCAST, self.body.encode())

    def signed_by(self, officer: PartyId, key: SigningKey) -> Endorsed:
        """The same document with one more signature; nothing is checked here."""
        signature = key.sign(self.signable(officer)).hex()
        return self.model_copy(update={"signatures": {**self.signatures, officer: signature}})


def federation_context(federation: str) -> Digest:
    """What endorsed documents of one federation are bound to, whatever their version."""
    return digest_of("sealsum/federation-id/v1", {"federation": federation})


def unsigned(document: Frozen, kind: EndorsedKind, federation: str) -> Endorsed:
    """A document that nobody has endorsed yet."""
    body = canonical_bytes(document).decode()
    return Endorsed(kind=kind, context=federation_context(federation), body=body, signatures={})


def read_body(endorsed: Endorsed, model: type[D]) -> D:
    """The document, not yet believed: for who is to endorse it, and to find out who had to.

    Raises:
        MalformedMessage: not one, too large, or not in its one spelling.
    """
    raw = endorsed.body.encode()
    try:
        document = model.model_validate(parse_canonical(raw, MAX_BODY_BYTES[endorsed.kind]))
    except ValidationError as error:
        raise MalformedMessage(f"{endorsed.kind}: {first_fault(error)}") from error
    if canonical_bytes(document) != raw:
        raise MalformedMessage(f"{endorsed.kind}: expected each value in its one spelling, no field left out")
    return document


def check_endorsed(endorsed: Endorsed, kind: EndorsedKind, federation: str, by: Sequence[Officers]) -> None:
    """Believe that a document is its officers', after these checks:

    (1) it is of the kind expected here; (2) it is bound to this federation; (3) each signature in it names
    an officer of one of the sets ``by``, and (4) is hers over exactly these bytes: a document that carries
    a bad signature is refused whole; (5) of *each* set at least its threshold of officers have signed.

    Raises:
        SignatureRejected: any of them, naming the officers that are missing.
    """
    # (1)
    if endorsed.kind != kind:
        raise SignatureRejected(f"endorsed.kind: expected {kind}, got {endorsed.kind}")
    # (2)
    if endorsed.context != federation_context(federation):
        raise SignatureRejected(f"{kind}.context: expected that of federation {federation}, got another")
    keys = {name: key for officers in by for name, key in officers.keys.items()}
    for name, signature in sorted(endorsed.signatures.items()):
        # (3)
        if name not in keys:
            raise SignatureRejected(f"{kind}: {name} signed it, and is not an officer of {federation}")
        # (4)
        try:
            verify_signature(keys[name], endorsed.signable(name), bytes.fromhex(signature))
        except SignatureRejected as error:
            raise SignatureRejected(f"{kind}: the signature of {name} is not over these bytes") from error
    # (5)
    for officers in by:
        signed = [name for name in officers.keys if name in endorsed.signatures]
        if len(signed) < officers.threshold:
            missing = ", ".join(name for name in officers.keys if name not in endorsed.signatures)
            raise SignatureRejected(
                f"{kind}: expected signatures of {officers.threshold} of {len(officers.officers)} officers "
                f"(version {officers.version}), got {len(signed)}; ask one of {missing}"
            )


def follow_officers(chain: Sequence[Endorsed], pinned: Digest, federation: str) -> tuple[Officers, ...]:
    """All versions of a federation's officers, the last one in force, after these checks:

    (1) the pinned version is one of them, before any signature is checked: a chain that a stranger made up
    costs nobody the checking of thousands; (2) they start with version 1 and leave none out; (3) each is of
    this federation; (4) a name stands for the key it stood for in the version before; (5) each is endorsed
    by its own threshold and by that of the version before.

    Raises:
        SignatureRejected: (1), (3), (5). OutOfOrder: (2). Conflict: (4). MalformedMessage: not officers.
    """
    if len(chain) > VERSIONS_MAX:
        raise MalformedMessage(f"officers: expected at most {VERSIONS_MAX} versions, got {len(chain)}")
    read = [read_body(endorsed, Officers) for endorsed in chain]
    # (1)
    if pinned not in {officers.digest for officers in read}:
        raise SignatureRejected(
            f"officers: the pinned ones ({pinned[:16]}…) are not among the versions shown; "
            "compare the digest with an officer you know"
        )
    versions: list[Officers] = []
    for number, (endorsed, officers) in enumerate(zip(chain, read, strict=True), 1):
        # (2)
        if officers.version != number:
            raise OutOfOrder(f"officers.version: expected {number}, got {officers.version}")
        # (3)
        if officers.federation != federation:
            raise SignatureRejected(f"officers.federation: expected {federation}, got {officers.federation}")
        before = versions[-1:]
        # (4)
        for old in before:
            check_names_stay(old, officers)
        # (5)
        check_endorsed(endorsed, "officers", federation, [*before, officers])
        versions.append(officers)
    return tuple(versions)


def check_names_stay(old: Officers, new: Officers) -> None:
    """An officer with a new key gets a new name: a name in a signature means one key.

    Raises:
        Conflict: a name has another key than in the version before.
    """
    moved = [name for name, key in new.keys.items() if old.keys.get(name, key) != key]
    if moved:
        raise Conflict(
            f"officers: {', '.join(moved)} had another key in version {old.version}; "
            f"enter the new key under a new name, such as {moved[0]}-2"
        )
