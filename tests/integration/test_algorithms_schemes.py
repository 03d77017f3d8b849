"""Every algorithm of the catalogue under every scheme: the plain sum, and the model of the additive one.

From a job file to the model after two rounds, by the silos' own algorithms, the schemes' own halves and the
server's own step; under a joint key, the sums of one round. What a scheme does not carry is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.identity import SealingKey
from privacy.ids import Context, Digest, PartyId, ServerId, SiloId
from privacy.plan import JobSpec, RoundPlan, SchemeName, VectorTerms
from privacy.secagg.additive import (
    AdditiveSiloHalf,
    SeedSumHalf,
    VectorSumHalf,
    combine,
    ring_to_bytes,
    unseal_seed,
)
from privacy.secagg.he.framing import he_stretches
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.silo_half import HeSiloHalf
from privacy.secagg.rows import row_for
from privacy.secagg.threshold.worker import Worker
from privacy.secagg.vectors import MODEL, VectorName, vectors_of
from privacy.sent import sent_in
from sealsum.algorithms import CATALOGUE, DEFAULT
from sealsum.simulator.federation import Federation
from sealsum.simulator.plan import RoundTerms, simulated_plan
from silo_agent.data.records import Records
from silo_agent.encoded import EncodedUpdate
from silo_agent.models.adapters import ADAPTERS
from silo_agent.update import Update
from tests import he_cohort, pairwise_cohort, threshold_cohort
from tests.unit.sealsum.test_algorithms_catalogue import DP, job, signed

pytestmark = pytest.mark.slow
Ring = NDArray[np.uint32]
WIDTH: Final = 4
SILOS: Final = tuple(SiloId(PartyId(name)) for name in ("a", "b", "c", "d"))
SCHEMES: Final[tuple[SchemeName, ...]] = ("additive", "pairwise", "bfv", "ckks")
JOINT: Final[tuple[SchemeName, ...]] = ("threshold_bfv", "threshold_ckks")
MODELS: Final[Mapping[str, dict[str, Any]]] = {
    "fedper": {"adapter": "mlp", "hidden": ["3"]},
    "mixed_intervals": {"adapter": "mlp", "hidden": ["3"]},
    "moe": {"adapter": "experts", "hidden": ["2", "3"]},
    "hypernetwork": {"adapter": "hypernetwork", "hidden": ["3"]},
    "fedbn": {"adapter": "resnet", "hidden": ["4"]},
}
WITHOUT: Final = tuple(name for name, row in CATALOGUE.items() if row.terms is not None)
PRIVATE: Final = tuple(name for name, row in CATALOGUE.items() if row.private is not None)
MORE: Final[Mapping[str, dict[str, Any]]] = {
    "scaffold in two sums": {
        "training": {"algorithm": "scaffold", "control_sums": 2, "server_momentum": 0.5}
    },
    "random coordinates": {"compression": {"coordinates": "random", "share": "0.5", "feedback": True}},
    "top coordinates": {"compression": {"coordinates": "top", "share": "0.5"}},
    "layers": {"training": {"phases": [{"until": 1, "layers": ["last"]}]}, "model": MODELS["fedper"]},
    "eight bits": {"compression": {"bits": 8}},
    "few bits of few": {"compression": {"bits": 4, "coordinates": "random", "share": "0.5"}},
}


def _job(name: str, scheme: SchemeName, private: bool = False) -> JobSpec:
    asked = dict(MORE.get(name, {"training": {"algorithm": name}, "model": MODELS.get(name)}))
    model = asked.pop("model", None) or {"adapter": "logistic"}
    width = 64 if model["adapter"] == "resnet" else WIDTH
    features = [
        {"kind": "numeric", "column": f"x{place}", "low": "-3", "high": "3", "impute": "0"}
        for place in range(width)
    ]
    data = {"features": features, "label": {"column": "num", "threshold": "0"}, "patient_id": "patient"}
    training = dict(asked.pop("training", {}))
    row = CATALOGUE[training.get("algorithm", DEFAULT)]
    if private and (row.private or {})["algorithm"] == "dp_fedavg":
        training |= {"num_updates": 2, "learning_rate": 0.1}
    elif not private and (row.terms or {})["algorithm"] != "newton":
        training["num_updates"] = 2
    return signed(job(training, DP if private else "none", scheme=scheme, model=model, data=data, **asked))


def _records(number: int, width: int) -> Records:
    random = np.random.default_rng(number)
    features = random.normal(0.2 * number, 0.5, (12 + 4 * number, width)).clip(-1, 1).astype(np.float32)
    return Records(features, (features.sum(1) > 0.1 * number).astype(np.float32))


def _federation(spec: JobSpec, vector: VectorTerms, rounds: int = 2) -> Federation:
    terms = RoundTerms(spec.model, spec.training, spec.dp, vector, spec.further, Digest("ab" * 32))
    silos = {silo: _records(number, spec.model.inputs) for number, silo in enumerate(SILOS)}
    return Federation(terms, ADAPTERS[spec.model.adapter], silos, rounds)


# --- the schemes' own halves, on one vector of each silo ---


def _additive(vectors: Mapping[SiloId, Ring], terms: VectorTerms) -> Ring:
    context, model = Context(Digest(os.urandom(32).hex())), Digest("22" * 32)
    servers = [ServerId(PartyId(f"server-{slot}")) for slot in range(2)]
    key = SealingKey.generate()
    shares, seeds = [], []
    for silo, vector in vectors.items():
        half = AdditiveSiloHalf(context, model, silo, {servers[1]: key.public_hex})
        shares.append(ring_to_bytes(half.share(0, vector)))
        sealed = half.sealed_seeds[servers[1]]
        seeds.append((silo, unseal_seed(sealed, key, context, model, silo, servers[1])))
    length = len(next(iter(vectors.values())))
    totals = [
        ring_to_bytes(VectorSumHalf.total(shares, length)),
        ring_to_bytes(SeedSumHalf(seeds, context, model, servers[1]).total(0, length)),
    ]
    return combine(totals, length)


def _pairwise(vectors: Mapping[SiloId, Ring], terms: VectorTerms) -> Ring:
    cohort = pairwise_cohort.Cohort.of(len(vectors), len(next(iter(vectors.values()))))
    for member, vector in zip(cohort.members.values(), vectors.values(), strict=True):
        member.update = vector
    _, total = cohort.run()
    return total


def _encrypted(scheme: SchemeName) -> Callable[[Mapping[SiloId, Ring], VectorTerms], Ring]:
    def add(vectors: Mapping[SiloId, Ring], terms: VectorTerms) -> Ring:
        row, cohort = row_for(scheme, terms, len(vectors)), len(vectors)
        assert row is not None
        length = len(next(iter(vectors.values())))

        def half() -> HeSiloHalf:
            return HeSiloHalf(he_cohort.KEYS[row], he_cohort.USES[row], terms, length, cohort, 1)

        pieces = list(he_stretches(PARAMETERS[row], length))
        uploads = []
        for vector in vectors.values():
            sealing = half()
            uploads.append(
                [
                    sealing.encrypt(piece.index, vector[piece.start : piece.start + piece.length])
                    for piece in pieces
                ]
            )
        summed = he_cohort.add(row, uploads, length, cohort)
        opening = half()
        return np.concatenate([opening.open(place, part, cohort) for place, part in enumerate(summed)])

    return add


ADD: Final = {
    "additive": _additive,
    "pairwise": _pairwise,
    "bfv": _encrypted("bfv"),
    "ckks": _encrypted("ckks"),
}
AMPLIFIED: Final[Mapping[str, float]] = {"newton": 300}
"""By how many steps two roundings of the same updates may lead apart: Newton divides by the Hessian."""
PACKED: Final = frozenset({"eight bits", "few bits of few"})
"""On coarser grids than the others."""
DRAWN: Final = frozenset({"per_fedavg"})
"""Draws batches by the system's randomness, so that no two runs are alike; its sums are compared."""
ROUNDED: Final = {"ckks": 1}
"""Steps by which a sum may differ from the plain one: approximate arithmetic is rounded to whole steps."""


def _encoded(plan: RoundPlan, update: Update, weight: float) -> dict[VectorName, Ring]:
    drawn = EncodedUpdate(plan, update, weight)
    return {vector.name: drawn.elements(0, vector.length, vector.name) for vector in vectors_of(plan).vectors}


def _assert_sums(scheme: str, plan: RoundPlan, encoded: Mapping[SiloId, Mapping[VectorName, Ring]]) -> None:
    for vector in vectors_of(plan).vectors:
        mine = {silo: one[vector.name] for silo, one in encoded.items()}
        plain = np.sum(np.stack(list(mine.values())), axis=0, dtype=np.uint32)
        apart = (ADD[scheme](mine, vector.terms) - plain).view(np.int32)
        assert np.abs(apart).max() <= ROUNDED.get(scheme, 0), vector.name


class _Summed:
    """Adds by a scheme in the simulator's place; every vector of a round is compared with its plain sum."""

    def __init__(self, scheme: SchemeName) -> None:
        self.scheme, self.vectors = scheme, 0

    def __call__(
        self, plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Mapping[SiloId, float]
    ) -> Ring:
        encoded = {silo: _encoded(plan, one, weights.get(silo, 1.0)) for silo, one in updates.items()}
        _assert_sums(self.scheme, plan, encoded)
        self.vectors += len(vectors_of(plan).vectors)
        return ADD[self.scheme]({silo: one[MODEL] for silo, one in encoded.items()}, plan.vector)


@cache
def _additive_model(name: str) -> NDArray[np.float32]:
    spec = _job(name, "additive")
    return _federation(spec, spec.vector).train(_first(spec))


def _first(spec: JobSpec) -> NDArray[np.float32]:
    random = np.random.default_rng(1)
    return random.normal(0, 0.3, spec.model.parameters).astype(np.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", [*WITHOUT, *MORE])
def test_under_each_scheme_an_algorithm_comes_to_the_additive_model(name: str, scheme: SchemeName) -> None:
    spec, summed = _job(name, scheme), _Summed(scheme)
    world = replace(_federation(spec, spec.vector), add=summed)
    model = world.train(_first(spec))
    assert summed.vectors == 2 * (1 + len(spec.further)), (
        "every vector went through the scheme, in both rounds"
    )
    step = max(2.0**-spec.vector.scale_bits, 2.0 ** -_job(name, "additive").vector.scale_bits)
    if name in DRAWN:
        return
    np.testing.assert_allclose(model, _additive_model(name), atol=AMPLIFIED.get(name, 8) * step)


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[str], Worker]]:
    yield from threshold_cohort.workers()


@pytest.mark.parametrize("scheme", JOINT)
def test_under_a_joint_key_every_algorithm_of_one_vector_is_summed_and_the_others_are_refused(
    scheme: SchemeName, worker: Callable[[str], Worker]
) -> None:
    """One round for all of them: their vectors lie behind one another in the one that is decrypted."""
    carried: dict[SiloId, list[Ring]] = {silo: [] for silo in SILOS}
    vectors = set()
    for name in (*WITHOUT, *MORE):
        further = name == "scaffold in two sums" or CATALOGUE.get(name, CATALOGUE["fedavg"]).further
        packed = name in PACKED
        if further:
            with pytest.raises(ConfigurationError, match=f"expected none with {scheme}"):
                _job(name, scheme)
            continue
        spec = _job(name, scheme)
        assert spec.vector.per_element == 1
        world = _federation(spec, spec.vector)
        plan = simulated_plan(world.terms, SILOS, Digest("ab" * 32))
        first = _first(spec)
        sent = sent_in(spec.training, spec.model, world.terms.job, 1, first, first)
        for silo in SILOS:
            update = world.update_of(silo, first, sent=sent)
            carried[silo].append(_encoded(plan, update, 1.0)[MODEL])
        vectors |= set() if packed else {spec.vector}
    assert len(vectors) == 1, "one grid, so that one row carries them all"
    vector = vectors.pop()
    row = row_for(scheme, vector, len(SILOS))
    assert row is not None
    updates = [np.concatenate(carried[silo]) for silo in SILOS]
    cohort = threshold_cohort.Cohort.of(row, worker(row), len(SILOS), len(updates[0]))
    cohort.terms = cohort.terms.model_copy(update={"vector": vector})
    for member, elements in zip(cohort.members.values(), updates, strict=True):
        member.update = elements
    _, total = cohort.run()
    apart = (total - np.sum(np.stack(updates), axis=0, dtype=np.uint32)).view(np.int32)
    assert np.abs(apart).max() <= ROUNDED.get(scheme.removeprefix("threshold_"), 0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PRIVATE)
def test_under_each_scheme_what_is_noised_is_summed_exactly(name: str, scheme: SchemeName) -> None:
    spec = _job(name, scheme, private=True)
    world = _federation(spec, spec.vector)
    plan = simulated_plan(world.terms, SILOS, Digest("ab" * 32))
    updates = {silo: world.update_of(silo, _first(spec)) for silo in SILOS}
    _assert_sums(scheme, plan, {silo: _encoded(plan, one, 1.0) for silo, one in updates.items()})
