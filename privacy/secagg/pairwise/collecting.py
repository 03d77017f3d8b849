"""The server's steps 1 to 3: believe each message or refuse its sender, then close the step by name.

``accept_*`` judges one silo's message; a refusal makes that silo a dropout and costs the others nothing.
``close_*`` freezes who is in and returns the value that the next step needs. Nothing here is secret: the
server relays what ``close_*`` returns, and each silo checks all of it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from privacy.errors import SignatureRejected
from privacy.ids import Digest, SiloId
from privacy.secagg.pairwise.faults import BadShare, BelowThreshold, Equivocation
from privacy.secagg.pairwise.masks import assert_distinct, assert_usable, key_set_digest
from privacy.secagg.pairwise.messages import KeyAdvert, MaskedInput, ShareBundle, open_from_silo
from privacy.secagg.pairwise.terms import PairwiseTerms
from privacy.wire.envelope import Envelope, Verified

V = TypeVar("V")


@dataclass(frozen=True)
class KeysClosed:
    """U1: who advertised keys."""

    terms: PairwiseTerms
    key_set: Digest
    adverts: Mapping[SiloId, Verified[KeyAdvert]]

    @property
    def relay(self) -> tuple[Envelope, ...]:
        """What every silo of U1 gets."""
        return tuple(item.envelope for item in self.adverts.values())


@dataclass(frozen=True)
class SharesClosed:
    """U2: who dealt shares to all of U1."""

    keys: KeysClosed
    bundles: Mapping[SiloId, Mapping[SiloId, Verified[ShareBundle]]]
    """Dealer → holder → bundle."""

    @property
    def dealers(self) -> tuple[SiloId, ...]:
        """Sorted."""
        return tuple(self.bundles)

    def inbox(self, holder: SiloId) -> tuple[Envelope, ...]:
        """What one silo of U2 gets: each dealer's bundle for it."""
        return tuple(by_holder[holder].envelope for by_holder in self.bundles.values())


@dataclass(frozen=True)
class MaskedClosed:
    """U3: whose masked update is here in full."""

    shares: SharesClosed
    manifests: Mapping[SiloId, Verified[MaskedInput]]

    @property
    def terms(self) -> PairwiseTerms:
        """The round's terms."""
        return self.shares.keys.terms

    @property
    def survivors(self) -> tuple[SiloId, ...]:
        """Sorted."""
        return tuple(self.manifests)

    @property
    def dropouts(self) -> tuple[SiloId, ...]:
        """U2 \\ U3: the others added masks for them that must come off."""
        return tuple(silo for silo in self.shares.dealers if silo not in self.manifests)

    @property
    def relay(self) -> tuple[Envelope, ...]:
        """What every survivor gets."""
        return tuple(item.envelope for item in self.manifests.values())


def accept_keys(terms: PairwiseTerms, envelope: Envelope) -> Verified[KeyAdvert]:
    """Step 1, one silo: signed by it, with keys that its peers can use.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message. BadKey: the keys.
    """
    advert = open_from_silo(envelope, KeyAdvert, terms)
    assert_usable(SiloId(advert.sender), advert.message)
    return advert


def close_keys(terms: PairwiseTerms, adverts: Iterable[Verified[KeyAdvert]]) -> KeysClosed:
    """Freeze U1 and K.

    Raises:
        Equivocation: two adverts of one silo. BadKey: two silos with one key. BelowThreshold.
    """
    by_silo = one_each("keys", ((SiloId(advert.sender), advert) for advert in adverts))
    assert_distinct({silo: advert.message for silo, advert in by_silo.items()})
    enough("keys", by_silo, terms.required)
    digests = {silo: advert.envelope.body_digest for silo, advert in by_silo.items()}
    return KeysClosed(terms, key_set_digest(terms, digests), by_silo)


def accept_shares(
    keys: KeysClosed, envelopes: Sequence[Envelope]
) -> tuple[SiloId, Mapping[SiloId, Verified[ShareBundle]]]:
    """Step 2, one silo: a bundle for each silo of U1, under K.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the messages, or another K.
        BadShare: a holder without a bundle, or with two, or bundles of several dealers.
    """
    opened = [open_from_silo(bundle, ShareBundle, keys.terms, bundle.recipient) for bundle in envelopes]
    by_holder = {SiloId(bundle.recipient): item for bundle, item in zip(envelopes, opened, strict=True)}
    dealers = {SiloId(item.sender) for item in opened}
    if len(dealers) != 1 or not dealers <= set(keys.adverts):
        raise BadShare("shares: expected the bundles of one dealer whose keys are known")
    (dealer,) = dealers
    if len(by_holder) != len(opened) or set(by_holder) != set(keys.adverts):
        raise BadShare(f"shares of silo {dealer}: expected one bundle for each of {len(keys.adverts)} silos")
    if any(item.message.key_set != keys.key_set for item in opened):
        raise SignatureRejected(f"shares of silo {dealer}: they are bound to another set of keys")
    return dealer, by_holder


def close_shares(
    keys: KeysClosed, dealt: Iterable[tuple[SiloId, Mapping[SiloId, Verified[ShareBundle]]]]
) -> SharesClosed:
    """Freeze U2.

    Raises:
        Equivocation: a silo dealt twice. BelowThreshold.
    """
    bundles = one_each("shares", dealt)
    enough("shares", bundles, keys.terms.required)
    return SharesClosed(keys, bundles)


def accept_masked(shares: SharesClosed, envelope: Envelope) -> Verified[MaskedInput]:
    """Step 3, one silo: a manifest made under the same K, dealers and model as everyone else's.

    Raises:
        SignatureRejected, MalformedMessage, NotAllowed: the message. Equivocation: it was made under
            other terms, so that its masks would not come off; its sender is a dropout.
    """
    terms = shares.keys.terms
    manifest = open_from_silo(envelope, MaskedInput, terms)
    message = manifest.message
    expected = (shares.keys.key_set, shares.dealers, terms.model, terms.places.total)
    if (message.key_set, message.dealers, message.model, len(message.parts)) != expected:
        raise Equivocation(
            f"masked of silo {manifest.sender}: it is made under other keys, dealers, model or length"
        )
    if manifest.sender not in shares.bundles:
        raise Equivocation(
            f"masked of silo {manifest.sender}: it dealt no shares, so its mask cannot come off"
        )
    if message.silo != manifest.sender:
        raise Equivocation(f"masked of silo {manifest.sender}: it speaks for silo {message.silo}")
    return manifest


def close_masked(shares: SharesClosed, manifests: Iterable[Verified[MaskedInput]]) -> MaskedClosed:
    """Freeze U3, and refuse early what could not be opened later.

    Raises:
        Equivocation: a silo uploaded twice. BelowThreshold. BadShare: so many survivors cannot use a
            dealer's shares that its masks could not come off.
    """
    by_silo = one_each("masked", ((SiloId(item.sender), item) for item in manifests))
    terms = shares.keys.terms
    enough("masked", by_silo, terms.required)
    for dealer in shares.dealers:
        holders = sum(dealer not in item.message.unusable for item in by_silo.values())
        if holders < terms.threshold:
            raise BadShare(
                f"shares of silo {dealer}: {len(by_silo) - holders} silos cannot use theirs, "
                f"{terms.threshold} must; start a round without it"
            )
    return MaskedClosed(shares, by_silo)


def one_each(step: str, items: Iterable[tuple[SiloId, V]]) -> dict[SiloId, V]:
    """Silo → its one item, sorted by silo.

    Raises:
        Equivocation: two of one silo.
    """
    by_silo: dict[SiloId, V] = {}
    for silo, item in items:
        if silo in by_silo:
            raise Equivocation(f"{step}: silo {silo} sent two; expected one")
        by_silo[silo] = item
    return dict(sorted(by_silo.items()))


def enough(step: str, silos: Mapping[SiloId, object], required: int) -> None:
    """Raises BelowThreshold if fewer than ``required`` silos are left."""
    if len(silos) < required:
        raise BelowThreshold(
            f"{step}: expected at least {required} silos, got {len(silos)}; nothing is opened"
        )
