"""Check 8 for ``pairwise``: one set of keys, and t silos who signed the survivors before masks came off."""

from __future__ import annotations

from sealsum_verify.encoding import demand, digest_of, same
from sealsum_verify.messages import Message
from sealsum_verify.offers import Offer
from sealsum_verify.round_messages import Said, Summed
from sealsum_verify.scheme_terms import further_lengths, model_length, part_count


def check_manifest(offer: Offer, silo: str, message: Message) -> None:
    """A manifest lists the parts of one whole masked vector, under the plan's model."""
    plan, body = offer.plan, message.body
    given = (body["model"], len(body["parts"]))
    asked = (plan["model"], part_count(plan))
    demand(given == asked, offer.entry, f"manifest of {silo}: model or parts are not the plan's")


def confirm(offer: Offer, said: Said, summed: Summed, opened: bool) -> None:
    """(8 g) pairwise (Bonawitz et al. 2017, Figure 4):

    (i) every survivor masked under the one K that follows from the plan and all silos' keys, with the same
    dealers, survivors among them, all of whom sent keys; (ii) whoever signed the survivors is one of them,
    and signed exactly this set, under K; (iii) these are at least t, and so are the survivors.
    """
    entry, plan = offer.entry, offer.plan
    key_set = _key_set(offer, said)
    # (i)
    dealers = {silo: said.manifests[silo].body["dealers"] for silo in summed.manifests}
    first = next(iter(dealers.values()))
    for silo, names in dealers.items():
        body = said.manifests[silo].body
        demand(body["key_set"] == key_set, entry, f"manifest of {silo}: its K is not that of the round")
        demand(names == first, entry, f"manifest of {silo}: it names other dealers than the others do")
        demand(set(body["unusable"]) <= set(names), entry, f"manifest of {silo}: unusable are dealers only")
    known = first == sorted(set(first)) and set(summed.manifests) <= set(first) <= set(said.by_silos["keys"])
    demand(known, entry, "manifests: dealers are not silos that sent keys, the survivors among them")
    # (ii)
    survivors, inputs = list(summed.manifests), list(summed.manifests.values())
    statement = {"key_set": key_set, "dealers": first, "survivors": survivors, "inputs": inputs}
    signatures = said.by_silos["consistency"]
    for silo, message in signatures.items():
        demand(silo in summed.manifests, entry, f"consistency of {silo}: it is not a survivor")
        demand(same(message.body, statement), entry, f"consistency of {silo}: it is of another set")
    # (iii)
    least = plan["threshold"]
    enough = len(signatures) >= least
    demand(enough, entry, f"consistency: expected {least} survivors' signatures, got {len(signatures)}")


def _key_set(offer: Offer, said: Said) -> str:
    """K: the digest of the terms, rebuilt from the plan, and of every silo's keys."""
    plan = offer.plan
    terms = {field: plan[field] for field in ("model", "cohort", "threshold")}
    terms |= {"context": offer.context, "server": offer.aggregator, "vector_length": model_length(plan)}
    terms["minimum"] = plan["min_survivors"]
    if plan.get("further"):
        terms["further"] = further_lengths(plan)
    adverts = {silo: message.digest for silo, message in said.by_silos["keys"].items()}
    value = {"terms": digest_of("sealsum/pairwise/terms/v1", terms), "adverts": adverts}
    return digest_of("sealsum/pairwise/key-set/v1", value)
