"""The server's steps 1 to 3: believe each message or refuse its sender, then close the step by name.

``accept_*`` judges one silo's message; ``close_*`` freezes who is in and returns what the next step needs.
A silo that is gone before the joint key is made costs nothing; one that is gone afterwards ends the round.
Nothing here is secret: the server relays what ``close_*`` returns, and each silo checks all of it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from privacy.canonical import sha256_hex
from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.collecting import one_each
from privacy.secagg.threshold.cohort_manifests import check_cohort, check_manifest
from privacy.secagg.threshold.faults import BadSum, KeyholderMissing
from privacy.secagg.threshold.joint_key import JointKey, check_reveal, commitments_of, joint_key
from privacy.secagg.threshold.messages import CiphertextManifest, KeyCommit, KeyReveal, open_from_silo
from privacy.secagg.threshold.parts import threshold_stretch
from privacy.secagg.threshold.polynomials import from_wire
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.wire.envelope import Envelope, Verified


@dataclass(frozen=True)
class CommitsClosed:
    """Who committed to a key share."""

    terms: ThresholdTerms
    commitments: Mapping[SiloId, Digest]
    commits: Mapping[SiloId, Verified[KeyCommit]]

    @property
    def relay(self) -> tuple[Envelope, ...]:
        """What every one of them gets."""
        return tuple(item.envelope for item in self.commits.values())


@dataclass(frozen=True)
class RevealsClosed:
    """Whose shares the joint key is the sum of: its holders, all of whom must help to open."""

    terms: ThresholdTerms
    key: JointKey
    reveals: Mapping[SiloId, Verified[KeyReveal]]

    @property
    def relay(self) -> tuple[Envelope, ...]:
        """What every holder gets."""
        return tuple(item.envelope for item in self.reveals.values())


@dataclass(frozen=True)
class ManifestsClosed:
    """The updates that will be summed: every holder's, named by digest, and no ciphertext shown yet."""

    terms: ThresholdTerms
    key: JointKey
    manifests: Mapping[SiloId, Verified[CiphertextManifest]]

    @property
    def relay(self) -> tuple[Envelope, ...]:
        """What every holder gets, and then uploads."""
        return tuple(item.envelope for item in self.manifests.values())


def accept_commit(terms: ThresholdTerms, envelope: Envelope) -> Verified[KeyCommit]:
    """Step 1, one silo.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message.
    """
    return open_from_silo(envelope, KeyCommit, terms)


def close_commits(terms: ThresholdTerms, commits: Iterable[Verified[KeyCommit]]) -> CommitsClosed:
    """Freeze who may show a share.

    Raises:
        Equivocation: two of one silo, or two silos with one commitment. BelowThreshold.
    """
    by_silo = one_each("commit", ((SiloId(item.sender), item) for item in commits))
    return CommitsClosed(terms, commitments_of(terms, by_silo), by_silo)


def accept_reveal(commits: CommitsClosed, envelope: Envelope) -> Verified[KeyReveal]:
    """Step 2, one silo: the share it committed to.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message. Equivocation: it saw other commitments.
        BadJointKey: it is another share.
    """
    reveal = open_from_silo(envelope, KeyReveal, commits.terms)
    check_reveal(commits.terms, commits.commitments, reveal)
    return reveal


def close_reveals(commits: CommitsClosed, reveals: Iterable[Verified[KeyReveal]]) -> RevealsClosed:
    """Freeze the joint key and its holders.

    Raises:
        Equivocation: two of one silo. BelowThreshold.
    """
    by_silo = one_each("reveal", ((SiloId(item.sender), item) for item in reveals))
    return RevealsClosed(commits.terms, joint_key(commits.terms, commits.commitments, by_silo), by_silo)


def accept_manifest(reveals: RevealsClosed, envelope: Envelope) -> Verified[CiphertextManifest]:
    """Step 3, one silo: an update under this joint key.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message. BadJointKey: it is under another key.
        Equivocation: of another model, row or length. KeyholderMissing: its signer holds no share of the key.
    """
    manifest = open_from_silo(envelope, CiphertextManifest, reveals.terms)
    if manifest.sender not in reveals.key.holders:
        raise KeyholderMissing(
            f"manifest of silo {manifest.sender}: it holds no share of the joint key; wait for the next round"
        )
    check_manifest(reveals.terms, reveals.key.digest, manifest)
    return manifest


def close_manifests(
    reveals: RevealsClosed, manifests: Iterable[Verified[CiphertextManifest]]
) -> ManifestsClosed:
    """Freeze what is summed. From here silos upload.

    Raises:
        Equivocation: two of one silo. KeyholderMissing: a holder has sent none, so that the round is over.
        BadSum: one repeats another's digests.
    """
    by_silo = one_each("manifest", ((SiloId(item.sender), item) for item in manifests))
    check_cohort(reveals.terms, reveals.key.digest, reveals.key.holders, by_silo)
    return ManifestsClosed(reveals.terms, reveals.key, by_silo)


def check_upload(
    manifest: Verified[CiphertextManifest], terms: ThresholdTerms, index: int, bodies: bytes, masks: bytes
) -> None:
    """Both halves of one uploaded part, before it is stored: the bytes that were signed, and polynomials.

    Raises:
        BadSum: other bytes. MalformedMessage: no polynomials of this ring.
    """
    stretch = threshold_stretch(terms.row, index, terms.vector_length)
    message = manifest.message
    for name, raw, signed in (("bodies", bodies, message.bodies), ("masks", masks, message.masks)):
        if sha256_hex(raw) != signed[index]:
            raise BadSum(f"part {index} of silo {manifest.sender}: its {name} are not the ones it signed")
        from_wire(f"part {index} of silo {manifest.sender}", terms.row, raw, stretch.ciphertexts)
