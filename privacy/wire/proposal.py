"""How officers sign a proposed charter, each alone, and how their signatures come together. No I/O.

An officer hands over an ``Endorsement``, never a key. It counts for exactly the documents it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from privacy.canonical import Frozen
from privacy.errors import NotAllowed, SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import HexDigest, PartyId, PartyName
from privacy.officers import Endorsed, EndorsedKind, Officers, Signature, check_endorsed, read_body
from privacy.roster import Charter
from privacy.wire.charter import EndorsedCharter


class Endorsement(Frozen):
    """One officer's signatures on one proposal."""

    officer: PartyName
    officers: HexDigest
    """Digest of the officers who rule if the proposal is adopted."""
    charter: HexDigest
    signatures: Annotated[dict[EndorsedKind, Signature], Field(min_length=1)]
    """On the charter, on new officers, or on both."""


def read_proposal(proposal: EndorsedCharter) -> tuple[Charter, tuple[Officers, ...]]:
    """The charter and the officers' versions that a proposal is about, not yet endorsed."""
    return read_body(proposal.charter, Charter), tuple(read_body(one, Officers) for one in proposal.officers)


def names_of_key(proposal: EndorsedCharter, verify_key: str) -> dict[EndorsedKind, PartyId]:
    """Which documents of a proposal this key may sign, and as whom.

    New officers are signed by those before them and by themselves, while they are not endorsed; the charter
    by the last.

    Raises:
        NotAllowed: it is no officer's key.
    """
    _, versions = read_proposal(proposal)
    may: dict[EndorsedKind, PartyId] = {}
    for kind, sets in (("officers", versions[-2:]), ("charter", versions[-1:])):
        if kind == "officers" and _stands(proposal.officers[-1], versions):
            continue
        for officers in sets:
            for name, key in officers.keys.items():
                if key == verify_key:
                    may["officers" if kind == "officers" else "charter"] = name
    if not may:
        raise NotAllowed("key: it is not that of an officer who has anything to sign here; check --key")
    return may


def endorse(proposal: EndorsedCharter, key: SigningKey) -> Endorsement:
    """Sign what this officer may sign of a proposal.

    Raises:
        NotAllowed: it is no officer's key.
    """
    charter, versions = read_proposal(proposal)
    may = names_of_key(proposal, key.verify_key)
    documents: dict[EndorsedKind, Endorsed] = {"officers": proposal.officers[-1], "charter": proposal.charter}
    return Endorsement(
        officer=next(iter(may.values())),
        officers=versions[-1].digest,
        charter=charter.digest,
        signatures={kind: key.sign(documents[kind].signable(name)).hex() for kind, name in may.items()},
    )


def assemble(proposal: EndorsedCharter, endorsements: Sequence[Endorsement]) -> EndorsedCharter:
    """The proposal with these signatures in it; whether they are enough is asked when it is opened.

    Raises:
        SignatureRejected: a signature is of another proposal than this one.
    """
    charter, versions = read_proposal(proposal)
    officers, endorsed = proposal.officers[-1], proposal.charter
    for one in endorsements:
        if (one.charter, one.officers) != (charter.digest, versions[-1].digest):
            raise SignatureRejected(
                f"signature of {one.officer}: expected one of charter {charter.digest[:16]}…, "
                f"got one of {one.charter[:16]}…; let her sign this proposal"
            )
        if "officers" in one.signatures:
            signed = {**officers.signatures, one.officer: one.signatures["officers"]}
            officers = officers.model_copy(update={"signatures": signed})
        if "charter" in one.signatures:
            signed = {**endorsed.signatures, one.officer: one.signatures["charter"]}
            endorsed = endorsed.model_copy(update={"signatures": signed})
    return EndorsedCharter(officers=(*proposal.officers[:-1], officers), charter=endorsed)


def _stands(endorsed: Endorsed, versions: Sequence[Officers]) -> bool:
    """Whether the newest officers are endorsed already."""
    try:
        check_endorsed(endorsed, "officers", versions[-1].federation, versions[-2:])
    except SignatureRejected:
        return False
    return True
