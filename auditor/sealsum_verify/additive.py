"""Check 8 for ``additive``: the sum is of the silos that all share servers accepted, and all opened it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sealsum_verify.encoding import demand
from sealsum_verify.messages import Message
from sealsum_verify.offers import Offer
from sealsum_verify.round_messages import Said, Summed
from sealsum_verify.scheme_terms import RING_PART, model_length, part_count


def check_manifest(offer: Offer, silo: str, message: Message) -> None:
    """A manifest lists the parts of one whole vector, and a seed for each server but the first."""
    plan, body = offer.plan, message.body
    asked = (plan["model"], model_length(plan), part_count(plan), sorted(offer.servers[1:]))
    given = (body["model"], body["vector_length"], len(body["parts"]), sorted(body["seeds"]))
    what = f"manifest of {silo}: model, length, parts or seeds are not the plan's"
    demand(given == asked, offer.entry, what)


def confirm(offer: Offer, said: Said, summed: Summed, opened: bool) -> None:
    """(8 g) additive: (i) the silos summed are those that every server accepted, with one and the same
    manifest; (ii) each server signed its share of that sum.
    """
    # (i)
    same_set = accepted_by_all(offer, said) == summed.manifests
    demand(same_set, offer.entry, "survivors: not the set that all servers accepted")
    # (ii)
    check_openings(offer, said, summed, RING_PART)


def accepted_by_all(offer: Offer, said: Said) -> Mapping[str, str]:
    """Silo → digest of the manifest that every server accepted of it, sorted."""
    sets = [message.body["manifests"] for message in one_of_each(offer, said.by_servers["accepted"])]
    agreed = [pair for pair in sets[0].items() if all(one.get(pair[0]) == pair[1] for one in sets)]
    return dict(sorted(agreed))


def check_openings(offer: Offer, said: Said, summed: Summed, elements: int) -> None:
    """Each share server signed one share of exactly this sum, whole."""
    share = (summed.digest, part_count(offer.plan, elements))
    for message in one_of_each(offer, said.by_servers["openings"], "opening"):
        given = (message.body["survivors"], len(message.body["parts"]))
        demand(given == share, offer.entry, f"opening of {message.sender}: it is of another sum")


def one_of_each(offer: Offer, messages: Iterable[Message], kind: str = "accepted") -> list[Message]:
    """The messages of one kind, one from each share server of the plan."""
    found = [message for message in messages if message.kind == kind]
    whole = sorted(message.sender for message in found) == sorted(offer.servers)
    demand(whole, offer.entry, f"{kind}: expected one from each share server")
    return found
