"""One frozen model for each of the five messages, their size caps, and how each is signed and opened.

Each travels in the signed envelope of ``privacy.wire``. K (``key_set``) binds steps 2 to 5 to one set of
keys and one set of terms. Shares of step 5 are for the server alone and belong in no evidence pack.
"""

from __future__ import annotations

from typing import Annotated, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.chain import Head
from privacy.identity import SigningKey
from privacy.ids import Digest, HexDigest, HexKey, PartyId, SiloId, SiloName
from privacy.secagg.pairwise.terms import MAX_SILOS, PairwiseTerms
from privacy.wire.envelope import BROADCAST, Envelope, MessageKind, Verified, open_envelope, sign_message

ShareHex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{66}$")]
Silos = Annotated[tuple[SiloName, ...], Field(min_length=2, max_length=MAX_SILOS)]

SEALED_PAIR_BYTES = 1088 + 32 + 16 + 66
"""A key share and a seed share under hybrid HPKE (``privacy.sealing.SEALED_OVERHEAD_BYTES``)."""


class KeyAdvert(Frozen):
    """Step 1, silo → all: my keys of this round (Bonawitz et al. 2017, Figure 4, round 0)."""

    sealing_key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{2432}$")]
    """ML-KEM-768 ‖ X25519, made for this round: shares are sealed to it."""
    mask_key: HexKey
    """X25519: peers agree on masks with it; its private half is dealt out in step 2."""
    seed_commitment: HexDigest
    """H(b), so that the server can tell a rebuilt seed from a wrong one."""


class ShareBundle(Frozen):
    """Step 2, silo → one peer: a share of my mask key and one of my seed (Figure 4, round 1)."""

    key_set: HexDigest
    key_commitment: HexDigest
    """Digest of the key share, so that the server can tell who altered it."""
    seed_commitment: HexDigest
    sealed: Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{2 * SEALED_PAIR_BYTES}}}$")]


class MaskedInput(Frozen):
    """Step 3, silo → all: the one masked update I upload, by the digests of its parts (round 2)."""

    silo: SiloName
    key_set: HexDigest
    model: HexDigest
    """Digest of the model bytes the silo itself received; its masks are made under it."""
    dealers: Silos
    """U2: whose shares I hold, and with whom I share masks."""
    unusable: Annotated[tuple[SiloName, ...], Field(max_length=MAX_SILOS)]
    """Dealers whose shares did not open or do not fit their commitments: I can answer nothing for them."""
    parts: Annotated[tuple[HexDigest, ...], Field(min_length=1, max_length=100_000)]
    ledger_head: Head
    """Head of the silo's privacy ledger after reserving for this round: others witness it."""

    @model_validator(mode="after")
    def _silos_are_sorted(self) -> Self:
        for name, silos in (("dealers", self.dealers), ("unusable", self.unusable)):
            if list(silos) != sorted(set(silos)):
                raise ValueError(f"{name}: expected distinct silos, sorted")
        if not set(self.unusable) <= set(self.dealers):
            raise ValueError("unusable: expected dealers only")
        return self


class ConsistencySignature(Frozen):
    """Step 4, silo → all: the one set of survivors I will open masks for, ever, under this context."""

    key_set: HexDigest
    dealers: Silos
    survivors: Silos
    """U3."""
    inputs: Annotated[tuple[HexDigest, ...], Field(min_length=2, max_length=MAX_SILOS)]
    """Digest of each survivor's masked-input manifest, in the order of ``survivors``."""

    @model_validator(mode="after")
    def _survivors_are_dealers(self) -> Self:
        for name, silos in (("dealers", self.dealers), ("survivors", self.survivors)):
            if list(silos) != sorted(set(silos)):
                raise ValueError(f"{name}: expected distinct silos, sorted")
        if not set(self.survivors) <= set(self.dealers) or len(self.inputs) != len(self.survivors):
            raise ValueError("survivors: expected dealers, and one input digest for each")
        return self

    @property
    def digest(self) -> Digest:
        """What the answers of step 5 refer to."""
        return digest_of("sealsum/pairwise/consistency/v1", self)


class UnmaskShares(Frozen):
    """Step 5, silo → server: for each dealer a share of its seed *or* of its key, never of both (round 4)."""

    key_set: HexDigest
    consistency: HexDigest
    seed_shares: dict[SiloName, ShareHex] = Field(repr=False)
    """Survivor → share of b: takes its own mask off."""
    key_shares: dict[SiloName, ShareHex] = Field(repr=False)
    """Dropout → share of its mask key: takes off what its peers added for it."""

    @model_validator(mode="after")
    def _never_both_of_one_silo(self) -> Self:
        if set(self.seed_shares) & set(self.key_shares):
            raise ValueError("seed_shares, key_shares: both of one silo would open its update")
        return self


PairwiseMessage = KeyAdvert | ShareBundle | MaskedInput | ConsistencySignature | UnmaskShares
M = TypeVar("M", KeyAdvert, ShareBundle, MaskedInput, ConsistencySignature, UnmaskShares)

KINDS: dict[type[PairwiseMessage], MessageKind] = {
    KeyAdvert: "pairwise_keys",
    ShareBundle: "pairwise_shares",
    MaskedInput: "pairwise_masked",
    ConsistencySignature: "pairwise_consistency",
    UnmaskShares: "pairwise_unmask",
}
MAX_BYTES: dict[type[PairwiseMessage], int] = {
    KeyAdvert: 1 << 13,
    ShareBundle: 1 << 13,
    MaskedInput: 8 << 20,
    ConsistencySignature: 1 << 16,
    UnmaskShares: 1 << 16,
}
"""Largest body of each, checked before it is parsed."""


def sign(
    message: PairwiseMessage,
    terms: PairwiseTerms,
    silo: SiloId,
    key: SigningKey,
    recipient: PartyId = BROADCAST,
) -> Envelope:
    """Wrap and sign one message of this round."""
    return sign_message(message, KINDS[type(message)], terms.context, silo, key, recipient)


def open_from_silo(
    envelope: Envelope, model: type[M], terms: PairwiseTerms, recipient: PartyId = BROADCAST
) -> Verified[M]:
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
        recipient=recipient,
        max_bytes=MAX_BYTES[model],
    )
