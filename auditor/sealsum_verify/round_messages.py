"""Check 8, first half: who signed what in a round, one table for all schemes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sealsum_verify.encoding import demand, digest_of
from sealsum_verify.messages import Json, Message, Roster, open_envelope
from sealsum_verify.offers import Offer

ONE_KEY, JOINT_KEY = ("bfv", "ckks"), ("threshold_bfv", "threshold_ckks")
"""Schemes whose rounds have the same messages."""
MANIFESTS = {"additive": "manifest", "validity": "validity_manifest", "pairwise": "pairwise_masked"}
MANIFESTS |= dict.fromkeys(ONE_KEY, "he_manifest") | dict.fromkeys(JOINT_KEY, "threshold_manifest")
"""Protocol → the kind of a silo's one manifest."""
_BY_SILOS = {
    "refusals": "refusal",
    "keys": "pairwise_keys",
    "consistency": "pairwise_consistency",
    "opened": "he_opened",
    "proofs": "validity_proof",
}
_JOINT_KEY = {"keys": "threshold_commit", "opened": "threshold_partial"}
"""What stands there instead in rounds of a joint key."""
_COINS = ("coin1_commitment", "coin1_reveal", "coin2_commitment", "coin2_reveal")
_BY_SERVERS = {
    "accepted": ("share_server", ("accepted",)),
    "openings": ("share_server", ("opening",)),
    "coins": ("share_server", _COINS),
    "verdicts": ("share_server", ("validity_verdict",)),
    "sum": ("aggregator", ("he_sum",)),
}
"""Section → the role of who signs, and the kinds of messages."""
_JOINT_SUM = {"sum": ("aggregator", ("threshold_sum",))}
_ADDITIVE = {"accepted", "openings"}
_SECTIONS = {"additive": _ADDITIVE, "validity": _ADDITIVE | {"coins", "proofs", "verdicts"}}
_SECTIONS |= {"pairwise": {"keys", "consistency"}} | {scheme: {"sum", "opened"} for scheme in ONE_KEY}
_SECTIONS |= {scheme: {"keys", "sum", "opened"} for scheme in JOINT_KEY}
"""Protocol → the sections of its own; the others are empty."""


@dataclass(frozen=True)
class Said:
    """The messages of a round, by section; each believed, and not yet compared with one another."""

    manifests: Mapping[str, Message]
    survivors: list[Message]
    by_silos: Mapping[str, Mapping[str, Message]]
    by_servers: Mapping[str, list[Message]]


@dataclass(frozen=True)
class Summed:
    """Whose updates are in a round's one sum: silo → digest of its manifest, sorted."""

    manifests: Mapping[str, str]

    @property
    def digest(self) -> str:
        """How logs and opening shares name it."""
        fields = {"survivors": list(self.manifests), "manifests": list(self.manifests.values())}
        return digest_of("sealsum/survivors/v1", fields)


def read_messages(offer: Offer, roster: Roster) -> Said:
    """(8) What parties of a round said:

    (a) no section holds messages of another scheme; (b) manifests, refusals and silos' other messages are
    signed by silos of the cohort, each for itself, under the round's context; (c) so is what servers sent,
    one of a kind each: share servers, or the aggregator where the scheme has none.
    """
    document, protocol = offer.document, offer.protocol
    # (a)
    for section in (*_BY_SILOS, *_BY_SERVERS):
        foreign = section != "refusals" and section not in _SECTIONS[protocol]
        demand(not foreign or not document[section], offer.entry, f"{section}: {protocol} has none")
    # (b)
    joint = protocol.startswith("threshold_")
    kinds_of = {**_BY_SILOS, **(_JOINT_KEY if joint else {})}
    by_silos = {name: _from_silos(offer, kind, document[name]) for name, kind in kinds_of.items()}
    manifests = _from_silos(offer, MANIFESTS[protocol], document["manifests"])
    # (c)
    by_servers = {
        name: _from_servers(offer, roster, role, kinds, document[name])
        for name, (role, kinds) in {**_BY_SERVERS, **(_JOINT_SUM if joint else {})}.items()
    }
    summing = "share_server" if offer.servers else "aggregator"
    survivors = _from_servers(offer, roster, summing, ("survivors",), document["survivors"])
    return Said(manifests, survivors, by_silos, by_servers)


def _from_silos(offer: Offer, kind: str, envelopes: Mapping[str, Json]) -> dict[str, Message]:
    messages: dict[str, Message] = {}
    for silo, envelope in envelopes.items():
        demand(silo in offer.invited, offer.entry, f"{kind} of {silo}: it was not invited")
        messages[silo] = open_envelope(envelope, kind, offer.context, offer.invited[silo], offer.entry)
        own = envelope["sender"] == silo == messages[silo].body.get("silo", silo)
        demand(own, offer.entry, f"{kind} of {silo}: it speaks for another silo")
    return messages


def _from_servers(
    offer: Offer, roster: Roster, role: str, kinds: tuple[str, ...], envelopes: Iterable[Json]
) -> list[Message]:
    messages: dict[tuple[str, str], Message] = {}
    for envelope in envelopes:
        server, kind = envelope["sender"], envelope["kind"]
        demand(kind in kinds, offer.entry, f"{kind} of {server}: expected a message of kind {kinds[0]}")
        key = roster.key(server, role, offer.entry)
        message = open_envelope(envelope, kind, offer.context, key, offer.entry)
        own = message.body.get("server", server) == server
        demand(own, offer.entry, f"{kind} of {server}: it is another's")
        demand((kind, server) not in messages, offer.entry, f"{kind} of {server}: there are two")
        messages[kind, server] = message
    return list(messages.values())
