"""Runs of one job under several algorithms on the same records: models after each round, scored at every
silo.

The silo's own algorithms, the server's own step and the real grid; what is left out is the network and the
ledger. ``pooled`` trains on all records in one place and ``local`` at each silo alone, as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policies.upload_size import upload_bytes
from privacy.errors import ConfigurationError, SealsumError
from privacy.ids import SiloId
from privacy.plan import LocalTerms, TrainingTerms
from privacy.sent import count_sent
from privacy.training_checks import check_sent, check_training
from privacy.update import model_bytes, model_digest
from privacy.vector_terms import check_packing
from sealsum.algorithms import CATALOGUE
from sealsum.job_file import JobFile
from sealsum.job_further import algorithm_further
from sealsum.job_grid import finest_vector
from sealsum.simulator.alone import train_alone
from sealsum.simulator.buffered import Buffer, Buffered
from sealsum.simulator.federation import Federation
from sealsum.simulator.gathered import joined
from sealsum.simulator.options import job_of
from sealsum.simulator.plan import RoundTerms, simulated_plan
from sealsum.simulator.practice import Practice
from sealsum.simulator.regions import Regions
from sealsum.simulator.scored import LOWER_IS_BETTER, FigureName, Scored, score
from sealsum.simulator.sums import RingSum, plain_ring_sum
from silo_agent.data.records import Records
from silo_agent.models.adapters import ADAPTERS

POOLED: Final = "pooled"
LOCAL: Final = "local"
Model = NDArray[np.float32]
_STEPS: Final = ("local_steps", "num_updates", "learning_rate", "eta_l")
_LOCAL_OF_EVERY: Final = ("batch_size", "gradient_clip")
_OF_EVERY_ALGORITHM: Final = (*_STEPS, *_LOCAL_OF_EVERY)
"""Training fields, as a job file may spell them, that another algorithm is run with as well."""


@dataclass(frozen=True)
class Run:
    """One algorithm under one seed."""

    algorithm: str
    seed: int
    final: Mapping[FigureName, Scored] = field(repr=False)
    curve: tuple[float, ...] = field(repr=False, default=())
    """The first figure's mean over silos after each round; empty for pooled and local."""
    bytes_up: int = 0
    """Of vectors, a silo and round."""
    time: float = 0.0
    """With a buffer: when the last sum was opened, in the unit of paces; else a round each."""
    staleness: float = 0.0
    """With a buffer: how many models came out since the one that an update began from, in the mean."""
    failure: str = ""
    """Why there is no model: training diverged, or the algorithm refused the job."""


def known_algorithms(private: bool) -> tuple[str, ...]:
    """Names of all algorithms of the catalogue that train with DP, or without."""
    return tuple(
        name for name, row in CATALOGUE.items() if (row.private if private else row.terms) is not None
    )


def job_under(tree: dict[str, Any], algorithm: str) -> JobFile:
    """The job with another algorithm. What is particular to the job's own one is left at its row's defaults.

    Raises:
        ConfigurationError: the job cannot have that algorithm.
    """
    other = deepcopy(tree)
    training = dict(other.get("training") or {})
    if training.get("algorithm") != algorithm:
        named = {name: training[name] for name in _OF_EVERY_ALGORITHM if name in training}
        if _has_own_steps(algorithm):
            named = {name: value for name, value in named.items() if name not in _STEPS}
        kept = {name: one for name, one in (training.get("local") or {}).items() if name in _LOCAL_OF_EVERY}
        other["training"] = named | ({"local": kept} if kept else {}) | {"algorithm": algorithm}
    return job_of(other)


def federated(
    name: str,
    job: JobFile,
    silos: Mapping[SiloId, Practice],
    seed: int,
    told: Callable[[], None] = lambda: None,
    add: RingSum = plain_ring_sum,
    regions: Regions | None = None,
    buffer: Buffer | None = None,
) -> Run:
    """All rounds of a job, scored after each.

    Args:
        name: of its algorithm, in the catalogue. told: called after each round. add: how encodings are added
            up; the sum is the same. regions: silos share in these, masked whatever ``add`` says. buffer: a
            sum is opened for so many updates, and nobody is waited for.
    """
    try:
        records = {silo: one.training for silo, one in silos.items()}
        federation = replace(federation_of(job, records), add=add)
        if regions is not None:
            federation = replace(federation, add=regions.ring_sum, passes_up=regions.fit)
        held_out = {silo: one.held_out for silo, one in silos.items()}
        standing, curve = federation.at(first_model(job, seed)), []
        buffered = None if buffer is None else Buffered(federation, buffer)
        running = None if buffered is None else buffered.at(standing.model)
        final: Mapping[FigureName, Scored] = {}
        for _ in range(job.rounds):
            if buffered is None or running is None:
                standing = federation.after_round(standing)
            else:
                running = buffered.after_sum(running)
                standing = running.standing
            final = score(federation.adapter, job.terms(), dict.fromkeys(held_out, standing.model), held_out)
            curve.append(next(iter(final.values())).mean)
            told()
    except SealsumError as failure:
        return Run(name, seed, {}, failure=str(failure))
    time = job.rounds if running is None else running.now
    stale = 0.0 if running is None else running.staleness / job.rounds
    return Run(name, seed, final, tuple(curve), _bytes_up(federation), time=time, staleness=stale)


def alone(job: JobFile, silos: Mapping[SiloId, Practice], seed: int) -> Iterator[Run]:
    """``pooled`` and ``local``, by as many of the same steps without DP.

    Raises:
        ConfigurationError: the model is an adapter of the silos' own.
    """
    held_out = {silo: one.held_out for silo, one in silos.items()}
    everybody = trained_alone(job, joined([one.training for one in silos.values()]), seed)
    adapter, terms = ADAPTERS[job.model.adapter], job.terms()
    yield Run(POOLED, seed, score(adapter, terms, dict.fromkeys(held_out, everybody), held_out))
    own = {silo: trained_alone(job, one.training, seed) for silo, one in silos.items()}
    yield Run(LOCAL, seed, score(adapter, terms, own, held_out))


def trained_alone(job: JobFile, records: Records, seed: int, start: Model | None = None) -> Model:
    """A model by plain gradient steps on these records, as many as in the whole job, without DP."""
    training = plain_terms(job)
    terms = RoundTerms(job.terms(), training, None, finest_vector("additive", 2))
    begin = first_model(job, seed) if start is None else start
    return train_alone(terms, ADAPTERS[job.model.adapter], records, begin, job.rounds)


def plain_terms(job: JobFile) -> TrainingTerms:
    """FedAvg as the job's steps have it."""
    return TrainingTerms(
        algorithm="fedavg",
        local_steps=job.training.local_steps,
        learning_rate=job.training.learning_rate,
        server_learning_rate=1.0,
        local=LocalTerms(batch_size=job.training.local.batch_size),
    )


def _has_own_steps(algorithm: str) -> bool:
    """Whether its silos take one step of a length of its own: a private sum, a Newton step."""
    row = CATALOGUE.get(algorithm)
    stands_for = {} if row is None else {**(row.private or {}), **(row.terms or {})}
    return stands_for.get("algorithm") in ("dp_fedsgd", "newton")


def federation_of(job: JobFile, silos: Mapping[SiloId, Records]) -> Federation:
    """
    Raises:
        ConfigurationError: the model is an adapter of the silos' own, terms do not go together, or no grid
            carries the sum.
    """
    if job.model.adapter not in ADAPTERS:
        raise ConfigurationError(
            f"model.adapter: expected one of {', '.join(ADAPTERS)}, got {job.model.adapter}"
        )
    model, training, vector = job.terms(), job.training_of(len(silos)), job.grid(len(silos), "additive")
    names, proven = [tensor.name for tensor in model.layout], job.validity is not None
    try:
        check_training(training, job.dp is not None)
        check_sent(training, proven, names)
        check_packing(vector, "additive", proven, training.sums_plain_means)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    further = algorithm_further(training, model, "additive", len(silos))
    terms = RoundTerms(model, training, job.dp, vector, further)
    return Federation(terms, ADAPTERS[job.model.adapter], silos, job.rounds)


def first_model(job: JobFile, seed: int) -> Model:
    """The job's first weights under another seed, or those of the file that it starts from."""
    if job.initial_model is not None or job.public_data is not None:
        return job.first_model()
    request = job.model.model_copy(update={"seed": job.model.seed + seed})
    return job.model_copy(update={"model": request}).first_model()


def rounds_to(curve: tuple[float, ...], target: float, name: FigureName) -> int | None:
    """The first round after which the mean over silos is at the target; ``None`` if none is."""
    sign = -1 if name in LOWER_IS_BETTER else 1
    return next((place for place, one in enumerate(curve, start=1) if sign * one >= sign * target), None)


def _bytes_up(federation: Federation) -> int:
    """Over rounds that differ, their mean, rounded up."""
    terms, rounds, silos = federation.terms, federation.rounds, federation.silos.keys()
    digest = model_digest(terms.model, [model_bytes(np.zeros(terms.model.parameters, dtype=np.float32))])
    counts = [count_sent(terms.training, terms.model, number) for number in range(1, rounds + 1)]
    first = {count: counts.index(count) + 1 for count in counts}
    sizes = {
        count: upload_bytes(simulated_plan(terms, silos, digest, number, rounds))
        for count, number in first.items()
    }
    return -(-sum(sizes[count] for count in counts) // rounds)
