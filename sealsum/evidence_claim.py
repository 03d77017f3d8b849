"""The differential-privacy claim of a job, computed from what silos' ledgers recorded.

Says what NIST SP 800-226 asks of a claim: unit, adjacency, ε and δ, mechanism, accountant, scope, trust
and limits. ε is the larger truth: every reserved round counts, also one that was aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from privacy.chain import Entry
from privacy.dp.accountant import ACCOUNTANT, ACCOUNTANT_VERSION
from privacy.ids import SiloId
from privacy.plan import DpTerms, JobSpec
from privacy.secagg.catalogue import SCHEMES
from sealsum.evidence_attack import ENTRY as ATTACKS_ENTRY
from sealsum.evidence_attack import AttackResults
from sealsum.evidence_replay import priced
from silo_agent.ledger.spending import Account

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
RESETS = (
    "never: the ledger's lifetime cap counts every job on the data; a cap a period, where the silo has one, "
    "counts besides it"
)
DELTA_JUDGED = (
    "each silo's ledger caps δ (delta_max), and the threat model refuses more than 1/(10·min_records); a "
    "silo with "
    "more units than min_records must judge δ against its own number N, which is not disclosed"
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
    "An empirical bound, where there is one, is of attacks on the mechanism, not on the trained model.",
    "A ledger whose tail nobody has witnessed can be cut by its owner; each manifest witnesses its head.",
)


def dp_claim(
    job: JobSpec, ledgers: Mapping[SiloId, Iterable[Entry]], attacks: AttackResults | None = None
) -> dict[str, Any]:
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
        "delta_judged": DELTA_JUDGED,
        "resets": RESETS,
        "empirical": empirical_bound(attacks),
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
    return None if charge is None else priced(charge)


def empirical_bound(attacks: AttackResults | None) -> dict[str, str] | None:
    """The largest ε that an attack on this installation proved where noise protects, or none if none ran.

    It is about the mechanism as it is built here, on synthetic records, and not about this job's model.
    """
    rows = [] if attacks is None else [row for row in attacks.attacks if row.protected]
    shown = [row for row in rows if {"epsilon_at_least", "epsilon_claimed"} <= row.figures.keys()]
    if not shown:
        return None
    most = max(shown, key=lambda row: (row.figures["epsilon_at_least"], row.name, row.protection))
    return {
        "entry": ATTACKS_ENTRY,
        "attack": most.name,
        "protection": most.protection,
        "epsilon_at_least": f"{most.figures['epsilon_at_least']:.4f}",
        "epsilon_claimed_there": f"{most.figures['epsilon_claimed']:.4f}",
    }


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
