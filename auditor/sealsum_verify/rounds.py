"""Checks 8 and 9: a round's messages agree, one sum at most was opened, and it led to the next model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sealsum_verify import additive, he, pairwise, threshold, validity
from sealsum_verify.encoding import demand
from sealsum_verify.messages import Json, Message, Roster, open_envelope
from sealsum_verify.offers import Job, Offer
from sealsum_verify.round_messages import JOINT_KEY, ONE_KEY, Said, Summed, read_messages

Confirm = Callable[[Offer, Said, Summed, bool], None]
PROTOCOLS: dict[str, tuple[Callable[[Offer, str, Message], None], Confirm]] = {
    "additive": (additive.check_manifest, additive.confirm),
    "validity": (validity.check_manifest, validity.confirm),
    "pairwise": (pairwise.check_manifest, pairwise.confirm),
    **dict.fromkeys(ONE_KEY, (he.check_manifest, he.confirm)),
    **dict.fromkeys(JOINT_KEY, (threshold.check_manifest, threshold.confirm)),
}
"""Protocol → whether a manifest is on the plan's terms, and what else vouches for a sum."""


@dataclass(frozen=True)
class Round:
    """A round whose messages have been checked against one another."""

    offer: Offer
    manifests: Mapping[str, Message]
    summed: Summed | None
    result: Json


def read_round(offer: Offer, roster: Roster) -> Round:
    """(8) A round's messages agree, and one sum was opened or none:

    (a) to (c) each is of the scheme, and signed by whom it should be: ``read_messages``; (d) manifests are
    on the plan's terms; (e) the aggregator signed the result, which has a model only if a sum was opened;
    (f) then every server that sums signed the same survivors, silos of the cohort, by the manifests shown
    here, at least the minimum; (g) what else the scheme has parties sign says the same: ``confirm``.
    """
    entry, plan = offer.entry, offer.plan
    # (a), (b), (c)
    said = read_messages(offer, roster)
    check_manifest, confirm = PROTOCOLS[offer.protocol]
    # (d)
    for silo, manifest in said.manifests.items():
        check_manifest(offer, silo, manifest)
    # (e)
    envelope = offer.document["result"]
    key = roster.key(envelope["sender"], "aggregator", entry)
    result = open_envelope(envelope, "result", offer.context, key, entry).body
    opened = result["outcome"] == "opened"
    demand(result["model_in"] == plan["model"], entry, "result.model_in is not the plan's model")
    demand(result["openings"] in (0, 1), entry, "result.openings: a round opens one sum at most")
    check_further(offer, result, opened)
    # An aborted round may have opened a sum: its aggregator died before it could publish a model.
    demand(result["openings"] == 1 or not opened, entry, "result: opened without an opening")
    demand((result["model_out"] is not None) == opened, entry, "result: a model comes with an opened sum")
    if result["openings"] == 0:
        handed_out = said.by_servers["sum"] or said.by_silos["opened"]
        demand(not handed_out, entry, "result.openings is 0, and the aggregator has handed out a sum")
        return Round(offer, said.manifests, None, result)
    # (f)
    summed = _summed(offer, said)
    whole = not opened or result["survivors"] == list(summed.manifests)
    demand(whole, entry, "result.survivors is not the set summed")
    # (g)
    confirm(offer, said, summed, opened)
    return Round(offer, said.manifests, summed, result)


def check_further(offer: Offer, result: Json, opened: bool) -> None:
    """Each further vector opened, whole: sums are steps of its grid, within what the survivors can reach."""
    further = {one["name"]: one for one in offer.plan.get("further", [])} if opened else {}
    shown = result.get("further", {})
    demand(set(shown) == set(further), offer.entry, "result.further: not the plan's further vectors")
    for name, values in shown.items():
        terms, what = further[name]["terms"], f"result.further.{name}: not what its vector can open to"
        step, whole = 2.0 ** -terms["scale_bits"], len(values) == further[name]["coordinates"]
        reach = (float(terms["coordinate_bound"]) + step) * len(result["survivors"])
        weighted = further[name]["opens_to"] == "mean"
        for value in map(float, values):
            demand(abs(value) <= reach and (weighted or value % step == 0), offer.entry, what)
        demand(whole, offer.entry, what)


def _summed(offer: Offer, said: Said) -> Summed:
    """The one set that every server which sums has signed."""
    entry, least = offer.entry, offer.plan["min_survivors"]
    signers = sorted(message.sender for message in said.survivors)
    whole = signers == (sorted(offer.servers) or [offer.aggregator])
    demand(whole, entry, "survivors: expected one set from each server that sums")
    sets = [(message.body["survivors"], message.body["manifests"]) for message in said.survivors]
    for message, one in zip(said.survivors, sets, strict=True):
        demand(one == sets[0], entry, f"survivors of {message.sender}: not the set that the others signed")
    silos, digests = sets[0]
    form = silos == sorted(set(silos)) and len(digests) == len(silos)
    demand(form, entry, "survivors: expected distinct silos, sorted, with a manifest each")
    demand(len(silos) >= least, entry, f"fewer than {least} survivors")
    for silo, digest in zip(silos, digests, strict=True):
        known = silo in said.manifests and said.manifests[silo].digest == digest
        demand(known, entry, f"survivor {silo}: the manifest that it was summed by is missing")
    return Summed(dict(zip(silos, digests, strict=True)))


def check_model_chain(rounds: Iterable[Round], job: Job) -> str:
    """(9) Models form one chain; returns the last one's digest:

    (a) no round follows a finished or failed job; (b) the first round starts from the job's initial
    model, each later one from the last published. That no context repeats follows from distinct sessions.
    """
    model, state = str(job.terms["initial_model"]), "running"
    for one in rounds:
        demand(state == "running", one.offer.entry, f"the job was {state} before this round")  # (a)
        start = one.offer.plan["model"]
        demand(start == model, one.offer.entry, "it does not start from the last published model")  # (b)
        model, state = one.result["model_out"] or model, one.result["job_state"]
    return model
