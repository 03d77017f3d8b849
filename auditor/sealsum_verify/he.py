"""Check 8 for ``bfv`` and ``ckks``: one key, one sum of ciphertexts, and silos that agree on what it says."""

from __future__ import annotations

from collections.abc import Mapping

from sealsum_verify.encoding import demand
from sealsum_verify.messages import Message
from sealsum_verify.offers import Offer
from sealsum_verify.round_messages import Said, Summed
from sealsum_verify.scheme_terms import ciphertext_parts, model_length, part_count


def check_manifest(offer: Offer, silo: str, message: Message) -> None:
    """A manifest lists the parts of one whole encrypted vector, under the plan's parameters."""
    plan, body = offer.plan, message.body
    given = (body["model"], body["parameters"], body["vector_length"], len(body["parts"]))
    asked = (plan["model"], plan["he"], model_length(plan), ciphertext_parts(plan))
    what = f"manifest of {silo}: model, parameters, length or parts are not the plan's"
    demand(given == asked, offer.entry, what)


def confirm(offer: Offer, said: Said, summed: Summed, opened: bool) -> None:
    """(8 g) bfv, ckks:

    (i) all survivors encrypted under one key; (ii) the aggregator signed one sum, under that key and the
    plan's parameters, of exactly the survivors' manifests; (iii) what survivors say that it decrypts to is
    about this sum; (iv) where a model came of it, as many as the minimum said so, and all the same.
    """
    entry, plan = offer.entry, offer.plan
    # (i)
    keys = {said.manifests[silo].body["key"] for silo in summed.manifests}
    demand(len(keys) == 1, entry, f"manifests: expected one key id, got {len(keys)}")
    # (ii)
    signed = the_sum(offer, said, summed, "survivors")
    body = signed.body
    under = (body["parameters"], body["key"], body["vector_length"], len(body["parts"]))
    asked = (plan["he"], keys.pop(), model_length(plan), ciphertext_parts(plan))
    demand(under == asked, entry, "sum: key, parameters, length or parts are not the round's")
    # (iii)
    answers = opened_by(offer, said, summed, signed.digest, part_count(plan))
    # (iv)
    if opened:
        least = max(2, plan["min_survivors"])
        demand(len(answers) >= least, entry, f"opened: expected {least} silos' words, got {len(answers)}")
        first = next(iter(answers.values())).body["parts"]
        for silo, message in answers.items():
            demand(message.body["parts"] == first, entry, f"opened of {silo}: it says another sum")


def the_sum(offer: Offer, said: Said, summed: Summed, silos: str) -> Message:
    """The aggregator's one sum of ciphertexts, of exactly the survivors' manifests; ``silos`` names them."""
    sums = said.by_servers["sum"]
    demand(len(sums) == 1, offer.entry, f"sum: expected one signed by the aggregator, got {len(sums)}")
    of = (sums[0].body[silos], sums[0].body["manifests"])
    same_set = of == (list(summed.manifests), list(summed.manifests.values()))
    demand(same_set, offer.entry, "sum: it is not of the survivors' manifests")
    return sums[0]


def opened_by(offer: Offer, said: Said, summed: Summed, digest: str, parts: int) -> Mapping[str, Message]:
    """What survivors, and nobody else, signed of the opening of this very sum, by silo."""
    for silo, message in said.by_silos["opened"].items():
        demand(silo in summed.manifests, offer.entry, f"opened of {silo}: it is not a survivor")
        about = (message.body["sum"], len(message.body["parts"])) == (digest, parts)
        demand(about, offer.entry, f"opened of {silo}: it is of another sum")
    return said.by_silos["opened"]
