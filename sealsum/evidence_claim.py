"""The differential-privacy claim of a job, computed from what silos' ledgers recorded.

Says what NIST SP 800-226 asks of a claim: unit, adjacency, ε and δ, mechanism, accountant, scope, trust
and limits. ε is the larger truth: every reserved round counts, also one that was aborted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from privacy.chain import Entry
from privacy.dp.accountant import ACCOUNTANT, ACCOUNTANT_VERSION, epsilon, epsilon_rdp
from privacy.dp.events import DpEvent
from privacy.ids import SiloId
from privacy.plan import DpTerms, JobSpec
from privacy.secagg.catalogue import SCHEMES
from silo_agent.ledger.spending import Account

_DECIMALS = 4

SAMPLING = {
    "assumed": "Poisson: each record joins a step independently with probability sample_rate",
    "implemented": "Poisson, by the silo agent, drawn from the operating system's generator",
}
WITH_METRICS = (
    "each step releases its gradient and, of the same sample on the same model, the metrics that the "
    "mechanism names: one Gaussian mechanism of noise (σ₁⁻² + σ₂⁻²)^(−1/2), σ₁ and σ₂ being theirs. "
)
COMPOSITION = (
    "all rounds of this job that the silo reserved, aborted ones included; a silo releases nothing else in a "
    "job (no other metrics, no statistics, no tuning runs). Other jobs on the same data add their own ε and "
    "δ: see the whole ledger, which never resets."
)
TRUST: Mapping[str, str] = {
    "local": (
        "each silo adds the noise itself, so the guarantee towards everybody else rests on that silo's own "
        "agent running as published. Secure aggregation hides single updates besides; the claim does not "
        "rest on it."
    ),
    "distributed": (
        "each silo adds a share of the noise, and only the sum of all is opened. ε rests on the secure sum "
        "and on noise_shares honest silos whose agents run as published, ε_fallback on the silo's own alone. "
        "A silo that leaves its noise out counts as one that colludes."
    ),
}
RANDOMNESS = (
    "noise, batches and, where the scheme has them, masks come from AES-256-CTR keystreams under keys of the "
    "operating system"
)
_BY_ALL_SERVERS = "every share server signs the one set of silos that its share is summed over"
_BY_AGGREGATOR = "the aggregator signs the one set of silos in the sum"
_BY_HELPERS = f"{_BY_AGGREGATOR}, and each of these silos signs which sum it helped to open"
_SURVIVORS: Mapping[str, str] = {
    "additive": _BY_ALL_SERVERS,
    "pairwise": f"{_BY_AGGREGATOR}, and t of these silos sign the same set before masks come off",
    "bfv": f"{_BY_AGGREGATOR}, and these silos sign what it decrypts to",
    "ckks": f"{_BY_AGGREGATOR}, and these silos sign what it decrypts to",
    "threshold_bfv": _BY_HELPERS,
    "threshold_ckks": _BY_HELPERS,
}
LIMITS = (
    "The unit's number at each silo is not disclosed; each silo must judge δ against its own number.",
    "Noise is drawn in float64, with 53 significant bits in each tail, cut at 13 standard deviations; "
    "docs/privacy.md says what that costs at most, which is not in ε.",
    "Timing and memory of the silo's machine are outside the claim.",
    "No empirical lower bound (privacy audit) of the trained model is part of this pack.",
    "A ledger whose tail nobody has witnessed can be cut by its owner; each manifest witnesses its head.",
)


def dp_claim(job: JobSpec, ledgers: Mapping[SiloId, Iterable[Entry]]) -> dict[str, Any]:
    """The claim as ``dp/claim.json`` holds it. ``ledgers`` are verified entries."""
    if job.dp is None:
        return {
            **dict.fromkeys(("unit", "adjacency", "delta", "mechanism")),
            "scheme": job.scheme,
            "secagg": secagg_claim(job),
            "silos": {},
            "statement": "No differential privacy is claimed: the job ran without it.",
            "limits": ["A model trained without differential privacy may reveal its training data."],
        }
    silos = {}
    for silo, entries in sorted(ledgers.items()):
        spent = _spent(job, entries)
        if spent is not None:
            silos[silo] = spent
    terms = job.dp.model_dump(mode="json")
    fields = ("sample_rate", "noise_multiplier", "noise_shares", "clip_l2", "normaliser")
    metrics = {name: terms[name] for name in ("metrics",) if name in terms}
    mechanism = {name: terms[name] for name in fields} | metrics
    return {
        "unit": job.dp.unit,
        "records_per_unit": job.dp.records_per_unit,
        "adjacency": job.dp.adjacency,
        "delta": terms["delta"],
        "mechanism": mechanism | {"name": "poisson_gaussian", "steps_per_round": job.training.local_steps},
        "sampling": SAMPLING,
        "accountant": {"name": ACCOUNTANT, "version": ACCOUNTANT_VERSION, "second": "rdp, integer orders"},
        "composition": (WITH_METRICS if metrics else "") + COMPOSITION,
        "model": {"kind": job.dp.model, "trust": TRUST[job.dp.model]},
        "randomness": RANDOMNESS,
        "scheme": job.scheme,
        "secagg": secagg_claim(job),
        "silos": silos,
        "statement": _statement(job.dp, terms["delta"], silos),
        "limits": list(LIMITS),
    }


def survivors_signed(scheme: str) -> str:
    """Who signs whose updates are in a sum, as a sentence without its full stop."""
    return _SURVIVORS.get(scheme, _BY_AGGREGATOR)


def secagg_claim(job: JobSpec) -> dict[str, str]:
    """How updates were added up, in the catalogue's words; who withstands whom is for people to weigh."""
    known = SCHEMES[job.scheme]
    bound = "" if job.validity is None else job.validity.model_dump(mode="json")["norm_bound"]
    proof = f"every share server checked a proof that the norm of each update in a sum is at most {bound}"
    return {
        "withstands": known.withstands,
        "survivors": survivors_signed(job.scheme),
        "validity": proof if bound else "no party checked single updates: a silo may have sent any numbers",
    }


def _spent(job: JobSpec, entries: Iterable[Entry]) -> dict[str, Any] | None:
    account = Account()
    for entry in entries:
        account.apply(entry)
    charge = account.jobs.get(job.digest)
    if charge is None:
        return None
    alone = charge.events
    if charge.fallback is not None:
        alone = (charge.fallback.model_copy(update={"steps": charge.steps}),)
    return {
        "epsilon": _rounded_up(claimed_epsilon(charge.events, charge.delta)),
        "epsilon_rdp": _rounded_up(epsilon_rdp(charge.events, charge.delta)),
        "epsilon_fallback": _rounded_up(claimed_epsilon(alone, charge.delta)),
        "epsilon_fallback_rdp": _rounded_up(epsilon_rdp(alone, charge.delta)),
        "rounds": charge.rounds,
        "steps": charge.steps,
    }


def claimed_epsilon(events: Sequence[DpEvent], delta: float) -> float:
    """The smaller of two upper bounds: PLD's discretisation can cost more than RDP where ε is small."""
    return min(epsilon(events, delta), epsilon_rdp(events, delta))


def _rounded_up(number: float) -> str:
    """Never below what was computed, so that the claim stays true."""
    return f"{math.ceil(number * 10**_DECIMALS) / 10**_DECIMALS:.{_DECIMALS}f}"


def _statement(dp: DpTerms, delta: str, silos: Mapping[SiloId, Mapping[str, Any]]) -> str:
    """The numbers in one sentence; ``sealsum-verify`` rebuilds it and compares."""
    spent = "; ".join(
        f"{silo}: ε = {row['epsilon']} after {row['rounds']} rounds of {row['steps']} steps in all"
        for silo, row in silos.items()
    )
    if dp.model == "local":
        return (
            f"Adding or removing one {dp.unit} at one silo changes the probability of whatever it sends "
            f"in this job by a factor of at most e^ε, up to δ = {delta}. {spent or 'No silo has reserved'}."
        )
    alone = "; ".join(f"{silo}: {row['epsilon_fallback']}" for silo, row in silos.items())
    return (
        f"For any two datasets of one silo that differ in one {dp.unit}, present in one of them only, the "
        "probability of whatever the coordinator and all colluding silos see together of this job differs by "
        f"a factor of at most e^ε, up to δ = {delta}, provided that every opened sum holds the noise "
        f"of honest silos, {dp.noise_shares} or more, and that the secure sum hides single updates. "
        f"{spent or 'No silo has reserved'}. If the secure sum fails, the silo's own noise gives ε_fallback "
        f"in place of ε: {alone or 'no silo has reserved'}. Not covered: model selection, pre-processing, "
        "timing, and logs inside a silo."
    )
