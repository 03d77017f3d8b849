"""Check 8 for ``additive`` with proofs of validity: coins that nobody chose, and a verdict on every silo.

The proofs themselves are not in a pack, as they say something about updates; servers' verdicts are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sealsum_verify.additive import accepted_by_all, check_openings, one_of_each
from sealsum_verify.encoding import demand, digest_of
from sealsum_verify.messages import Json, Message
from sealsum_verify.offers import Offer
from sealsum_verify.round_messages import Said, Summed
from sealsum_verify.scheme_terms import FIELD_PART, part_count

_PROJECTION_BITS, _PROJECTIONS = 28, 48


def check_manifest(offer: Offer, silo: str, message: Message) -> None:
    """A manifest lists the parts of one whole vector over the field, a seed for every server, the terms."""
    plan, body = offer.plan, message.body
    names = (plan["model"], _terms(plan), plan["parameters"] + 1, sorted(offer.servers))
    given = (body["model"], body["terms"], body["vector_length"], sorted(body["seeds"]))
    whole = given == names and len(body["parts"]) == part_count(plan, FIELD_PART)
    what = f"manifest of {silo}: model, validity terms, length, parts or seeds are not the plan's"
    demand(whole, offer.entry, what)


def confirm(offer: Offer, said: Said, summed: Summed, opened: bool) -> None:
    """(8 g) additive with validity:

    (i) the first coin is of all servers, over the manifests that all of them accepted; (ii) each proof is
    about its silo's manifest and that coin; (iii) the second coin is of all servers, over those proofs;
    (iv) every server judged every silo that proved, and no other, all by the same checks and that coin;
    (v) the silos summed are those that every server passed, so whoever proved and is not among them failed
    a check; (vi) each server signed its share of that sum.
    """
    entry = offer.entry
    # (i)
    accepted = accepted_by_all(offer, said)
    coin = _coin(offer, said, 1, accepted)
    # (ii)
    proofs = said.by_silos["proofs"]
    for silo, proof in proofs.items():
        about = (proof.body["shares"], proof.body["coin"]) == (accepted.get(silo), coin)
        demand(about, entry, f"proof of {silo}: it is about another update or coin")
    # (iii)
    coin = _coin(offer, said, 2, {silo: proof.digest for silo, proof in proofs.items()})
    # (iv)
    passed = {silo: accepted[silo] for silo in sorted(proofs)}
    checks: dict[str, str] = {}
    for message in one_of_each(offer, said.by_servers["verdicts"], "validity_verdict"):
        verdicts = {verdict["silo"]: verdict for verdict in message.body["verdicts"]}
        all_judged = list(verdicts) == sorted(proofs) and len(message.body["verdicts"]) == len(verdicts)
        what = f"verdicts of {message.sender}: expected one on each silo that proved, by the second coin"
        demand(all_judged and message.body["coin"] == coin, entry, what)
        for silo, verdict in verdicts.items():
            same_check = checks.setdefault(silo, verdict["check"]) == verdict["check"]
            demand(same_check, entry, f"verdict of {message.sender} on {silo}: it judged another check")
            if verdict["failed"] is not None:
                passed.pop(silo, None)
    # (v)
    demand(passed == summed.manifests, entry, "survivors: not the silos that every server passed")
    # (vi)
    check_openings(offer, said, summed, FIELD_PART)


def _terms(plan: Json) -> str:
    """Digest of the validity terms that follow from the plan."""
    terms = {"dimension": plan["parameters"], "norm_bound": plan["validity"]["norm_bound"]}
    terms |= {"projection_bits": _PROJECTION_BITS, "projections": _PROJECTIONS}
    terms["scale_bits"] = plan["vector"]["scale_bits"]
    return digest_of("sealsum/validity/terms/v1", terms)


def _coin(offer: Offer, said: Said, step: int, manifests: Mapping[str, str]) -> str:
    """Digest of a toss that is bound to ``manifests``: each server revealed what it had committed to."""
    frozen = digest_of("sealsum/validity/frozen/v1", manifests)
    coins, kinds = said.by_servers["coins"], (f"coin{step}_commitment", f"coin{step}_reveal")
    commitments, reveals = (one_of_each(offer, coins, kind) for kind in kinds)
    bound = all((one.body["step"], one.body["frozen"]) == (step, frozen) for one in commitments + reveals)
    demand(bound, offer.entry, f"coin {step}: it was tossed over other manifests")
    committed = {message.sender: message.body["commitment"] for message in commitments}
    running = hashlib.sha256(_toss("coin", offer, step, frozen))
    for reveal in sorted(reveals, key=lambda message: message.sender):
        value = reveal.sender.encode() + b"\x00" + bytes.fromhex(reveal.body["value"])
        commitment = hashlib.sha256(_toss("commitment", offer, step, frozen) + value).hexdigest()
        kept = commitment == committed[reveal.sender]
        demand(kept, offer.entry, f"coin {step}: {reveal.sender} revealed another value than it committed to")
        running.update(value)
    return hashlib.sha256(b"sealsum/validity/coin-name/v1\x00" + running.digest()).hexdigest()


def _toss(purpose: str, offer: Offer, step: int, frozen: str) -> bytes:
    label = (b"sealsum/validity/toss/v1", purpose.encode())
    bound = (bytes.fromhex(offer.context), str(step).encode(), bytes.fromhex(frozen), b"")
    return b"\x00".join((*label, *bound))
