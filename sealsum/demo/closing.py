"""After the job: every figure of the run put together as one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.loader import LoadedPolicy
from privacy.dp.accountant import ACCOUNTANT_VERSION
from privacy.plan import JobSpec
from privacy.roster import Charter
from sealsum.demo.baselines_terms import BaselineAnswer
from sealsum.demo.cast import counted_parties
from sealsum.demo.job import DemoTerms
from sealsum.demo.patients import HOSPITALS
from sealsum.demo.results import Caps, DemoResult, Mechanism, RoundRow, Scores, SiloResult
from sealsum.demo.scoring import HospitalFiles, auc_of, joined, read_tables
from sealsum.demo.standing import Standing
from sealsum.job_view import JobView
from sealsum.served_log import ServedLog

NOTHING_SPENT = {"epsilon": "0", "epsilon_rdp": "0", "epsilon_fallback": "0"}
"""Of a hospital whose ledger names no round of this job."""


@dataclass(frozen=True)
class Trained:
    """What lies on the table when the job has finished."""

    charter: Charter
    officers: str
    policy: LoadedPolicy
    terms: DemoTerms
    spec: JobSpec
    seed: int
    files: Mapping[str, HospitalFiles]
    view: JobView
    standing: Standing
    model: NDArray[np.float32]
    """float32[d]"""
    evidence: dict[str, Any]
    server_logs: Mapping[str, ServedLog]
    ledgers: Mapping[str, bytes]
    handovers: tuple[bytes, ...]
    """What each hospital hands over for the evidence."""
    baselines: BaselineAnswer


def collect(trained: Trained, claim: Mapping[str, Any]) -> DemoResult:
    """Score the federated model and put every figure of the run together.

    Args:
        claim: ``dp/claim.json``; what a hospital spent is what its ledger says.
    """
    terms, spec, baselines = trained.terms, trained.spec, trained.baselines
    training, held_out = read_tables(terms.data, trained.files)
    limits = trained.policy.model.spec.limits
    caps = limits.epsilon
    standings = {silo.name: silo for silo in trained.standing.silos}
    silos = []
    for hospital in HOSPITALS:
        name = hospital.silo
        spent = claim["silos"].get(name, NOTHING_SPENT)
        silos.append(
            SiloResult(
                name=name,
                title=hospital.title,
                records=len(training[name]),
                held_out=len(held_out[name]),
                held_out_healthy=int((held_out[name].labels == 0).sum()),
                scores=Scores(
                    local_only=baselines.local_only[name],
                    federated=auc_of(terms.model, trained.model, held_out[name]),
                    pooled=baselines.pooled[name],
                ),
                local_only_everywhere=baselines.local_only_on_all[name],
                epsilon=float(spent["epsilon"]),
                epsilon_rdp=float(spent["epsilon_rdp"]),
                epsilon_fallback=float(spent["epsilon_fallback"]),
                delta=terms.dp.delta,
                epsilon_after_round=standings[name].epsilon_after_round,
                overhead_ms=standings[name].overhead_ms,
                train_ms=standings[name].train_ms,
            )
        )
    return DemoResult(
        federation=spec.federation,
        job=spec.job,
        policy_name=trained.policy.model.metadata.name,
        policy_digest=trained.policy.digest,
        officers=trained.officers,
        scheme=spec.scheme,
        parties=counted_parties(spec.scheme),
        norm_bound=None if spec.validity is None else spec.validity.norm_bound,
        rounds=spec.rounds,
        parameters=terms.model.parameters,
        model=terms.model.adapter,
        model_released_to=trained.policy.model.spec.release.model.to,
        seed=trained.seed,
        caps=Caps(
            round=caps.round, job=caps.job, lifetime=caps.lifetime, job_fallback=limits.of_fallback.job
        ),
        mechanism=Mechanism(
            algorithm=terms.training.algorithm,
            noise_shares=terms.dp.noise_shares,
            unit=terms.dp.unit,
            adjacency=terms.dp.adjacency,
            clip_l2=terms.dp.clip_l2,
            noise_multiplier=terms.dp.noise_multiplier,
            sample_rate=terms.dp.sample_rate,
            local_steps=terms.training.local_steps,
            accountant=ACCOUNTANT_VERSION,
        ),
        silos=tuple(silos),
        scores=Scores(
            local_only=_mean(baselines.local_only_on_all.values()),
            federated=auc_of(terms.model, trained.model, joined(held_out)),
            pooled=baselines.pooled_on_all,
        ),
        pooled_weight_decay=baselines.weight_decay,
        bytes_up_per_silo_round=max(
            (sent for silo in trained.standing.silos for sent in silo.sent_bytes), default=0
        ),
        openings=trained.view.openings,
        history=tuple(
            RoundRow(row.round, row.outcome, row.reason, row.survivors, row.duration_ms or 0.0)
            for row in trained.view.history
        ),
        refusals=trained.standing.refusals,
        claim=claim["statement"],
    )


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
