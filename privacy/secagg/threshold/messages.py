"""One frozen model for each message of threshold encryption, their size caps, and how each is signed and
opened.

Each travels in the signed envelope of ``privacy.wire``, under the round's context. Ciphertexts and partial
decryptions travel beside their messages, which name them by digest, part by part.
"""

from __future__ import annotations

from typing import Annotated, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen, digest_of, sha256_hex
from privacy.chain import Head
from privacy.identity import SigningKey
from privacy.ids import Digest, HexDigest, SiloId, SiloName
from privacy.secagg.threshold.parameters import MAX_SILOS
from privacy.secagg.threshold.terms import ThresholdTerms
from privacy.wire.envelope import Envelope, MessageKind, Verified, open_envelope, sign_message

Parts = Annotated[tuple[HexDigest, ...], Field(min_length=1, max_length=100_000)]
Silos = Annotated[tuple[SiloName, ...], Field(min_length=2, max_length=MAX_SILOS)]
PolynomialText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*={0,2}$", max_length=1 << 19)]
"""One polynomial as it travels, base64."""


class KeyCommit(Frozen):
    """Step 1, silo → all: what my key share will be; the others' shares are not known to me yet."""

    commitment: HexDigest


class KeyReveal(Frozen):
    """Step 2, silo → all: my key share b = −a·s + e, over the a that the context fixes."""

    commits: HexDigest
    """Digest of the set of commitments that I saw before I showed my share."""
    share: PolynomialText


class CiphertextManifest(Frozen):
    """Step 3, silo → all: my one update of this round, committed to before anybody shows a ciphertext."""

    silo: SiloName
    model: HexDigest
    """Digest of the model bytes the silo itself received and trained from."""
    parameters: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}$")]
    joint_key: HexDigest
    """Digest of the joint key, as I added it up from everybody's share."""
    vector_length: Annotated[int, Field(ge=1)]
    bodies: Parts
    """SHA-256 of the c0 of each part, in order."""
    masks: Parts
    """SHA-256 of the c1 of each part, in order."""
    ledger_head: Head
    """Head of the silo's privacy ledger after reserving for this round: others witness it."""

    @model_validator(mode="after")
    def _halves_match(self) -> Self:
        if len(self.bodies) != len(self.masks):
            raise ValueError("bodies, masks: expected one of each for every part")
        return self


class SumManifest(Frozen):
    """Server → silos: the one sum of this round, over these manifests."""

    joint_key: HexDigest
    silos: Silos
    manifests: Annotated[tuple[HexDigest, ...], Field(min_length=2, max_length=MAX_SILOS)]
    """Digest of each one's manifest's body, in the order of ``silos``."""
    bodies: Parts
    masks: Parts
    """SHA-256 of the c1 of each part of the sum: what each silo comes to by its own addition, or refuses."""


class PartialDecryption(Frozen):
    """Step 4, silo → server: my one partial decryption under this context, by the digests of its parts."""

    sum: HexDigest
    """Digest of the body of the sum's manifest."""
    parts: Parts


ThresholdMessage = KeyCommit | KeyReveal | CiphertextManifest | SumManifest | PartialDecryption
M = TypeVar("M", KeyCommit, KeyReveal, CiphertextManifest, PartialDecryption)

KINDS: dict[type[ThresholdMessage], MessageKind] = {
    KeyCommit: "threshold_commit",
    KeyReveal: "threshold_reveal",
    CiphertextManifest: "threshold_manifest",
    SumManifest: "threshold_sum",
    PartialDecryption: "threshold_partial",
}
MAX_BYTES: dict[type[ThresholdMessage], int] = {
    KeyCommit: 1 << 12,
    KeyReveal: 1 << 20,
    CiphertextManifest: 15 << 20,
    SumManifest: 15 << 20,
    PartialDecryption: 8 << 20,
}
"""Largest body of each, checked before it is parsed."""


def sign_silo(message: ThresholdMessage, terms: ThresholdTerms, silo: SiloId, key: SigningKey) -> Envelope:
    """Wrap and sign one message of this round for all."""
    return sign_message(message, KINDS[type(message)], terms.context, silo, key)


def open_from_silo(envelope: Envelope, model: type[M], terms: ThresholdTerms) -> Verified[M]:
    """Check and read one message of this round from a member of the cohort.

    Raises:
        SignatureRejected: another kind, recipient or round, or not signed by the sender's pinned key.
        MalformedMessage: the body is not that message. NotAllowed: the sender is not in the cohort.
    """
    return open_envelope(
        envelope,
        model,
        kind=KINDS[model],
        context=terms.context,
        verify_key_of=terms.verify_key_of,
        max_bytes=MAX_BYTES[model],
    )


def sign_sum(message: SumManifest, terms: ThresholdTerms, key: SigningKey) -> Envelope:
    """The server's word on what it added up."""
    return sign_message(message, KINDS[SumManifest], terms.context, terms.server, key)


def open_sum(envelope: Envelope, terms: ThresholdTerms) -> Verified[SumManifest]:
    """Check and read the server's manifest of the sum.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: as ``open_from_silo``, for the server.
    """
    return open_envelope(
        envelope,
        SumManifest,
        kind=KINDS[SumManifest],
        context=terms.context,
        verify_key_of=terms.server_key_of,
        max_bytes=MAX_BYTES[SumManifest],
    )


def share_commitment(terms: ThresholdTerms, silo: SiloId, share: bytes) -> Digest:
    """H(label ‖ terms ‖ silo ‖ share): binding; hiding, a share being pseudo-random and fresh."""
    fields = [bytes.fromhex(terms.digest), silo.encode(), share]
    encoded = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    return sha256_hex(b"sealsum/threshold/share/v1\x00" + encoded)


def commits_digest(terms: ThresholdTerms, commitments: dict[SiloId, Digest]) -> Digest:
    """Who committed to what."""
    return digest_of(
        "sealsum/threshold/commits/v1", {"terms": terms.digest, "commitments": dict(commitments)}
    )


def joint_key_digest(terms: ThresholdTerms, shares: dict[SiloId, Digest], joint: bytes) -> Digest:
    """The joint key and whose shares it is the sum of (by their commitments)."""
    value = {"terms": terms.digest, "shares": dict(shares), "joint": sha256_hex(joint)}
    return digest_of("sealsum/threshold/joint-key/v1", value)
