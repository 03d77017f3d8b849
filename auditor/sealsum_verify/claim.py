"""Check 12: the privacy claim says what the ledgers say, and each ε lies where the true one can be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sealsum_verify.accountant import epsilon_lower, epsilon_upper
from sealsum_verify.encoding import Fault, demand, same
from sealsum_verify.messages import Json, Roster, read_document
from sealsum_verify.offers import Job, Offer
from sealsum_verify.records import Spending, charged_noise
from sealsum_verify.threat_model import hostile

ENTRY = "dp/claim.json"
REPLAY, ATTACKS = "dp/accountant-replay.json", "tests/attack.json"
_PROVED = ("epsilon_at_least", "attack", "protection", "epsilon_claimed_there", "entry")
_ROUNDING = 1e-4
"""Claimed values are rounded up to four decimals."""
_RDP_TOLERANCE = 0.02
"""The claim's RDP value may come from other orders than ours; it must still be this near."""


@dataclass(frozen=True)
class Bracket:
    """A silo's claimed ε between the bounds computed here."""

    lower: float
    claimed: float
    upper: float
    rounds: int
    fallback: Bracket | None = None
    """The same of its own noise alone, where a secure sum adds up shares of noise."""


def check_claim(
    claim: Json,
    files: Mapping[str, bytes],
    job: Job,
    spending: Mapping[str, Spending],
    offers: Sequence[Offer],
    roster: Roster,
) -> dict[str, Bracket]:
    """(12) The claim is true of the ledgers:

    (a) its scheme, unit, records a unit, adjacency, δ, mechanism and whose noise it is are the job's; (b) it
    names exactly the silos that reserved, with their rounds and steps; (c) each ε, with all noise and with
    the silo's own alone, lies between the lower and the upper bound computed here, its RDP value agrees with
    ours; (d) ε and δ are within the caps that the silo signed into its ledger; (e) the sentence for people
    gives the same numbers; (f) where noise comes in shares, so many honest silos' shares are in every sum
    that a plan allows to open; (g) the replay lists the ledger's reservations, and each ε on the way lies
    between our bounds, the last being the claim's; (h) what an attack proved is what its results say.
    """
    dp = job.terms["dp"]
    replay = read_document(files[REPLAY], "replay", REPLAY)["silos"]
    demand(sorted(replay) == sorted(spending), REPLAY, "expected the silos whose ledgers reserved")
    _check_empirical(claim.get("empirical"), files)  # (h)
    # (f)
    _check_shares(dp, offers, roster)
    # (a)
    for field, expected in _terms(job).items():
        demand(field in claim and same(claim[field], expected), ENTRY, f"{field} is not what the job says")
    demand(not dp or claim.get("model", {}).get("kind") == dp["model"], ENTRY, "model.kind: not the job's")
    # (b)
    demand(sorted(claim["silos"]) == sorted(spending), ENTRY, "silos: expected those whose ledgers reserved")
    brackets: dict[str, Bracket] = {}
    for silo, spent in sorted(spending.items()):
        row = claim["silos"][silo]
        brackets[silo] = _check_row(ENTRY, dp, silo, spent, row)  # (c), (d)
        _check_replay(replay[silo], dp, silo, spent, row)  # (g)
    # (e)
    demand(claim["statement"] == _sentence(claim, job), ENTRY, "statement: not what the numbers say")
    return brackets


def _check_row(entry: str, dp: Json, silo: str, spent: Spending, row: Json) -> Bracket:
    """(12 b, c, d) What one silo's rounds so far have cost, as stated and as computed here."""
    counted = (row["rounds"], row["steps"]) == (spent.rounds, spent.steps)
    demand(counted, entry, f"{silo}: its ledger has {spent.rounds} rounds, {spent.steps} steps")
    shared, noise = dp["noise_shares"] is not None, float(charged_noise(dp) or 0)
    demand(not shared or spent.fallback is not None, entry, f"{silo}: its ledger reserved no fallback")
    caps = spent.caps["epsilon"]
    own = float(spent.fallback or 0) if shared else noise
    whole = _bracket(entry, dp, silo, spent, row, "epsilon", noise, caps["job"])
    alone = (caps["fallback"] or caps)["job"]
    fallback = _bracket(entry, dp, silo, spent, row, "epsilon_fallback", own, alone)
    full = float(dp["sample_rate"]) == 1  # μ: without sampling alone, the square root of steps over σ
    mu = math.sqrt(spent.steps) / noise if full else 0.0
    known = (row["mu"] is not None) == full and abs(float(row["mu"] or 0) - mu) <= _ROUNDING
    demand(known, entry, f"{silo}: mu is not {mu:.4f}")
    return replace(whole, fallback=fallback if shared else None)


def _check_replay(replay: Json, dp: Json, silo: str, spent: Spending, row: Json) -> None:
    """(12 g) One block for each reservation in the ledger, and what can be true after each."""
    fields = ("entry", "at", "first_round", "last_round", "event", "fallback")
    listed = [[block[field] for field in fields] for block in replay["blocks"]]
    reserved = [[block[field] for field in fields] for block in spent.blocks]
    demand(same(listed, reserved), REPLAY, f"{silo}: not the reservations of its ledger")
    caps = {field: spent.caps[field] for field in ("epsilon", "delta_max", "unit")}
    demand(same(replay["caps"], caps), REPLAY, f"{silo}: other caps than its ledger's")
    rounds = 0
    for block in replay["blocks"]:
        rounds += block["last_round"] - block["first_round"] + 1
        so_far = replace(spent, rounds=rounds, steps=rounds * block["event"]["steps"])
        _check_row(REPLAY, dp, silo, so_far, block["after"])
    ends = same(replay["blocks"][-1]["after"], row)
    demand(ends, REPLAY, f"{silo}: it does not end with what {ENTRY} claims")


def _check_empirical(stated: Json | None, files: Mapping[str, bytes]) -> None:
    """(12 h) The largest ε that an attack proved where noise protects; the results are self-reported."""
    try:
        rows = json.loads(files[ATTACKS])["attacks"] if ATTACKS in files else []
        proved = [
            (figures["epsilon_at_least"], one["name"], one["protection"], figures["epsilon_claimed"])
            for one, figures in ((one, one["figures"]) for one in rows)
            if one["protected"] and {"epsilon_at_least", "epsilon_claimed"} <= figures.keys()
        ]
        most = max(proved, default=None)
        told = stated and tuple(stated[name] for name in _PROVED)
        expected = most and (f"{most[0]:.4f}", *most[1:3], f"{most[3]:.4f}", ATTACKS)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Fault(ATTACKS, f"expected results of attacks ({type(error).__name__})") from error
    demand(told == expected, ENTRY, f"empirical: not what {ATTACKS} says")


def _bracket(
    entry: str, dp: Json, silo: str, spent: Spending, row: Json, name: str, noise: float, cap: str
) -> Bracket:
    rate, delta = float(dp["sample_rate"]), float(dp["delta"])
    sane = 0 < rate <= 1 and 0.01 <= noise <= 1e6 and 1e-30 <= delta < 1 and 0 < spent.steps <= 1_000_000
    demand(sane, entry, f"{silo}: its terms are outside what can be accounted for")
    lower, upper = (bound(rate, noise, spent.steps, delta) for bound in (epsilon_lower, epsilon_upper))
    claimed, rdp = float(row[name]), float(row[f"{name}_rdp"])
    demand(claimed <= upper + _ROUNDING, entry, f"{silo}: {name} {claimed:g} is above the bound {upper:.4f}")
    demand(claimed >= lower, entry, f"{silo}: {name} {claimed:g} is below {lower:.4f}, the least it can be")
    near = math.isclose(rdp, upper, rel_tol=_RDP_TOLERANCE, abs_tol=_RDP_TOLERANCE)
    demand(near, entry, f"{silo}: its RDP value {rdp:g} is not near ours, {upper:.4f}")
    capped = claimed <= float(cap) + _ROUNDING and delta <= float(spent.caps["delta_max"])
    demand(capped, entry, f"{silo}: above its caps, {name} {cap} and δ {spent.caps['delta_max']}")
    return Bracket(lower, claimed, upper, spent.rounds)


def _check_shares(dp: Json | None, offers: Sequence[Offer], roster: Roster) -> None:
    """Survivors, less those whom the charter's threat model assumes to collude, are honest silos."""
    if dp is None or dp["noise_shares"] is None:
        return
    _, colluding = hostile(roster.charter["policy_text"])
    for offer in offers:
        honest = offer.plan["min_survivors"] - colluding
        wrong = f"plan.dp.noise_shares: every sum holds the noise of {honest} honest silos, no more"
        demand(1 <= dp["noise_shares"] <= honest, offer.entry, wrong)


def _terms(job: Job) -> Json:
    dp = job.terms["dp"]
    scheme = {"scheme": job.terms["scheme"]}
    if dp is None:
        return scheme | dict.fromkeys(("unit", "adjacency", "delta", "mechanism"))
    shared, entry = dp["noise_shares"] is not None, "job/job.json"
    expected = ("distributed" if shared else "local", "add_remove", "poisson")
    known = (dp["model"], dp["adjacency"], dp["sampling"]) == expected
    demand(known, entry, "this program accounts for silos' noise, add/remove, Poisson sampling alone")
    # A silo that takes further steps from its own noise moves its later gradients: shares do not add up.
    algorithm, steps = job.terms["training"]["algorithm"], job.terms["training"]["local_steps"]
    one_step = steps == 1 and algorithm not in ("fedavg", "dp_fedavg")
    demand(one_step or not shared, entry, "noise is shared by algorithms of one step a round alone")
    asks = algorithm in ("dp_statistics", "dp_evaluation")
    demand(asks == ("query" in job.terms), entry, "its algorithm answers queries exactly if it has one")
    # A query reads every unit: no sampling makes it cheaper.
    demand(not asks or float(dp["sample_rate"]) == 1, entry, "a query is charged for all units")
    demand("metrics" not in dp or algorithm == "dp_fedsgd", entry, f"{algorithm} releases no metrics")
    fields = ("sample_rate", "noise_multiplier", "noise_shares", "clip_l2", "normaliser", "metrics")
    mechanism = {"name": "poisson_gaussian", "steps_per_round": steps} | {f: dp[f] for f in fields if f in dp}
    counted = {field: dp.get(field, 1) for field in ("unit", "adjacency", "delta", "records_per_unit")}
    return scheme | counted | {"mechanism": mechanism}


def _sentence(claim: Json, job: Job) -> str:
    """The claim in words, from numbers that have been checked; a pack uses exactly this form."""
    dp = job.terms["dp"]
    if dp is None:
        return "No differential privacy is claimed: the job ran without it."
    spent = "; ".join(
        f"{silo}: ε = {row['epsilon']} after {row['rounds']} rounds of {row['steps']} steps in all"
        for silo, row in sorted(claim["silos"].items())
    )
    if dp["noise_shares"] is None:
        return (
            f"Adding or removing one {dp['unit']} at one silo changes the probability of whatever it sends "
            f"in this job by a factor of at most e^ε, up to δ = {dp['delta']}. "
            f"{spent or 'No silo has reserved'}."
        )
    alone = "; ".join(f"{silo}: {row['epsilon_fallback']}" for silo, row in sorted(claim["silos"].items()))
    return (
        f"For any two datasets of one silo that differ in one {dp['unit']}, present in one of them only, the "
        "probability of whatever the coordinator and all colluding silos see together of this job differs by "
        f"a factor of at most e^ε, up to δ = {dp['delta']}, provided that every opened sum holds the noise "
        f"of honest silos, {dp['noise_shares']} or more, and that the secure sum hides single updates. "
        f"{spent or 'No silo has reserved'}. If the secure sum fails, the silo's own noise gives ε_fallback "
        f"in place of ε: {alone or 'no silo has reserved'}. Not covered: model selection, pre-processing, "
        "timing, and logs inside a silo."
    )
