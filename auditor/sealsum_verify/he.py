"""Check 8 for ``bfv`` and ``ckks``: one key, one sum of ciphertexts, and silos that agree on what it says."""

from __future__ import annotations

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
    sums = said.by_servers["sum"]
    demand(len(sums) == 1, entry, f"sum: expected one signed by the aggregator, got {len(sums)}")
    body = sums[0].body
    under = (body["parameters"], body["key"], body["vector_length"], len(body["parts"]))
    asked = (plan["he"], keys.pop(), model_length(plan), ciphertext_parts(plan))
    demand(under == asked, entry, "sum: key, parameters, length or parts are not the round's")
    of = (body["survivors"], body["manifests"])
    same_set = of == (list(summed.manifests), list(summed.manifests.values()))
    demand(same_set, entry, "sum: it is not of the survivors' manifests")
    # (iii)
    answers = said.by_silos["opened"]
    for silo, message in answers.items():
        demand(silo in summed.manifests, entry, f"opened of {silo}: it is not a survivor")
        about = (message.body["sum"], len(message.body["parts"])) == (sums[0].digest, part_count(plan))
        demand(about, entry, f"opened of {silo}: it is of another sum")
    # (iv)
    if opened:
        least = max(2, plan["min_survivors"])
        demand(len(answers) >= least, entry, f"opened: expected {least} silos' words, got {len(answers)}")
        first = next(iter(answers.values())).body["parts"]
        for silo, message in answers.items():
            demand(message.body["parts"] == first, entry, f"opened of {silo}: it says another sum")
