"""How key shares become the joint key, the same at the server and at every silo: commit, reveal, add up.

Shares are shown only after all are committed to. Were they not, whoever shows its share last could choose
it as b* − Σ others and so make the joint key its own (OpenFHE's documented chain invites exactly that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.faults import BelowThreshold, Equivocation
from privacy.secagg.threshold.faults import BadJointKey
from privacy.secagg.threshold.messages import (
    KeyCommit,
    KeyReveal,
    commits_digest,
    joint_key_digest,
    share_commitment,
)
from privacy.secagg.threshold.polynomials import Polynomials, added, to_wire
from privacy.secagg.threshold.silo_state import text_to_bytes, text_to_polynomial
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.wire.envelope import Verified


@dataclass(frozen=True)
class JointKey:
    """Σ b over the holders: public, and nobody holds its secret half."""

    digest: Digest
    holders: tuple[SiloId, ...]
    polynomial: Polynomials = field(repr=False)


def commitments_of(
    terms: ThresholdTerms, commits: Mapping[SiloId, Verified[KeyCommit]]
) -> dict[SiloId, Digest]:
    """Silo → commitment, sorted.

    Raises:
        BelowThreshold: fewer than the minimum. Equivocation: two silos with one commitment.
    """
    if len(commits) < terms.minimum:
        raise BelowThreshold(
            f"commit: expected at least {terms.minimum} silos, got {len(commits)}; no key is made"
        )
    found = {silo: Digest(commits[silo].message.commitment) for silo in sorted(commits)}
    if len(set(found.values())) != len(found):
        raise Equivocation("commit: two silos with one commitment; start another round")
    return found


def check_reveal(
    terms: ThresholdTerms, commitments: Mapping[SiloId, Digest], reveal: Verified[KeyReveal]
) -> Polynomials:
    """The share that a silo shows: (1) it saw the same commitments; (2) it is a polynomial of this ring;
    (3) it is what that silo committed to.

    Raises:
        Equivocation: (1). MalformedMessage: (2). BadJointKey: (3).
    """
    silo = SiloId(reveal.sender)
    # (1)
    if reveal.message.commits != commits_digest(terms, dict(commitments)):
        raise Equivocation(f"reveal of silo {silo}: it was shown other commitments than these")
    # (2)
    share = text_to_polynomial(f"reveal of silo {silo}", terms, reveal.message.share)
    # (3)
    raw = text_to_bytes("share", reveal.message.share)
    if silo not in commitments or share_commitment(terms, silo, raw) != commitments[silo]:
        raise BadJointKey(f"reveal of silo {silo}: its key share is not the one it committed to")
    return share


def joint_key(
    terms: ThresholdTerms, commitments: Mapping[SiloId, Digest], reveals: Mapping[SiloId, Verified[KeyReveal]]
) -> JointKey:
    """The joint key of those who showed their shares.

    Raises:
        BelowThreshold: fewer than the minimum did. Equivocation, MalformedMessage, BadJointKey: as
            ``check_reveal``.
    """
    if len(reveals) < terms.minimum:
        raise BelowThreshold(
            f"reveal: expected at least {terms.minimum} silos, got {len(reveals)}; no key is made"
        )
    holders = tuple(sorted(reveals))
    total = added(terms.row, (check_reveal(terms, commitments, reveals[silo]) for silo in holders))
    shares = {silo: commitments[silo] for silo in holders}
    return JointKey(joint_key_digest(terms, shares, to_wire(terms.row, total)), holders, total)
