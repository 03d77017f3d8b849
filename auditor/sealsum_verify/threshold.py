"""Check 8 for ``threshold_bfv`` and ``threshold_ckks``: one joint key of all silos, and one sum they opened.

The key shares and partial decryptions themselves are in no pack, so that a joint key is not added up again
here: every silo has done that, and its manifest names what it came to.
"""

from __future__ import annotations

from sealsum_verify.encoding import demand
from sealsum_verify.he import opened_by, the_sum
from sealsum_verify.messages import Message
from sealsum_verify.offers import Offer
from sealsum_verify.round_messages import Said, Summed
from sealsum_verify.scheme_terms import ciphertext_parts, model_length


def check_manifest(offer: Offer, silo: str, message: Message) -> None:
    """A manifest lists both halves of each part of one encrypted vector, under the plan's parameters."""
    plan, body = offer.plan, message.body
    parts = ciphertext_parts(plan)
    halves = (len(body["bodies"]), len(body["masks"]))
    given = (body["model"], body["parameters"], body["vector_length"], *halves)
    asked = (plan["model"], plan["he"], model_length(plan), parts, parts)
    what = f"manifest of {silo}: model, parameters, length or parts are not the plan's"
    demand(given == asked, offer.entry, what)


def confirm(offer: Offer, said: Said, summed: Summed, opened: bool) -> None:
    """(8 g) threshold_bfv, threshold_ckks:

    (i) every silo of the joint key is in the sum: nobody else sent a manifest; each committed to a key share
    of its own, and all came to one joint key; (ii) no ciphertext is named twice: whoever names another's
    would have it counted again; (iii) the aggregator signed one sum, under that key, of exactly the
    survivors' manifests; (iv) whoever helped to open is a survivor, and helped with this sum; (v) where a
    model came of it, all survivors did.
    """
    entry, survivors = offer.entry, list(summed.manifests)
    bodies = {silo: said.manifests[silo].body for silo in survivors}
    # (i)
    demand(sorted(said.manifests) == survivors, entry, "survivors: expected every silo with a manifest")
    commits = said.by_silos["keys"]
    missing = sorted(set(survivors) - set(commits))
    demand(not missing, entry, f"keys: {', '.join(missing)} committed to no key share")
    distinct = len({message.body["commitment"] for message in commits.values()}) == len(commits)
    demand(distinct, entry, "keys: two silos with one commitment")
    keys = {body["joint_key"] for body in bodies.values()}
    demand(len(keys) == 1, entry, f"manifests: expected one joint key, got {len(keys)}")
    # (ii)
    digests = [digest for body in bodies.values() for digest in (*body["bodies"], *body["masks"])]
    demand(len(set(digests)) == len(digests), entry, "manifests: a ciphertext is named twice")
    # (iii)
    signed = the_sum(offer, said, summed, "silos")
    body, parts = signed.body, ciphertext_parts(offer.plan)
    under = (body["joint_key"], len(body["bodies"]), len(body["masks"]))
    demand(under == (keys.pop(), parts, parts), entry, "sum: key or parts are not the round's")
    # (iv)
    partials = opened_by(offer, said, summed, signed.digest, parts)
    # (v)
    if opened:
        silent = sorted(set(survivors) - set(partials))
        demand(not silent, entry, f"opened: {', '.join(silent)} did not help, and nothing opens without them")
