"""Check 12: the privacy claim says what the ledgers say, and its ε lies where the true one can be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sealsum_verify.accountant import epsilon_lower, epsilon_upper
from sealsum_verify.encoding import demand, same
from sealsum_verify.messages import Json
from sealsum_verify.offers import Job
from sealsum_verify.records import Spending

ENTRY = "dp/claim.json"
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


def check_claim(claim: Json, job: Job, spending: Mapping[str, Spending]) -> dict[str, Bracket]:
    """(12) The claim is true of the ledgers:

    (a) its scheme, unit, adjacency, δ and mechanism are the job's; (b) it names exactly the silos that
    reserved, with their rounds and steps; (c) each ε lies between the lower and the upper bound computed
    here, its RDP value agrees with ours; (d) ε and δ are within the caps that the silo signed into its
    ledger; (e) the sentence for people gives the same numbers.
    """
    dp = job.terms["dp"]
    # (a)
    for field, expected in _terms(job).items():
        demand(field in claim and same(claim[field], expected), ENTRY, f"{field} is not what the job says")
    # (b)
    demand(sorted(claim["silos"]) == sorted(spending), ENTRY, "silos: expected those whose ledgers reserved")
    brackets: dict[str, Bracket] = {}
    for silo, spent in sorted(spending.items()):
        row = claim["silos"][silo]
        counted = (row["rounds"], row["steps"]) == (spent.rounds, spent.steps)
        demand(counted, ENTRY, f"{silo}: its ledger has {spent.rounds} rounds, {spent.steps} steps")
        # (c)
        rate, noise, delta = (float(dp[name]) for name in ("sample_rate", "noise_multiplier", "delta"))
        sane = 0 < rate <= 1 and 0.01 <= noise <= 1e6 and 1e-30 <= delta < 1 and 0 < spent.steps <= 1_000_000
        demand(sane, ENTRY, f"{silo}: its terms are outside what can be accounted for")
        lower, upper = (bound(rate, noise, spent.steps, delta) for bound in (epsilon_lower, epsilon_upper))
        claimed, rdp = float(row["epsilon"]), float(row["epsilon_rdp"])
        demand(claimed <= upper + _ROUNDING, ENTRY, f"{silo}: ε {claimed:g} is above the bound {upper:.4f}")
        demand(claimed >= lower, ENTRY, f"{silo}: ε {claimed:g} is below {lower:.4f}, the least it can be")
        near = math.isclose(rdp, upper, rel_tol=_RDP_TOLERANCE, abs_tol=_RDP_TOLERANCE)
        demand(near, ENTRY, f"{silo}: its RDP value {rdp:g} is not near ours, {upper:.4f}")
        # (d)
        capped = claimed <= float(spent.epsilon_cap) + _ROUNDING and delta <= float(spent.delta_cap)
        demand(capped, ENTRY, f"{silo}: above its caps, ε {spent.epsilon_cap} and δ {spent.delta_cap}")
        brackets[silo] = Bracket(lower, claimed, upper, spent.rounds)
    # (e)
    demand(claim["statement"] == _sentence(claim, job), ENTRY, "statement: not what the numbers say")
    return brackets


def _terms(job: Job) -> Json:
    dp = job.terms["dp"]
    scheme = {"scheme": job.terms["scheme"]}
    if dp is None:
        return scheme | dict.fromkeys(("unit", "adjacency", "delta", "mechanism"))
    local = (dp["model"], dp["adjacency"], dp["sampling"]) == ("local", "add_remove", "poisson")
    demand(local, "job/job.json", "this program accounts for local DP, add/remove, Poisson sampling alone")
    mechanism = {field: dp[field] for field in ("sample_rate", "noise_multiplier", "clip_l2", "normaliser")}
    mechanism |= {"name": "poisson_gaussian", "steps_per_round": job.terms["training"]["local_steps"]}
    return scheme | {"mechanism": mechanism} | {field: dp[field] for field in ("unit", "adjacency", "delta")}


def _sentence(claim: Json, job: Job) -> str:
    """The claim in words, from numbers that have been checked; a pack uses exactly this form."""
    dp = job.terms["dp"]
    if dp is None:
        return "No differential privacy is claimed: the job ran without it."
    spent = "; ".join(
        f"{silo}: ε = {row['epsilon']} after {row['rounds']} rounds of {row['steps']} steps in all"
        for silo, row in sorted(claim["silos"].items())
    )
    return (
        f"Adding or removing one {dp['unit']} at one silo changes the probability of whatever it sends "
        f"in this job by a factor of at most e^ε, up to δ = {dp['delta']}. {spent or 'No silo has reserved'}."
    )
